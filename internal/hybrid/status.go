// SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"fmt"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Busy returns whether rules may not be as wanted yet.
func (r *Room) Busy(w *world.World) bool {
	if r.clears && (r.failure != "" || r.done(w)) {
		return false
	}
	return r.phase != idle || r.stale || r.members || len(r.leaving)+len(r.settling)+len(r.owed) > 0
}

// Faults returns why rules do not filter as they should, and why ports have none, in sentences. Rules that could not be cleared away are none: they
// filter beside flows.
func (r *Room) Faults() []string {
	if r.clears {
		return nil
	}
	out := slices.Clone(r.faults)
	if r.failure != "" {
		out = append(out, "iptables: "+r.failure)
	}
	for _, id := range r.filter.Ports() {
		if why := r.filter.Unfit(id); why != "" {
			out = append(out, fmt.Sprintf("port %s does not have the iptables rules that it should have: %s", id, why))
		}
	}
	return out
}

// Lines returns the rules in the chains of a port.
func (r *Room) Lines(id string) []iptables.Line { return r.filter.Lines(id) }

// Written returns how many lines have been written since the start.
func (r *Room) Written() uint64 { return r.written }
