// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/sim"
	"github.com/patchbay-sdn/patchbay/lab/sim/region"
)

// hybridRun is what one agent made of a number of ports behind Linux bridges.
type hybridRun struct {
	ports                     int
	kind                      lab.AgentKind
	lines                     int           // of iptables-save, ip6tables-save and ipset save, in sync
	sync, syncCPU             time.Duration // from the start of the process until all ports are ACTIVE
	again, againCPU           time.Duration // the same for a second start
	againLines                int           // that the second start changed
	rule, unrule, add, remove rulesChange
	note                      string
}

// rulesChange is what one change of a group costs.
type rulesChange struct {
	lines int           // that changed
	took  time.Duration // from the push until the last port's line is there
	cpu   time.Duration
}

// TestHybrid measures what one rule, one member of a remote group and a start cost with ports behind Linux bridges, which rules of iptables filter,
// on a simulated server: PATCHBAY_BENCH_PORTS ports (10,100,500) of one group, which lets in a remote group of PATCHBAY_BENCH_MEMBERS (10000).
// Both agents begin on a host without rules, one after the other.
//
//   - The time of a member runs from before the server puts it into its model until the set has it; that of a rule until every port has its line,
//     and is as exact as iptables-save is fast.
//   - CPU is that of the agent, its helpers and the programs that they start, until they have come to rest.
func TestHybrid(t *testing.T) {
	host, s := simulatedHost(t)
	members := number("PATCHBAY_BENCH_MEMBERS", 10_000)
	began, before := time.Now(), loadAverage()
	var all []hybridRun
	for i, n := range sizes(t, "PATCHBAY_BENCH_PORTS", 10, 100, 500) {
		made := populate(t, s, host, n, members, 200+i)
		for _, kind := range agents() {
			g := &hybridBench{groupBench: groupBench{server: s, host: host, made: made, run: groupRun{kind: kind}}, found: hybridRun{ports: n, kind: kind}}
			if !t.Run(fmt.Sprintf("%s/%d", kind, n), g.measure) {
				t.Logf("%s with %d ports failed", kind, n)
			}
			all = append(all, g.found)
		}
	}
	printHybrid(all, fmt.Sprintf("one group, a remote group of %d; load average before %s, after %s; took %s",
		members, before, loadAverage(), time.Since(began).Round(time.Second)))
	judgeHybrid(t, all)
}

type hybridBench struct {
	groupBench
	found hybridRun
}

func (g *hybridBench) measure(t *testing.T) {
	ctx := t.Context()
	list := g.reset(t, g.host.PlugManyHybrid)
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(g.host.StopAgent(ctx), g.host.UnplugManyHybrid(ctx, list)); err != nil {
			t.Error(err)
		}
		for _, cmd := range []string{"iptables-restore", "ip6tables-restore"} {
			c := g.host.Command(ctx, cmd)
			c.Stdin = strings.NewReader("*filter\nCOMMIT\n*raw\nCOMMIT\n")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", cmd, err, out)
			}
		}
		if out, err := g.host.Command(ctx, "ipset", "destroy").CombinedOutput(); err != nil {
			t.Errorf("ipset destroy: %v: %s", err, out)
		}
	})
	var ok bool
	if g.found.sync, g.found.syncCPU, ok = g.start(t); !ok {
		g.found.note = "not in sync within " + syncLimit.String()
		return
	}
	text := g.rules(t)
	g.found.lines = len(text)
	g.changes(t)
	if err := g.host.StopAgent(ctx); err != nil {
		t.Fatal(err)
	}
	text = g.rules(t)
	for _, p := range g.made.Local {
		if err := g.server.SetStatus(ctx, p.ID, "DOWN"); err != nil {
			t.Fatal(err)
		}
	}
	g.found.again, g.found.againCPU, _ = g.start(t)
	g.found.againLines = changed(text, g.rules(t))
}

// start starts the agent and waits until all ports are ACTIVE and the agent has come to rest.
func (g *hybridBench) start(t *testing.T) (took, used time.Duration, ok bool) {
	t.Helper()
	began := time.Now()
	if err := g.host.StartAgent(t.Context(), g.found.kind,
		"securitygroup.firewall_driver=iptables_hybrid", "securitygroup.enable_security_group=true",
		"agent.l2_population=false", "agent.arp_responder=false", "agent.tunnel_types=vxlan"); err != nil {
		t.Fatal(err)
	}
	if !g.active(t.Context(), began.Add(syncLimit)) {
		return syncLimit, 0, false
	}
	took = time.Since(began)
	g.quiet(t, syncLimit)
	return took, cpu(t, g.host), true
}

// changes adds and takes away a rule and a member.
func (g *hybridBench) changes(t *testing.T) {
	ctx := t.Context()
	port, proto := 4711, "tcp"
	var rule *region.Rule
	lines := func() int { return g.count(t, "--dport 4711 ") }
	g.found.rule = g.change(t, func() (err error) {
		rule, err = g.server.CreateRule(ctx, region.RuleSpec{GroupID: g.made.Groups[0], Direction: "ingress", EtherType: "IPv4", Protocol: proto, PortMin: &port, PortMax: &port})
		return err
	}, func() bool { return lines() == g.found.ports })
	g.found.unrule = g.change(t, func() error { return g.server.DeleteRule(ctx, rule.ID) }, func() bool { return lines() == 0 })
	set := g.set(t)
	var p *sim.Port
	has := func() bool {
		return p != nil && g.host.Command(ctx, "ipset", "-q", "test", set, p.FixedIPs[0].IP.String()).Run() == nil
	}
	g.found.add = g.change(t, func() (err error) { p, err = g.server.AddMember(ctx, g.made, 0); return err }, has)
	g.found.remove = g.change(t, func() error { return g.server.DeletePort(ctx, p.ID) }, func() bool { return !has() })
}

