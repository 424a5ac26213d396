// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestFaults sends a thousand packets a second of each of some allowed and forbidden tuples while things fail: agents
// restart and crash, the switch dies, the broker is away, somebody tampers with flows, the Python agent takes over and
// gives back. It prints what was lost, and how long it took until all flows were back.
func TestFaults(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	patience(t)
	f := &filtered{cloud: &cloud{l: lab.New(t, 2), ctx: ctx}}
	t.Cleanup(f.close)
	f.agent = lab.Patchbay
	f.startAgents(t, lab.Patchbay)
	x := &faults{blink: f.blink(t), t: t}
	x.settle(t)
	x.inSync()
	defer x.print()

	x.fault("both agents stopped and started", untouched, func() { f.startAgents(t, lab.Patchbay) })
	x.fault("both agents killed -9 and started", untouched, func() {
		for host := 1; host <= 2; host++ {
			f.crash(t, host)
			f.revive(t, host)
		}
	})
	x.fault("broker away for 15 s", untouched, func() { x.withoutBroker(func() { x.wait(15 * time.Second) }) })
	x.fault("200 acts of drift", unharmed, func() { x.drift(200) })
	x.fault("ovs-vswitchd of hv1 killed -9", healed, x.switchDies)
	x.fault("the same with the broker away", healed, func() { x.withoutBroker(x.switchDies) })
	x.fault("the same, and the agent killed -9: from the snapshot", healed, func() {
		x.withoutBroker(func() {
			f.crash(t, 1)
			x.switchDies()
		})
	})
	for range 2 {
		x.fault("handed to the Python agent", passes, func() { x.hand(lab.Python) })
		x.fault("handed back to Patchbay", passes, func() { x.hand(lab.Patchbay) })
	}
}

// limit is what a fault may cost.
type limit int

const (
	untouched limit = iota // no packet is lost, no flow is touched
	unharmed               // no packet of those that nobody tampers with is lost
	passes                 // no packet is lost; flows may change
	healed                 // the switch is gone for a while; what counts is how long, and that nothing forbidden passes
)

// faults is a run of TestFaults.
type faults struct {
	*blink
	t    *testing.T
	rows []faultRow
	// heal and bare are how long the last death of a switch took, and the bare tool for the same flows.
	heal, bare time.Duration
	note       string
}

type faultRow struct {
	name string
	result
	changed    int // flows
	heal, bare time.Duration
	note       string
}

func (x *faults) fault(name string, most limit, happens func()) {
	t := x.t
	t.Helper()
	if !t.Run(name, func(t *testing.T) {
		x.t = t
		defer func(outer *testing.T) { x.t = outer }(t)
		x.heal, x.bare, x.note = 0, 0, ""
		began := time.Now()
		r := x.during(t, func() {
			happens()
			x.wait(2 * time.Second)
		})
		row := faultRow{name: name, result: r, changed: x.youngerThan(time.Since(began)), heal: x.heal, bare: x.bare, note: x.note}
		x.rows = append(x.rows, row)
		if r.passed > 0 {
			t.Errorf("%d forbidden packets passed\n%s", r.passed, strings.Join(r.detail, "\n"))
		}
		if most != healed && r.lost > 0 {
			t.Errorf("%d allowed packets were lost\n%s", r.lost, strings.Join(r.detail, "\n"))
		}
		if most == untouched && row.changed > 0 {
			t.Errorf("%d flows were touched", row.changed)
		}
		if bound := 2*row.bare + 500*time.Millisecond; most == healed && row.heal > bound {
			t.Errorf("all flows were back after %v, wanted %v", row.heal, bound)
		}
	}) {
		t.Logf("%s failed", name)
	}
	x.t = t
}

func (x *faults) wait(d time.Duration) { x.eventually(d, func() bool { return false }) }

// inSync waits until the agents have written down what they know, which they do once they know everything.
func (x *faults) inSync() {
	for _, h := range x.l.Hosts() {
		file := filepath.Join(h.Dir(), "agent", "state", "patchbay.snapshot")
		if !x.eventually(settled, func() bool { _, err := os.Stat(file); return err == nil }) {
			x.t.Fatalf("%s has no snapshot", h.Name())
		}
	}
	x.wait(6 * time.Second) // for the last changes to be in it
}

func (x *faults) withoutBroker(happens func()) {
	if _, err := x.l.Broker().Ctl(x.ctx, "stop_app"); err != nil {
		x.t.Fatal(err)
	}
	defer func() {
		if _, err := x.l.Broker().Ctl(x.ctx, "start_app"); err != nil {
			x.t.Error(err)
		}
		x.wait(5 * time.Second)
	}()
	happens()
}

