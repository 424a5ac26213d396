// SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// done returns whether a room that clears away rules has nothing to do: the mark is on the bridge, or no port has a Linux bridge.
func (r *Room) done(w *world.World) bool {
	return r.cleared || w.RulesGone() || !w.AnyBridged()
}

// ready takes the ports that flows filter now: their rules go. It returns whether that is so of all ports.
func (r *Room) ready(w *world.World, applied func(id string) bool) bool {
	all := true
	for _, id := range w.PortIDs() {
		p := w.Port(id)
		switch {
		case !w.Bridged(p) || r.filter.Has(id):
		case w.InVLAN(p) && (p.Wiring.State != world.Wired || !applied(id)):
			all = false
		default:
			r.filter.Set(iptables.Port{ID: id, Kind: iptables.Absent})
			r.stale = true
		}
	}
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
