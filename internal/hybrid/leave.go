// SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// linger is how long the rules of a port stay that has left its VLAN: until ovs-vswitchd has read that, it has not. A busy one took 80 ms.
const linger = 500 * time.Millisecond

// leave forgets the ports that have left their VLANs.
func (r *Room) leave(w *world.World, now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(r.leaving)) {
		switch since := r.leaving[id]; {
		case w.InVLAN(w.Port(id)):
			r.leaving[id] = time.Time{}
			continue
		case since.IsZero():
			r.leaving[id] = now
			continue
		case now.Sub(since) < linger:
			continue
		}
		r.filter.Delete(id)
		delete(r.leaving, id)
		delete(r.admitted, id)
		r.stale = true
		r.guard(w, id)
	}
}
