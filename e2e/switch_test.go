// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/parity"
)

// bridges are those that agents program on a host.
var bridges = []string{"br-int", "br-tun", "br-ex"}

// learnt says whether a flow is one that packets taught the switch.
func learnt(line string) bool {
	return strings.Contains(line, "hard_timeout") && !strings.Contains(line, "learn(")
}

// flows are the flows of a host as ovs-ofctl writes them, by bridge, without learnt ones. Ports are written by their names:
// one that is made anew gets another number. It is nil when the switch is away.
func (c *cloud) flows(h *lab.Host) map[string][]string { return c.dump(h, "--names") }

func (c *cloud) dump(h *lab.Host, flags ...string) map[string][]string {
	out := map[string][]string{}
	for _, br := range bridges {
		args := append([]string{"-O", "OpenFlow14", "dump-flows", "--no-stats"}, flags...)
		text, err := h.Switch().Ofctl(c.ctx, append(args, br)...)
		if err != nil {
			return nil
		}
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(text), "\n"), learnt)
		for i, l := range lines {
			lines[i] = strings.TrimSpace(l)
		}
		slices.Sort(lines)
		out[br] = lines
	}
	return out
}

// meters are those of a host, as ovs-ofctl writes them; nil when the switch is away.
func (c *cloud) meters(h *lab.Host) []string {
	text, err := h.Switch().Ofctl(c.ctx, "-O", "OpenFlow14", "dump-meters", "br-int")
	if err != nil {
		return nil
	}
	_, text, _ = strings.Cut(text, "\n") // what was asked
	list := strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "bands=\n", "bands="), "\n")
	slices.Sort(list)
	return list
}

// rows are what the databases of all hosts have about bridges, ports, interfaces and limits, without what the switches count,
// and the switches' meters.
func (c *cloud) rows(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, h := range c.l.Hosts() {
		for table, columns := range map[string]string{
			"Bridge": "_uuid,name,ports,fail_mode,other_config,external_ids", "Port": "_uuid,name,tag,vlan_mode,qos,other_config,external_ids",
			"Interface": "_uuid,name,type,options,external_ids,ingress_policing_rate,ingress_policing_burst",
			"QoS":       "_uuid,type,queues,other_config,external_ids", "Queue": "_uuid,other_config,external_ids",
		} {
			text, err := h.Switch().Vsctl(c.ctx, "--format=csv", "--no-headings", "--columns="+columns, "list", table)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(text), "\n")
			slices.Sort(lines)
			out[h.Name()+" "+table] = lines
		}
		out[h.Name()+" meters"] = c.meters(h)
	}
	return out
}

// allFlows are those of all hosts.
func (c *cloud) allFlows() []map[string][]string {
	var out []map[string][]string
	for _, h := range c.l.Hosts() {
		out = append(out, c.flows(h))
	}
	return out
}

// vanished counts the flows that are not there any more.
func vanished(before, after []map[string][]string) int {
	n := 0
	for i := range before {
		for br, lines := range before[i] {
			n += len(lines) - len(intersection(lines, after[i][br]))
		}
	}
	return n
}

func intersection(a, b []string) []string {
	have := map[string]bool{}
	for _, l := range b {
		have[l] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(l string) bool { return !have[l] })
}

func same(a, b map[string][]string) bool { return maps.EqualFunc(a, b, slices.Equal[[]string]) }

func difference(before, after map[string][]string) string {
	var b strings.Builder
	lines := 0
	for _, br := range slices.Sorted(maps.Keys(before)) {
		for _, part := range []struct {
			sign     string
			all, not []string
		}{{"-", before[br], after[br]}, {"+", after[br], before[br]}} {
			both := intersection(part.all, part.not)
			for _, l := range part.all {
				if _, found := slices.BinarySearch(both, l); !found {
					if lines++; lines <= 40 {
						fmt.Fprintf(&b, "%s %s %s\n", part.sign, br, l)
					}
				}
			}
		}
	}
	if lines > 40 {
		fmt.Fprintf(&b, "… %d lines in all\n", lines)
	}
	return b.String()
}

// meaning is the flows of a host without what may differ between two starts of an agent: cookies, and the numbers of ports
// and conjunctions.
func (x *faults) meaning(h *lab.Host) map[string][]string {
	text, err := h.Switch().Vsctl(x.ctx, "--format=csv", "--no-headings", "--columns=name,ofport", "list", "Interface")
	if err != nil {
		return nil
	}
	names := parity.NewNames()
	for line := range strings.Lines(text) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), ",")
		if n, err := strconv.ParseUint(number, 10, 32); err == nil {
			for _, br := range bridges {
				names.Port(br, uint32(n), strings.Trim(name, `"`)+" "+number)
			}
		}
	}
	for tag := range 4095 {
		names.VLAN(uint16(tag), strconv.Itoa(tag))
	}
	out := x.dump(h, "--no-names")
	for br, lines := range out {
		var list []openflow.Flow
		for _, l := range lines {
			f, err := openflow.ParseFlow(l)
			if err != nil {
				x.t.Fatalf("%s: %v", l, err)
			}
			list = append(list, f)
		}
		out[br] = names.Flows(br, list)
	}
	return out
}