// change makes one change, waits until it is there and the agent has come to rest.
func (g *hybridBench) change(t *testing.T, do func() error, there func() bool) rulesChange {
	t.Helper()
	before, used, began := g.rules(t), cpu(t, g.host), time.Now()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	for !there() {
		if time.Since(began) > changeLimit {
			g.found.note += "a change was not there within " + changeLimit.String()
			return rulesChange{}
		}
		time.Sleep(time.Millisecond)
	}
	c := rulesChange{took: time.Since(began)}
	g.quiet(t, changeLimit)
	c.cpu, c.lines = cpu(t, g.host)-used, changed(before, g.rules(t))
	return c
}

// rules are the host's rules and sets, as lines without counters.
func (g *hybridBench) rules(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, cmd := range []string{"iptables-save", "ip6tables-save", "ipset save"} {
		words := strings.Fields(cmd)
		out, err := g.host.Command(t.Context(), words[0], words[1:]...).Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		for line := range strings.Lines(string(out)) {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			if i := strings.Index(line, " ["); line[0] == ':' && i > 0 {
				line = line[:i]
			}
			all = append(all, words[0]+" "+line)
		}
	}
	slices.Sort(all)
	return all
}

// changed counts the lines that are in one list and not in the other. Both are sorted.
func changed(a, b []string) int {
	n := 0
	for len(a) > 0 && len(b) > 0 {
		switch strings.Compare(a[0], b[0]) {
		case 0:
			a, b = a[1:], b[1:]
		case -1:
			a, n = a[1:], n+1
		default:
			b, n = b[1:], n+1
		}
	}
	return n + len(a) + len(b)
}

// count counts the rules that have some text.
func (g *hybridBench) count(t *testing.T, text string) int {
	t.Helper()
	out, err := g.host.Command(t.Context(), "iptables-save", "-t", "filter").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(out), text)
}

// set is the name of the remote group's set of IPv4 addresses.
func (g *hybridBench) set(t *testing.T) string {
	t.Helper()
	out, err := g.host.Command(t.Context(), "ipset", "list", "-name").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "NIPv4"+g.made.Remotes[0][:8]) {
			return name
		}
	}
	t.Fatalf("no set of group %s: %s", g.made.Remotes[0], out)
	return ""
}

func printHybrid(all []hybridRun, about string) {
	fmt.Printf("\n%s\n\n", about)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	cells := func(c ...string) { fmt.Fprintln(out, "| "+strings.Join(c, "\t| ")+"\t|") }
	head := []string{
		"ports", "agent", "lines", "start → all ACTIVE", "its CPU", "rule added: lines", "in place after", "CPU", "removed: CPU",
		"member added: lines", "in place after", "CPU", "removed: CPU", "second start", "its CPU", "lines it changed", "note",
	}
	cells(head...)
	cells(strings.Split(strings.Repeat("---,", len(head)-1)+"---", ",")...)
	for _, r := range all {
		cells(fmt.Sprint(r.ports), string(r.kind), fmt.Sprint(r.lines), or(ms(r.sync)), or(ms(r.syncCPU)),
			fmt.Sprint(r.rule.lines), or(ms(r.rule.took)), or(ms(r.rule.cpu)), or(ms(r.unrule.cpu)),
			fmt.Sprint(r.add.lines), or(ms(r.add.took)), or(ms(r.add.cpu)), or(ms(r.remove.cpu)),
			or(ms(r.again)), or(ms(r.againCPU)), fmt.Sprint(r.againLines), r.note)
	}
	_ = out.Flush()
}

// judgeHybrid holds the figures against their targets.
func judgeHybrid(t *testing.T, all []hybridRun) {
	python := map[int]hybridRun{}
	for _, r := range all {
		if r.kind == lab.Python {
			python[r.ports] = r
		}
	}
	for _, r := range all {
		if r.kind != lab.Patchbay {
			continue
		}
		if r.add.lines != 1 || r.remove.lines != 1 || r.rule.lines != r.ports || r.againLines != 0 {
			t.Errorf("%d ports: a member changed %d and %d lines, want 1; a rule %d, want one a port; a second start %d, want 0",
				r.ports, r.add.lines, r.remove.lines, r.rule.lines, r.againLines)
		}
		say := t.Logf
		if asserting() {
			say = t.Errorf
		}
		if r.add.took > 20*time.Millisecond {
			say("%d ports: a member is in its set after %s, target 20 ms", r.ports, ms(r.add.took))
		}
		if p := python[r.ports].rule.cpu; p > 0 && r.ports >= 100 && p < 20*r.rule.cpu {
			say("%d ports: a rule costs %s of CPU beside Python's %s, target 1/20", r.ports, ms(r.rule.cpu), ms(p))
		}
	}
}
