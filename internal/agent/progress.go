// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Progress is how far the agent has come.
type Progress struct {
	// Idle: the switch is as wanted by what is known, and nothing is on its way to it.
	Idle bool
	// Complete: besides, everything has been told, and what nothing wants is gone.
	Complete bool
	// Missing says in sentences why it is not complete.
	Missing []string
}

// Why tells who wants a flow of a bridge, and why. It is for when [Agent.Run] has returned.
func (a *Agent) Why(bridge string, k openflow.Key) (owner world.Object, reason string, ok bool) {
	return a.dataplane.Owner(bridge, k)
}

// progress tells whoever wants to know.
func (a *Agent) progress() {
	if a.cfg.Progress == nil {
		return
	}
	blockers := gate.Blockers(a.facts(time.Now(), gate.All))
	p := Progress{Idle: gate.Open(blockers, gate.Idle)}
	if p.Complete = p.Idle && a.dataplane.Pruned() && !a.mustShut() && gate.Open(blockers, gate.Complete); !p.Complete {
		p.Missing, _ = gate.Details(blockers, gate.All)
	}
	a.cfg.Progress(p)
}
