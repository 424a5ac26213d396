// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// resyncing is where the check of what is known against the server stands. It is owned by the loop.
//
// After a broker's restart every host of a region has missed news at the same moment, so what is known is checked with
// moderation: from a random moment within spread on, one question about ports and one about filters at a time, and not
// more of them than the bucket lets through. What is known stays in force meanwhile. What is not known, such as a port that
// was just plugged in, is not part of a check: it is asked for and reported at once, whatever else goes on.
type resyncing struct {
	at     time.Time   // of the next check; zero when none is due
	bucket pace.Bucket // of tokens for calls of a check, see packages pull and report
}

// spread is the time over which hosts that missed something at the same moment begin to check. It leaves most of the five
// seconds in which what was missed has to be in place.
const spread = 2 * time.Second

// resync has everything checked, after something may have been missed.
func (a *Core) resync() {
	if a.resyncing.at.IsZero() {
		a.resyncing.at = a.turn.now().Add(time.Duration(a.rnd.Int64N(int64(spread))))
		a.turn.wakeUp(a.resyncing.at)
	}
}

// beginResync begins the check that is due.
func (a *Core) beginResync() {
	if a.resyncing.at.IsZero() {
		return
	}
	if a.turn.now().Before(a.resyncing.at) {
		a.turn.wakeUp(a.resyncing.at)
		return
	}
	a.resyncing.at = time.Time{}
	a.seen.totals.Resyncs++
	a.world.Doubt()
	a.extensions.resync()
	a.dataplane.PruneAgain() // what is not confirmed goes then
	a.refreshNetworks()
}

// refreshNetworks has the server send all forwarding entries again.
func (a *Core) refreshNetworks() {
	if !a.cfg.World.L2Population {
		return
	}
	a.syncedAt = time.Time{}
	var networks []world.SegmentKey
	for _, s := range a.world.Segments.All() {
		if s.Tunnelled() {
			networks = append(networks, s.Key)
		}
	}
	a.reports.Resync(networks...)
}
