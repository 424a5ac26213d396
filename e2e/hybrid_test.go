// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// TestHybrid has VMs behind Linux bridges of their own, as os-vif plugs them in for firewall_driver = iptables_hybrid, on two hosts. Rules of iptables
// filter them. In every step packets that may pass are sent beside such that must not.
func TestHybrid(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hybridTime)
	defer cancel()
	start := time.Now()
	patience(t)
	x := &hybrid{smoke: &smoke{filtered: &filtered{agent: lab.Patchbay, cloud: &cloud{ctx: ctx, hybrid: true, round: round{name: "hybrid"}}}}}
	t.Cleanup(func() { x.print(time.Since(start)) })
	x.l = lab.New(t, 2)
	t.Cleanup(x.close)
	if !x.step(t, "agents start", func(t *testing.T) { x.startAgents(t, x.agent) }) || !x.step(t, "VMs are wired", x.prepare) {
		return
	}
	x.step(t, "no rule yet", func(t *testing.T) { x.traffic(t, lossless, second, x.forbid(x.door(), x.doorTCP())...) })
	x.step(t, "rule opened", x.opens)
	x.step(t, "rule closed", x.ruleClosed)
	x.step(t, "rule opened again", x.opens)
	x.step(t, "member of a remote group comes and goes", x.member)
	if os.Getenv(lab.EnvServer) == "" {
		x.step(t, "address of an address group comes and goes", x.addresses)
	}
	x.step(t, "agents restarted", func(t *testing.T) { x.unchanged(t, func() { x.startAgents(t, x.agent) }) })
	x.step(t, "agents killed -9", func(t *testing.T) {
		x.unchanged(t, func() {
			x.eachHost(t, func(h *lab.Host) error { return h.KillAgent() })
			x.startAgents(t, x.agent)
		})
	})
	x.step(t, "a rule added and one deleted by hand", x.tamper)
	x.step(t, "bridges do not ask iptables", x.unbridged)
	if os.Getenv(lab.EnvServer) == "" {
		x.step(t, "Python agent takes over", func(t *testing.T) {
			x.during(t, lossless, func() { x.startAgents(t, lab.Python); x.wait(5 * second) }, x.with(x.door())...)
		})
		x.step(t, "and back", func(t *testing.T) { x.unchanged(t, func() { x.startAgents(t, x.agent) }) })
	}
	x.step(t, "firewall_driver = openvswitch", x.toFlows)
	x.step(t, "and back", x.toRules)
}

const hybridTime = 11 * time.Minute

// hybrid is the lab with VMs behind Linux bridges.
type hybrid struct {
	*smoke
	club  string   // a remote group
	pairs [][2]*vm // more VMs like near and far
}

// memberPort is what members of the club may send to.
const memberPort = gatePort + 4

func (x *hybrid) close() { x.filtered.close() }

// prepare makes networks, groups and VMs.
func (x *hybrid) prepare(t *testing.T) {
	x.networks(t)
	x.rules = map[string]string{}
	x.open, x.group, x.club = x.filtered.group(t, "open"), x.filtered.group(t, "door"), x.filtered.group(t, "club")
	x.allow(t, x.open, everything()...)
	x.allow(t, x.group, directed(attributes{}, "egress", 4), directed(with(ranged("udp", memberPort, memberPort), "remote_group_id", x.club), "ingress", 4))
	add := func(name string, n *network, number, host int, group string) *vm {
		v := n.add(number, host)
		v.name, v.extra = name, attributes{"security_groups": []string{group}}
		return v
	}
	x.near, x.far = add("near", x.blue, 1, 1, x.group), add("far", x.blue, 2, 2, x.open)
	x.reds = []*vm{add("red1", x.red, 3, 1, x.open), add("red2", x.red, 4, 2, x.open)}
	for i := range x.pairs {
		x.pairs[i] = [2]*vm{add(fmt.Sprint("near", i), x.blue, 10+2*i, 1, x.group), add(fmt.Sprint("far", i), x.blue, 11+2*i, 2, x.open)}
	}
	x.plugPlanned(t)
	x.arrives(t, x.to(x.near, x.far, 7, true), true)
	x.inSync(t)
	x.says("%d VMs", len(x.vms()))
}

