// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Progress is how far the agent has come.
type Progress struct {
	// Idle: the switch is as wanted by what is known, and nothing is on its way to it.
	Idle bool
	// Complete: besides, everything has been told, and what nothing wants is gone.
	Complete bool
	// Missing says what it waits for, when it is not complete.
	Missing []string
}

// Why tells who wants a flow of a bridge, and why. It is for when [Agent.Run] has returned.
func (a *Agent) Why(bridge string, k openflow.Key) (owner world.Object, reason string, ok bool) {
	if b := a.wiring.bridges[bridge]; b != nil {
		return b.tracker.Owner(k)
	}
	return world.Object{}, "", false
}

// progress tells whoever wants to know.
func (a *Agent) progress() {
	if a.cfg.Progress == nil {
		return
	}
	p := Progress{Idle: a.idle()}
	shut := !a.cfg.World.Filter || !a.cfg.World.FailClosed || a.world.Closed()
	if p.Complete = p.Idle && a.swept && shut && a.inSync(); !p.Complete {
		p.Missing = a.waitsFor()
	}
	a.cfg.Progress(p)
}

func (a *Agent) idle() bool {
	if !a.started || !a.switchUp || a.world.Unsettled() || a.wiring.applying || a.world.View.Seq() < a.wiring.seq || len(a.wiring.unsettled)+len(a.tracking.fresh) > 0 {
		return false
	}
	for name, b := range a.wiring.bridges {
		switch {
		case a.world.View.BridgeByName(name) == nil:
			continue // nothing can be done about it
		case b.conn == nil, !b.tracker.Known(), b.watch.dumping, len(b.tracker.Changes()) > 0:
			return false
		}
		if in, out := b.meters.Changes(); len(in)+len(out) > 0 {
			return false
		}
	}
	return true
}

// waitsFor lists what keeps the agent from being done.
func (a *Agent) waitsFor() []string {
	var out []string
	say := func(is bool, what string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(what, args...))
		}
	}
	say(a.versions == nil, "no neutron-server has answered")
	say(a.ports.asking > 0 || a.filters.asking > 0, "questions to the server that are not answered")
	say(!a.world.Complete(), "ports, security groups or members that the server has not told about")
	say(len(a.ports.changed) > 0, "%d ports whose status is not settled", len(a.ports.changed))
	for _, o := range slices.SortedFunc(maps.Keys(a.wiring.unsettled), world.Object.Compare) {
		say(true, "rows of %s", o)
	}
	for _, name := range a.world.Bridges() {
		switch b := a.bridge(name); {
		case a.world.View.BridgeByName(name) == nil:
			say(true, "bridge %s, which does not exist", name)
		case b.conn == nil || !b.tracker.Known():
			say(true, "bridge %s, which cannot be read", name)
		}
	}
	return out
}
