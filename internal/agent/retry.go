// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// retries spaces out attempts at what has failed, each thing on its own, so that a bad one does not hold up the others.
type retries[K comparable] map[K]retry

type retry struct {
	failed int
	at     time.Time // of the next attempt
}

// The longest pause after the first failure, and the longest of all; it doubles in between. Questions to the server wait less:
// they are many in one call, only hosts on which something has changed ask, and what changed shall be in place soon after an
// outage. Pauses are of random length, from half of that on, since what failed here failed on other hosts at the same
// moment; what failed together is tried again together.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second
	askMax   = 4 * time.Second
)

// fail notes a failure and returns how long the next attempt waits.
func (r retries[K]) fail(k K, now time.Time) time.Duration { return r.failed(k, now, retryMax) }

// unanswered is fail for a question that the server did not answer, or not as it should: nil for an answer that names it as
// failed. What the server refuses it will refuse again.
func (r retries[K]) unanswered(k K, now time.Time, err error) time.Duration {
	if err == nil || refused(err) {
		return r.failed(k, now, retryMax)
	}
	return r.failed(k, now, askMax)
}

func (r retries[K]) failed(k K, now time.Time, most time.Duration) time.Duration {
	before := r[k]
	wait := min(retryMin<<min(before.failed, 20), most)
	wait -= time.Duration(rand.NewPCG(uint64(now.UnixNano()), 0).Uint64() % uint64(wait/2))
	r[k] = retry{before.failed + 1, now.Add(wait)}
	return wait
}

// refused says whether the server stumbles over what was asked. Without its database it stumbles over everything, and for no
// reason of ours.
func refused(err error) bool {
	var remote *messaging.RemoteError
	return errors.As(err, &remote) && !strings.HasPrefix(remote.Class, "DB")
}

// waiting says whether it is too early for another attempt.
func (r retries[K]) waiting(k K, now time.Time) bool {
	e, ok := r[k]
	return ok && now.Before(e.at)
}

// hasten makes the next attempts due: what they failed for is over.
func (r retries[K]) hasten(now time.Time) {
	for k, e := range r {
		r[k] = retry{e.failed, now}
	}
}

func (r retries[K]) forget(k K) { delete(r, k) }

// next is the time of the earliest attempt that waits, or zero.
func (r retries[K]) next() time.Time {
	var first time.Time
	for _, e := range r {
		if first.IsZero() || e.at.Before(first) {
			first = e.at
		}
	}
	return first
}
