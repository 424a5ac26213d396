// SPDX-License-Identifier: Apache-2.0

package core

import (
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/gate"
)

// progress works out how far the agent is, for whoever wants to know.
func (a *Core) progress() {
	if !a.cfg.Progress {
		return
	}
	blockers := gate.Blockers(a.facts(a.turn.now(), gate.All))
	p := effect.Progress{Idle: gate.Open(blockers, gate.Idle)}
	if p.Complete = p.Idle && a.dataplane.Pruned() && !a.mustShut() && gate.Open(blockers, gate.Complete); !p.Complete {
		p.Missing, _ = gate.Details(blockers, gate.All)
	}
	a.turn.progress = &p
}
