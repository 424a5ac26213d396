// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// foundMeters are the meters that a bridge had when it was connected, and that nothing wanted.
type foundMeters struct {
	ids   []uint32
	until time.Time // when they have had long enough to be used
}

// meterGrace is how long a meter that was found may be without a flow. Whoever makes a meter has a flow for it in mind; an agent
// that dies between the two leaves one that nobody will use.
const meterGrace = time.Minute

// sweepMeters removes the meters that were found and that no flow has used for long enough.
func (a *Agent) sweepMeters() {
	for _, b := range a.wiring.bridges {
		if len(b.found.ids) == 0 || !a.swept || b.conn == nil || !b.tracker.Known() {
			continue
		}
		if time.Now().Before(b.found.until) {
			a.wakeUp(b.found.until)
			continue
		}
		users, stale := meterUsers(b), b.meters.Stale()
		b.meters.Sweep(slices.DeleteFunc(b.found.ids, func(id uint32) bool {
			_, used := users[id]
			return used || !slices.Contains(stale, id)
		}))
		b.found.ids = nil
		a.wakeUp(time.Now())
	}
}

// abandoned lists the meters that nothing wants and only flows of agents use.
func abandoned(b *bridge) []uint32 {
	stale := b.meters.Stale()
	if len(stale) == 0 {
		return nil
	}
	agents := meterUsers(b)
	return slices.DeleteFunc(stale, func(id uint32) bool { return !agents[id] })
}

// meterUsers are the meters that flows use, and whether all of these flows are agents'.
func meterUsers(b *bridge) map[uint32]bool {
	agents := map[uint32]bool{}
	for known := range b.tracker.All() {
		f, err := known.Have.Flow()
		if err != nil {
			continue
		}
		for _, action := range f.Actions {
			if m, ok := action.(openflow.Meter); ok {
				was, seen := agents[uint32(m)]
				agents[uint32(m)] = leftover(known.Have) && (was || !seen)
			}
		}
	}
	return agents
}