func (x *hybrid) ruleClosed(t *testing.T) {
	udp := x.door()
	x.traffic(t, lossless, second/4, udp)
	for _, protocol := range []string{"udp", "tcp"} {
		x.request(t, http.MethodDelete, "security-group-rules/"+x.smoke.rules[protocol], nil, nil)
	}
	took := x.arrives(t, udp, false) - silence
	x.says("the same UDP packets end %d ms after the answer", max(took, 0).Milliseconds())
	x.traffic(t, lossless, second, x.forbid(udp, x.door(), x.doorTCP())...)
}

func (x *hybrid) member(t *testing.T) {
	of := func() *lane { return x.to(x.far, x.near, memberPort, true) }
	x.traffic(t, lossless, second/2, x.forbid(of())...)
	x.update(t, x.far, attributes{"security_groups": []string{x.open, x.club}})
	came := x.arrives(t, of(), true)
	x.traffic(t, lossless, second/2, x.with(of())...)
	x.update(t, x.far, attributes{"security_groups": []string{x.open}})
	went := x.arrives(t, of(), false) - silence
	x.traffic(t, lossless, second/2, x.forbid(of())...)
	x.says("in after %d ms, out after %d ms", came.Milliseconds(), max(went, 0).Milliseconds())
}

// listedPort is what addresses of an address group may send to.
const listedPort = gatePort + 5

func (x *hybrid) addresses(t *testing.T) {
	of := func() *lane { return x.to(x.far, x.near, listedPort, true) }
	list := x.addressGroup(t, "listed", x.far.v4+"/32")
	rule := x.allow(t, x.group, directed(with(ranged("udp", listedPort, listedPort), "remote_address_group_id", list), "ingress", 4))[0]
	x.arrives(t, of(), true)
	live := of()
	x.traffic(t, lossless, second/2, x.with(live)...)
	x.request(t, http.MethodPut, "address-groups/"+list+"/remove_addresses", map[string]any{"addresses": []string{x.far.v4 + "/32"}}, nil)
	went := x.arrives(t, live, false) - silence
	x.traffic(t, lossless, second/2, x.forbid(of(), live)...)
	x.says("out after %d ms", max(went, 0).Milliseconds())
	// The Python agent before 24, which takes over later, would let everybody in by such a rule.
	x.request(t, http.MethodDelete, "security-group-rules/"+rule, nil, nil)
	if !x.eventually(wired, func() bool { return !strings.Contains(x.saved(t, x.l.Host(1)), "NIPv4"+list[:8]) }) {
		t.Error("the set of the address group stays")
	}
}

// seed is of a set's hash: a set that was made again has another one.
var seed = regexp.MustCompile(` initval 0x[0-9a-f]+`)

