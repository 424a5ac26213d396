// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/gate"
)

// answeredAll returns whether the server has answered about everything that ports here need.
func answeredAll(a *Agent) bool {
	ports, items := a.world().Unspoken()
	return ports+items == 0
}

// inSyncBefore is what the agent called in sync before there was a gate: one condition, spelled out.
func inSyncBefore(f gate.Facts) bool {
	busy := func(e gate.Extension) bool { return e.Waits > 0 || e.Failed }
	return f.Registered && f.SwitchUp && !f.RoundRunning && f.Calls+f.Reports+f.Refresh+f.Ports+f.Groups+f.Entries+len(f.TunnelTypes) == 0 && !f.ResyncDue &&
		!slices.ContainsFunc(f.Extensions, busy)
}

// watchGate compares the gate with what was called in sync before, whenever the loop decides what to prune: it is never open for that
// where the agent was not in sync, and it is no stricter than before for the snapshot. Being in sync, as people are told, is more than
// that everything is known, and whoever asks for more facts sees the same.
func watchGate(t *testing.T, a *Agent) {
	a.cfg.probe.f = func(where string) {
		if where != "removing what is left over" {
			return
		}
		v := a.view()
		syncedAt, wakeAt, swept := v.SyncedAt(), v.NextStep(), v.Dataplane.Pruned()
		facts := v.Facts(gate.All)
		before, all := inSyncBefore(facts), gate.Blockers(facts)
		pruned, complete := a.open(gate.Prune), a.open(gate.Complete)
		if v.SyncedAt() != syncedAt || v.NextStep() != wakeAt || v.Dataplane.Pruned() != swept {
			t.Error("collecting facts writes")
		}
		if pruned && !before {
			t.Error("flows are pruned though the agent is not in sync")
		}
		if complete != before || complete != gate.Open(all, gate.Complete) || pruned != gate.Open(all, gate.Prune) {
			t.Errorf("in sync before: %v; prune: %v, complete: %v, %+v", before, pruned, complete, all)
		}
		if gate.Open(all, gate.InSync) && (syncedAt.IsZero() || !gate.Open(all, gate.Ready)) {
			t.Errorf("in sync, but not noted or not ready: %+v", all)
		}
	}
}
