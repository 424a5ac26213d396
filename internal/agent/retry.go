// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// retries spaces out attempts at what has failed, each thing on its own, so that a bad one does not hold up the others.
type retries[K comparable] map[K]retry

type retry struct {
	failed int
	at     time.Time // of the next attempt
}

// The pause after the first failure, and the longest; it doubles in between.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second
)

// fail notes a failure and returns how long the next attempt waits.
func (r retries[K]) fail(k K, now time.Time) time.Duration {
	before := r[k]
	wait := min(retryMin<<min(before.failed, 20), retryMax)
	r[k] = retry{before.failed + 1, now.Add(wait)}
	return wait
}

// waiting says whether it is too early for another attempt.
func (r retries[K]) waiting(k K, now time.Time) bool {
	e, ok := r[k]
	return ok && now.Before(e.at)
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