// bridges are those that agents program on a host.
var bridges = []string{"br-int", "br-tun", "br-ex"}

// flows are the flows of a host, without what packets taught the switch.
func (x *faults) flows(h *lab.Host) map[string][]string {
	out := map[string][]string{}
	for _, br := range bridges {
		text, err := h.Switch().Ofctl(x.ctx, "-O", "OpenFlow14", "dump-flows", "--no-stats", br)
		if err != nil {
			return nil // the switch is away
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "hard_timeout") && !strings.Contains(l, "learn(") })
		for i, l := range lines {
			lines[i] = strings.TrimSpace(l)
		}
		slices.Sort(lines)
		out[br] = lines
	}
	return out
}

// switchDies kills the switch of the first host, starts it again, and the agent if that is gone too, and measures how long
// it takes until all flows are back.
func (x *faults) switchDies() {
	t, h := x.t, x.l.Host(1)
	before := x.flows(h)
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
	var after map[string][]string
	if !x.eventually(wired, func() bool { after = x.flows(h); return maps.EqualFunc(before, after, slices.Equal[[]string]) }) {
		t.Errorf("flows are not back after %v:\n%s", wired, difference(before, after))
	}
	x.heal = time.Since(began)
	x.bare = x.bareTime(h, before)
}

func difference(before, after map[string][]string) string {
	var b strings.Builder
	for br := range before {
		for _, l := range before[br] {
			if !slices.Contains(after[br], l) {
				fmt.Fprintf(&b, "- %s %s\n", br, l)
			}
		}
		for _, l := range after[br] {
			if !slices.Contains(before[br], l) {
				fmt.Fprintf(&b, "+ %s %s\n", br, l)
			}
		}
	}
	return b.String()
}

// bareTime is how long ovs-ofctl takes to put the same flows onto bridges that have none.
func (x *faults) bareTime(h *lab.Host, flows map[string][]string) time.Duration {
	t := x.t
	total := time.Duration(0)
	for i, br := range bridges {
		file, bridge := filepath.Join(t.TempDir(), br), "bare"+strconv.Itoa(i)
		text := strings.Join(flows[br], "\n")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Switch().Vsctl(x.ctx, "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := h.Switch().Ofctl(x.ctx, "-O", "OpenFlow14", "--bundle", "replace-flows", bridge, file); err != nil {
			t.Error(err)
		}
		total += time.Since(began)
		if _, err := h.Switch().Vsctl(x.ctx, "del-br", bridge); err != nil {
			t.Fatal(err)
		}
	}
	return total
}

var duration = regexp.MustCompile(`duration=([0-9.]+)s`)

// youngerThan counts the flows that were made or changed within a time.
func (x *faults) youngerThan(age time.Duration) int {
	n := 0
	for _, h := range x.l.Hosts() {
		for _, br := range bridges {
			text, err := h.Switch().Ofctl(x.ctx, "-O", "OpenFlow14", "dump-flows", br)
			if err != nil {
				x.t.Fatal(err)
			}
			for line := range strings.SplitSeq(text, "\n") {
				m := duration.FindStringSubmatch(line)
				if m == nil || strings.Contains(line, "hard_timeout") && !strings.Contains(line, "learn(") {
					continue
				}
				if s, err := strconv.ParseFloat(m[1], 64); err == nil && s < age.Seconds() {
					n++
				}
			}
		}
	}
	return n
}

// hand gives both hosts to the other agent.
func (x *faults) hand(kind lab.AgentKind) {
	x.filtered.agent = kind
	x.startAgents(x.t, kind)
	x.wait(wired) // the Python agent is busy for a while with what it finds
}

func (x *faults) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nfault\tseconds\tallowed sent\tlost\tlongest gap\tforbidden sent\tpassed\tflows touched\tall flows back\tovs-ofctl\t")
	for _, r := range x.rows {
		back, bare := "", ""
		if r.heal > 0 {
			back, bare = fmt.Sprintf("%.2f s", r.heal.Seconds()), fmt.Sprintf("%.2f s", r.bare.Seconds())
		}
		fmt.Fprintf(w, "%s\t%.0f\t%d\t%d\t%d ms\t%d\t%d\t%d\t%s\t%s\t%s\n", r.name, r.took.Seconds(), r.allowed, r.lost, r.gap,
			r.forbidden, r.passed, r.changed, back, bare, r.note)
	}
	_ = w.Flush()
}