// saved is what iptables and ipset have on a host, without counters and comments. The lines are sorted: rules that accept have no order, and
// the Python agent writes them in another one each time.
func (x *hybrid) saved(t *testing.T, h *lab.Host) string {
	t.Helper()
	var lines []string
	for _, command := range [][]string{{"iptables-save"}, {"ip6tables-save"}, {"ipset", "save"}} {
		out, err := h.Command(x.ctx, command[0], command[1:]...).Output()
		if err != nil {
			t.Fatalf("%s on %s: %v", command[0], h.Name(), err)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") {
				lines = append(lines, seed.ReplaceAllString(line, ""))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// unchanged does something to the agents under traffic. No packet is lost, no agent writes a rule, and the rules are as they were.
func (x *hybrid) unchanged(t *testing.T, do func()) {
	t.Helper()
	var before []string
	for _, h := range x.l.Hosts() {
		before = append(before, x.saved(t, h))
	}
	x.during(t, lossless, func() {
		do()
		x.inSync(t)
		x.wait(2 * second)
	}, x.with(x.door())...)
	written := 0
	for i, h := range x.l.Hosts() {
		if after := x.saved(t, h); after != before[i] {
			t.Errorf("%s has other rules:\n%s\nbefore:\n%s", h.Name(), after, before[i])
		}
		out, _ := x.runPatchbay(t, i+1, "status", "--json")
		if !strings.Contains(strings.ReplaceAll(out, " ", ""), `"iptables_lines":0,`) {
			written++
		}
	}
	x.says("%d rules, %d agents wrote", strings.Count(before[0]+before[1], "-A "), written)
	if written > 0 {
		t.Errorf("%d agents wrote rules", written)
	}
}

// tamper changes rules by hand. The next comparison, with any change, makes them as they were.
func (x *hybrid) tamper(t *testing.T) {
	h := x.l.Host(1)
	chain := "neutron-openvswi-i" + x.near.PortID[:10]
	sorted := func() string { // the order of rules that allow means nothing
		return strings.Join(slices.Sorted(strings.Lines(x.saved(t, h))), "")
	}
	before := sorted()
	for _, args := range [][]string{
		{"-I", chain, "1", "-p", "udp", "--dport", fmt.Sprint(shutPort), "-j", "RETURN"},
		{"-D", chain, "-p", "udp", "-m", "udp", "--dport", fmt.Sprint(doorPort), "-j", "RETURN"},
	} {
		if out, err := h.Command(x.ctx, "iptables", args...).CombinedOutput(); err != nil {
			t.Fatalf("iptables %q: %v: %s", args, err, out)
		}
	}
	x.arrives(t, x.to(x.far, x.near, shutPort, true), true) // which shows that packets ask the chain
	x.update(t, x.far, attributes{"security_groups": []string{x.open, x.club}})
	x.arrives(t, x.to(x.far, x.near, shutPort, false), false)
	x.update(t, x.far, attributes{"security_groups": []string{x.open}})
	x.inSync(t)
	if !x.eventually(wired, func() bool { return sorted() == before }) {
		t.Errorf("the rules are not as before:\n%s\nbefore:\n%s", sorted(), before)
	}
	x.traffic(t, lossless, second, x.with(x.door())...)
}

// unbridged has bridges pass packets on without asking iptables. The agent says so, and says when that is over.
func (x *hybrid) unbridged(t *testing.T) {
	h := x.l.Host(1)
	set := func(value string) {
		if out, err := h.Command(x.ctx, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables="+value).CombinedOutput(); err != nil {
			t.Fatalf("sysctl: %v: %s", err, out)
		}
	}
	set("0")
	defer set("1")
	says := func(want bool) {
		t.Helper()
		groups := map[bool][]string{true: {x.open, x.club}, false: {x.open}}
		x.update(t, x.far, attributes{"security_groups": groups[want]}) // has the rules compared
		var out string
		if !x.eventually(wired, func() bool {
			var status int
			out, status = x.runPatchbay(t, 1, "status")
			return strings.Contains(out, "- sysctl net.bridge.bridge-nf-call-iptables is 0") == want && (status == 0) != want
		}) {
			t.Errorf("status, want %v:\n%s", want, out)
		}
	}
	says(true)
	set("1")
	says(false)
}

// toFlows has the agents filter with flows. The rules go port by port, when the flows of the port are there and in force.
func (x *hybrid) toFlows(t *testing.T) {
	x.during(t, lossless, func() {
		x.eachHost(t, func(h *lab.Host) error {
			if err := h.StopAgent(x.ctx); err != nil {
				return err
			}
			return h.StartAgent(x.ctx, x.agent, filtering)
		})
		x.inSync(t)
		for _, h := range x.l.Hosts() {
			if left := x.saved(t, h); strings.Contains(left, "neutron-openvswi") || strings.Contains(left, "NIPv") {
				t.Errorf("%s is in sync, and still has rules:\n%s", h.Name(), left)
			}
			mark, err := h.Switch().Vsctl(x.ctx, "get", "Bridge", "br-int", "other_config:iptables_cleaned")
			if err != nil || !strings.Contains(mark, "true") {
				t.Errorf("mark of %s: %q, %v", h.Name(), mark, err)
			}
		}
		x.wait(2 * second)
	}, x.all()...)
	x.traffic(t, lossless, second, x.all()...)
}

// toRules is the way back.
func (x *hybrid) toRules(t *testing.T) {
	x.during(t, lossless, func() { x.startAgents(t, x.agent); x.inSync(t); x.wait(2 * second) }, x.all()...)
	for _, h := range x.l.Hosts() {
		if !strings.Contains(x.saved(t, h), "neutron-openvswi-sg-chain") {
			t.Errorf("%s has no rules", h.Name())
		}
		if mark, err := h.Switch().Vsctl(x.ctx, "--if-exists", "get", "Bridge", "br-int", "other_config:iptables_cleaned"); err != nil || strings.Contains(mark, "true") {
			t.Errorf("mark of %s: %q, %v", h.Name(), mark, err)
		}
	}
	x.traffic(t, lossless, second, x.all()...)
}

// all are the lanes of near and far, and those of the pairs: what a rule allows, what none does.
func (x *hybrid) all() []*lane {
	lanes := x.with(x.door())
	for _, pair := range x.pairs {
		near, far := pair[0], pair[1]
		lanes = append(lanes, x.to(far, near, doorPort, true), x.to(near, far, 7, true), x.to(far, near, shutPort, false))
	}
	return lanes
}

// TestHybridDrivers moves two hosts with many VMs behind Linux bridges from rules of iptables to flows and back, with each of iptables' back ends, under
// packets of all VMs.
func TestHybridDrivers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hybridTime)
	defer cancel()
	start := time.Now()
	patience(t)
	x := &hybrid{smoke: &smoke{filtered: &filtered{agent: lab.Patchbay, cloud: &cloud{ctx: ctx, hybrid: true, round: round{name: "drivers"}}}}}
	t.Cleanup(func() { x.print(time.Since(start)) })
	x.l = lab.New(t, 2)
	t.Cleanup(x.close)
	if !x.step(t, "agents start", func(t *testing.T) { x.startAgents(t, x.agent) }) || !x.step(t, "VMs are wired", x.prepareMany) {
		return
	}
	for _, backend := range []string{"nft", "legacy", "nft"} {
		x.iptables(t, backend)
		if len(x.rows) > 2 {
			x.step(t, "firewall_driver = iptables_hybrid, "+backend, x.toRules)
		}
		x.step(t, "firewall_driver = openvswitch, from "+backend, x.toFlows)
	}
	x.step(t, "firewall_driver = iptables_hybrid, nft", x.toRules)
	x.step(t, "tables of filters are emptied", x.emptied)
}

// emptied waits until flows that filtered are gone. The switch's datapath has to have forgotten them first.
func (x *hybrid) emptied(t *testing.T) {
	x.during(t, lossless, func() {
		for _, h := range x.l.Hosts() {
			var left string
			if !x.eventually(settled, func() bool {
				out, err := h.Switch().Ofctl(x.ctx, "dump-flows", "br-int", "table=71")
				left = out
				return err == nil && !strings.Contains(out, "cookie=")
			}) {
				t.Errorf("%s has flows of filters:\n%s", h.Name(), left)
			}
		}
		x.wait(second)
	}, x.all()...)
}

// manyPairs are VMs beside near and far and those of the other network, 40 in all.
const manyPairs = 18

func (x *hybrid) prepareMany(t *testing.T) {
	x.pairs = make([][2]*vm, manyPairs)
	x.prepare(t)
	x.opens(t)
	x.traffic(t, lossless, second, x.all()...)
}

// iptables has the host's commands, those of agents and those of the test, work on one back end.
func (x *hybrid) iptables(t *testing.T, backend string) {
	t.Helper()
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, what := range []string{"", "-save", "-restore"} {
			if err := os.Symlink("/usr/sbin/"+family+"-"+backend+what, filepath.Join(dir, family+what)); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.l.SetAgentEnv("PATH=" + dir + ":" + daemon.Path)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
