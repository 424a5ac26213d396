// SPDX-License-Identifier: Apache-2.0

package core

import (
	"math/rand/v2"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// resyncing is where the check of what is known against the server stands.
//
// After a broker's restart every host of a region has missed messages at the same moment, so what is known is checked with
// moderation: from a random moment within spread on, one question about ports and one about filters at a time, and not
// more of them than the bucket lets through. What is known stays in force meanwhile. What is not known, such as a port that
// was just plugged in, is not part of a check: it is asked for and reported at once, whatever else goes on.
type resyncing struct {
	room
	rnd    *rand.Rand
	at     time.Time              // of the next check; zero when none is due
	bucket pace.Bucket            // of tokens for calls of a check, see packages pull and report
	losses pace.Backoff[struct{}] // messages that could not be taken
	count  uint64                 // checks so far
}

// spread is the time over which hosts that missed something at the same moment begin to check. It leaves most of the five
// seconds in which what was missed has to be in place.
const spread = 2 * time.Second

// soon has everything checked, if something may have been missed.
func (r *resyncing) soon(missed bool) {
	if missed && r.at.IsZero() {
		r.at = r.now().Add(time.Duration(r.rnd.Int64N(int64(spread))))
		r.wakeUp(r.at)
	}
}

// lost takes that a message was lost: everything is checked, ever more rarely if that goes on.
func (r *resyncing) lost() {
	now := r.now()
	if last, ok := r.losses[struct{}{}]; ok && now.Sub(last.At) > pace.Calm {
		r.losses.Forget(struct{}{})
	}
	r.losses.Fail(struct{}{}, now)
	if r.at.IsZero() {
		r.at = r.losses[struct{}{}].At
		r.wakeUp(r.at)
	}
}

// pending returns whether a check is due, now or later.
func (r *resyncing) pending() bool { return !r.at.IsZero() }

// due takes the check that is due now, and returns whether there is one.
func (r *resyncing) due() bool {
	if r.at.IsZero() {
		return false
	}
	if r.now().Before(r.at) {
		r.wakeUp(r.at)
		return false
	}
	r.at = time.Time{}
	r.count++
	return true
}
