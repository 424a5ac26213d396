// SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// clearing is how far a room is that clears away rules.
type clearing struct {
	settling map[string]time.Time // ports whose rules are to go, and since when the flows are there that filter instead
	cleared  bool
}

// done returns whether a room that clears away rules has nothing to do: the mark is on the bridge, or no port has a Linux bridge.
func (r *Room) done(w *world.World) bool {
	return r.cleared || w.RulesGone() || !w.AnyBridged()
}

// revalidation is how long the switch may take until its datapath does what flows say: max-revalidator is half a second unless it is told otherwise, and
// a busy host takes longer. Until then packets pass as they did while rules filtered them.
const revalidation = 5 * time.Second

// ready takes the ports that flows filter now: their rules go. It returns whether that is so of all ports.
func (r *Room) ready(w *world.World, now time.Time, applied func(id string) bool) bool {
	all, settling := true, map[string]time.Time{}
	for _, id := range w.PortIDs() {
		p := w.Port(id)
		switch {
		case !w.Bridged(p) || r.filter.Has(id):
			continue
		case w.InVLAN(p) && (p.Wiring.State != world.Wired || !applied(id)):
			all = false
			continue
		case w.InVLAN(p):
			since, known := r.settling[id]
			if !known {
				since = now
			}
			if now.Sub(since) < revalidation {
				all, settling[id] = false, since
				continue
			}
		}
		r.filter.Set(iptables.Port{ID: id, Kind: iptables.Absent})
		r.stale = true
	}
	r.settling = settling
	return all
}

// lines counts what is written.
func lines(c *iptables.Changes) int {
	n := strings.Count(c.Sets, "\n") + strings.Count(c.Unused, "\n")
	for _, text := range c.Rules {
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "*") && line != "COMMIT\n" {
				n++
			}
		}
	}
	return n
}
