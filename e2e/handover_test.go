// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"strings"

	"github.com/patchbay-sdn/patchbay/lab"
)

// handOver gives both hosts to the Python agent and back, twice. What it finds is compared with what each agent makes on a
// switch without flows. While the Python agent is in charge it goes through some of the faults, for its figures.
func (x *faults) handOver() {
	vlans := x.vlans()
	patchbay := x.flows(x.l.Host(1)) // restored by the agent on an empty switch, a few faults ago
	var python map[string][]string
	for round := range 2 {
		x.fault("handed to the Python agent", unharmed, func() {
			x.hand(lab.Python)
			x.unchanged(vlans)
			taken := x.meaning(x.l.Host(1))
			if python != nil && !same(python, taken) {
				x.t.Errorf("flows differ from those of a fresh start:\n%s", difference(python, taken))
			}
			python = taken
		})
		if x.agent == lab.Python && round == 0 {
			x.fault("agents stopped and started", figures, func() { x.restart(false) })
			x.fault("agents killed -9 and started", figures, func() { x.restart(true) })
			x.fault("ovs-vswitchd killed -9", figures, func() {
				x.switchDies()
				x.eventually(settled, func() bool { return x.calls.calm(rest) })
				python = x.meaning(x.l.Host(1)) // what it makes from nothing
			})
			x.fault("ovs-vswitchd killed -9, broker down", figures, func() { x.withoutBroker(x.switchDies) })
		}
		x.fault("handed back to Patchbay", unharmed, func() {
			x.hand(lab.Patchbay)
			x.unchanged(vlans)
			if flows := x.flows(x.l.Host(1)); !same(patchbay, flows) {
				x.t.Errorf("flows differ from those before:\n%s", difference(patchbay, flows))
			}
		})
	}
	// A switch without flows ends with those that it had: the hand-over left what a fresh start makes.
	x.fault("ovs-vswitchd killed -9, after it", healed, x.switchDies)
	x.third()
}

// third holds the calls of a restart against those of the Python agent.
func (x *faults) third() {
	const name = "agents stopped and started"
	ours, theirs := 0, 0
	for _, r := range x.rows {
		if r.name == name && r.agent == lab.Python {
			theirs = r.calls
		} else if r.name == name {
			ours = r.calls
		}
	}
	if theirs > 0 && ours > 0 && 3*ours > theirs {
		x.t.Errorf("a restart took %d calls, the Python agent's %d: wanted a third", ours, theirs)
	}
}

// hand gives both hosts to the other agent.
func (x *faults) hand(kind lab.AgentKind) {
	x.filtered.agent = kind
	x.startAgents(x.t, kind)
	x.inSync()
}

// vlans are the local VLANs of the first host's ports.
func (x *faults) vlans() map[string]string {
	text, err := x.l.Host(1).Switch().Vsctl(x.ctx, "--format=csv", "--no-headings", "--columns=name,tag", "list", "Port")
	x.must(err)
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, tag, _ := strings.Cut(strings.TrimSpace(line), ",")
		if tag != "[]" {
			out[name] = tag
		}
	}
	return out
}

func (x *faults) unchanged(vlans map[string]string) {
	if now := x.vlans(); !maps.Equal(vlans, now) {
		x.t.Errorf("local VLANs were %v and are %v", vlans, now)
	}
	x.row.note = fmt.Sprintf("%d local VLANs unchanged", len(vlans))
}