// switchDies kills the switch of the first host, starts it again, and the agent if that is gone too, and measures how long
// it takes until all flows are back.
func (x *faults) switchDies() {
	t, h := x.t, x.l.Host(1)
	look := x.flows
	if x.agent == lab.Python {
		look = x.meaning // it numbers conjunctions anew
	}
	before, flows := look(h), x.dump(h, "--no-names")
	if err := h.Switch().KillVswitchd(x.ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Switch().StartVswitchd(x.ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, pid := h.Agent(); pid == 0 {
		if err := h.LaunchAgent(x.ctx, x.agent, filtering); err != nil {
			t.Fatal(err)
		}
	}
	x.returned(began, before, look)
	x.row.bare = x.bareTime(t, h, flows)
}

// returned waits until the flows of the first host are what they were.
func (x *faults) returned(began time.Time, before map[string][]string, look func(*lab.Host) map[string][]string) {
	h, limit := x.l.Host(1), wired
	if x.agent == lab.Python {
		limit = time.Minute
	}
	var after map[string][]string
	healed := x.eventually(limit, func() bool { after = look(h); return same(before, after) })
	x.row.heal = time.Since(began)
	switch {
	case healed:
	case x.agent == lab.Python:
		x.row.note = fmt.Sprintf("%d flows of %d after %v", count(after), count(before), limit)
	default:
		x.t.Errorf("flows are not back after %v:\n%s", limit, difference(before, after))
	}
}

func count(flows map[string][]string) int {
	n := 0
	for _, lines := range flows {
		n += len(lines)
	}
	return n
}

// meterOf finds the meter that a flow sends its packets through.
var meterOf = regexp.MustCompile(`meter:(\d+)`)

// bareTime is how long ovs-ofctl takes to put the same flows onto bridges that have none.
func (c *cloud) bareTime(t *testing.T, h *lab.Host, flows map[string][]string) time.Duration {
	t.Helper()
	total := time.Duration(0)
	for i, br := range bridges {
		file, bridge := filepath.Join(t.TempDir(), br), "bare"+strconv.Itoa(i)
		text := strings.Join(flows[br], "\n")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Switch().Vsctl(c.ctx, "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev"); err != nil {
			t.Fatal(err)
		}
		for _, m := range meterOf.FindAllStringSubmatch(text, -1) { // a flow may not name one that does not exist
			_, _ = h.Switch().Ofctl(c.ctx, "-O", "OpenFlow14", "add-meter", bridge, "meter="+m[1]+",pktps,band=type=drop,rate=1000000")
		}
		began := time.Now()
		if _, err := h.Switch().Ofctl(c.ctx, "-O", "OpenFlow14", "--bundle", "replace-flows", bridge, file); err != nil {
			t.Error(err)
		}
		total += time.Since(began)
		if _, err := h.Switch().Vsctl(c.ctx, "del-br", bridge); err != nil {
			t.Fatal(err)
		}
	}
	return total
}

// saveScript is Open vSwitch's own, which ovs-ctl calls around a restart.
const saveScript = "/usr/share/openvswitch/scripts/ovs-save"

// switchRestored restarts the switch as `ovs-ctl restart` does: it writes the flows down, and puts them back before the new
// switch may forward anything. The agent does its own part at the same time.
func (x *faults) switchRestored() {
	t, h := x.t, x.l.Host(1)
	before, flows := x.flows(h), x.dump(h, "--no-names")
	script, err := h.Command(x.ctx, saveScript, append([]string{"save-flows"}, bridges...)...).Output()
	if err != nil {
		t.Fatalf("saving the flows: %v", err)
	}
	wait := func(args ...string) {
		if _, err := h.Switch().Vsctl(x.ctx, append([]string{"--no-wait"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Switch().StopVswitchd(x.ctx); err != nil {
		t.Fatal(err)
	}
	wait("set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
	if err := h.Switch().StartVswitchd(x.ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if out, err := h.Command(x.ctx, "sh", "-c", string(script)).CombinedOutput(); err != nil {
		t.Fatalf("restoring the flows: %v: %s", err, out)
	}
	restored := time.Since(began)
	wait("--if-exists", "remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait")
	x.returned(began, before, x.flows)
	x.wait(3 * time.Second) // whatever crossed has been looked at again
	if after := x.flows(h); !same(before, after) {
		t.Errorf("flows differ after a while:\n%s", difference(before, after))
	}
	x.row.note = fmt.Sprintf("%.2f s of it ovs-save's script", restored.Seconds())
	x.row.bare = x.bareTime(t, h, flows) + restored
}
