// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/report"
)

// answeredAll returns whether the server has answered about everything that ports here need.
func answeredAll(a *Agent) bool {
	ports, items := a.world.Unspoken()
	return ports+items == 0
}

// inSyncBefore is what the agent called in sync before there was a gate: one condition, spelled out, but for that it notes nothing.
func inSyncBefore(a *Agent, now time.Time) bool {
	owes := func(e extension.Member) bool { g, ok := e.Extension.(*guarded); return ok && g.owes }
	waits := func(e extension.Member) bool { return len(e.Missing())+len(e.Calls()) > 0 }
	if a.versions == nil || !a.switchUp || a.pulls.InFlight() > 0 || a.reports.Stats() != (report.Stats{}) || a.dataplane.InFlight() ||
		!a.resyncing.at.IsZero() || !answeredAll(a) ||
		len(a.extensions.calls.running) > 0 || slices.ContainsFunc(a.extensions.Set, waits) || slices.ContainsFunc(a.extensions.Set, owes) {
		return false
	}
	for _, t := range a.cfg.World.TunnelTypes {
		if !a.world.Tunnels.Listed(t) {
			return false
		}
	}
	if !a.cfg.World.L2Population || !a.syncedAt.IsZero() && now.Sub(a.syncedAt) > a.cfg.FDBGrace {
		return true
	}
	for _, s := range a.world.Segments.All() {
		if s.Tunnelled() && !s.Told() {
			return false
		}
	}
	return true
}

// watchGate compares the gate with what was called in sync before, whenever the loop decides what to prune: it is never open for that
// where the agent was not in sync, and it is no stricter than before for the snapshot. Being in sync, as people are told, is more than
// that everything is known, and whoever asks for more facts sees the same.
func watchGate(t *testing.T, a *Agent) {
	a.contained.probe = func(where string) {
		if where != "removing what is left over" {
			return
		}
		now := time.Now()
		syncedAt, wakeAt, swept := a.syncedAt, a.wakeAt, a.dataplane.Pruned()
		before, all := inSyncBefore(a, now), gate.Blockers(a.facts(now, gate.All))
		pruned, complete := a.open(gate.Prune), a.open(gate.Complete)
		if a.syncedAt != syncedAt || a.wakeAt != wakeAt || a.dataplane.Pruned() != swept {
			t.Error("collecting facts writes")
		}
		if pruned && !before {
			t.Error("flows are pruned though the agent is not in sync")
		}
		if complete != before || complete != gate.Open(all, gate.Complete) || pruned != gate.Open(all, gate.Prune) {
			t.Errorf("in sync before: %v; prune: %v, complete: %v, %+v", before, pruned, complete, all)
		}
		if gate.Open(all, gate.InSync) && (a.syncedAt.IsZero() || !gate.Open(all, gate.Ready)) {
			t.Errorf("in sync, but not noted or not ready: %+v", all)
		}
	}
}
