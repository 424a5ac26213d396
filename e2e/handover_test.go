// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// handOver gives both hosts to the Python agent and back, twice. What each agent leaves is compared with what it makes on a
// switch without flows, but for what two starts of an agent may number otherwise. While the Python agent is in charge it
// goes through some of the faults, for its figures. At a restart of its own it replaces what it finds a hundred flows at a time, and numbers
// conjunctions anew: packets of members of remote groups can be lost in between.
func (x *faults) handOver() {
	vlans := x.vlans()
	fresh := map[lab.AgentKind]map[string][]string{}
	left := map[lab.AgentKind]map[string][]string{}
	takes := func(name string, kind lab.AgentKind) {
		x.fault(name, unharmed, func() {
			x.hand(kind)
			x.unchanged(vlans)
			left[kind] = x.meaning(x.l.Host(1))
			x.as(fresh[kind], left[kind])
		})
	}
	for round := range 2 {
		takes("handed to the Python agent", lab.Python)
		if x.agent == lab.Python {
			x.fault("Python agents stopped and started", figures, func() { x.restart(false) })
		}
		if round == 0 && x.agent == lab.Python {
			x.fault("agents killed -9 and started", figures, func() { x.restart(true) })
			x.fault("ovs-vswitchd killed -9", figures, x.switchDies)
			x.fault("ovs-vswitchd killed -9, broker down", figures, func() { x.withoutBroker(x.switchDies) })
			// After that it never gets the other host's forwarding entries; started anew it does.
			x.fault("Python agent on an empty switch", figures, func() {
				x.fromNothing()
				fresh[lab.Python] = x.meaning(x.l.Host(1))
				x.as(fresh[lab.Python], left[lab.Python])
			})
		}
		takes("handed back to Patchbay", lab.Patchbay)
	}
	x.fault("Patchbay without memory on an empty switch", guarded, func() {
		x.fromNothing()
		fresh[lab.Patchbay] = x.meaning(x.l.Host(1))
		x.as(fresh[lab.Patchbay], left[lab.Patchbay])
	})
	x.third()
}

// fromNothing starts the first host's agent without memory on a switch without flows.
func (x *faults) fromNothing() {
	h := x.l.Host(1)
	x.must(h.StopAgent(x.ctx))
	if x.agent == lab.Patchbay {
		x.must(os.Remove(snapshotOf(h)))
	}
	x.must(h.Switch().KillVswitchd(x.ctx))
	x.must(h.Switch().StartVswitchd(x.ctx))
	done := x.pythonSays(x.t, pythonTakenOver, h)
	x.must(h.LaunchAgent(x.ctx, x.agent, filtering))
	if x.agent == lab.Python {
		done()
		x.steady(h, pythonPause)
	} else if !x.eventually(startTime, func() bool { _, err := os.Stat(snapshotOf(h)); return err == nil }) {
		x.t.Errorf("the agent is not in sync after %v", startTime) // it writes its memory when it knows everything
	}
	x.inSync()
}

// as holds what a hand-over left against what a fresh start of the same agent makes, where both are known.
func (x *faults) as(fresh, left map[string][]string) {
	if fresh == nil || left == nil {
		return
	}
	if !same(fresh, left) {
		x.t.Errorf("flows differ from those of a fresh start:\n%s", difference(fresh, left))
		return
	}
	x.row.note = strings.TrimSpace(fmt.Sprintf("%s %d flows as of a fresh start", x.row.note, count(left)))
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
	done := x.pythonSays(x.t, pythonTakenOver, x.l.Hosts()...)
	x.startAgents(x.t, kind)
	if kind == lab.Python {
		done()
	}
	x.inSync()
}

// pythonTakenOver is what the Python agent logs when it has dealt with all ports after its start. It asks nothing for longer than
// any fixed time in between on a busy machine.
const pythonTakenOver = "cleanup stale flows. Elapsed"

// pythonPause is how long the Python agent may do nothing to the flows before it is done with them.
const pythonPause = 20 * time.Second

// steady waits until nothing has happened to a host's flows for some time.
func (x *faults) steady(h *lab.Host, d time.Duration) {
	last, since := x.meaning(h), time.Now()
	if !x.eventually(startTime, func() bool {
		x.wait(2 * time.Second)
		if now := x.meaning(h); !same(last, now) {
			last, since = now, time.Now()
		}
		return time.Since(since) > d
	}) {
		x.t.Errorf("flows of %s still change after %v", h.Name(), startTime)
	}
}

// startTime is what an agent may take for that, with many ports on a busy machine.
const startTime = 10 * time.Minute

// pythonSays returns a function that waits until the Python agents of hosts have logged something from now on.
func (c *cloud) pythonSays(t *testing.T, what string, hosts ...*lab.Host) func() {
	t.Helper()
	said := func(h *lab.Host) int { return strings.Count(tail(h.AgentLog(lab.Python), 0), what) }
	before := make([]int, len(hosts))
	for i, h := range hosts {
		before[i] = said(h)
	}
	return func() {
		for i, h := range hosts {
			if !c.eventually(startTime, func() bool { c.wait(time.Second); return said(h) > before[i] }) {
				t.Errorf("the Python agent on %s has not said %q after %v", h.Name(), what, startTime)
			}
		}
	}
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
	x.row.note = fmt.Sprintf("local VLANs of %d interfaces unchanged", len(vlans))
}
