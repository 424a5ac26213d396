// SPDX-License-Identifier: Apache-2.0

// Package pace holds every pause and every limit: backoff after failures, a bucket of tokens and a circuit breaker.
//
// Nothing in it waits or reads the clock. Its types are given the time and return when to try next; their owner has the loop
// wake up then.
package pace

import (
	"math/rand/v2"
	"time"
)

// Backoff spaces out attempts at what has failed, each thing on its own, so that a bad one does not hold up the others.
type Backoff[K comparable] map[K]Attempt

// Attempt is the next attempt at something that has failed.
type Attempt struct {
	Failed int // times in a row
	At     time.Time
}

// Shortest is the longest pause after the first failure, Longest is the longest of all; it doubles in between. Pauses are of
// random length, from half of that on, because what failed here failed on other hosts at the same moment. What failed together
// is tried again together.
const (
	Shortest = 100 * time.Millisecond
	Longest  = 30 * time.Second
)

// Fail records a failure and returns how long the next attempt waits.
func (b Backoff[K]) Fail(k K, now time.Time) time.Duration { return b.FailAtMost(k, now, Longest) }

// FailAtMost is Fail with another longest pause.
func (b Backoff[K]) FailAtMost(k K, now time.Time, longest time.Duration) time.Duration {
	before := b[k]
	pause := min(Shortest<<min(before.Failed, 20), longest)
	pause -= time.Duration(rand.NewPCG(uint64(now.UnixNano()), 0).Uint64() % uint64(pause/2))
	b[k] = Attempt{before.Failed + 1, now.Add(pause)}
	return pause
}

// LongestCall is the longest pause before neutron-server is called again that did not answer. It is shorter than others: one call asks
// for many things, only hosts on which something has changed call, and what changed has to be in place soon after an outage.
const LongestCall = 4 * time.Second

// FailCall is Fail for a call to neutron-server. What the server refuses it will refuse again: only then the pause grows beyond
// LongestCall.
func (b Backoff[K]) FailCall(k K, now time.Time, refused bool) time.Duration {
	if refused {
		return b.Fail(k, now)
	}
	return b.FailAtMost(k, now, LongestCall)
}

// Waiting says whether it is too early for another attempt.
func (b Backoff[K]) Waiting(k K, now time.Time) bool {
	a, ok := b[k]
	return ok && now.Before(a.At)
}

// RetryNow makes all attempts due: what they failed for is over.
func (b Backoff[K]) RetryNow(now time.Time) {
	for k, a := range b {
		b[k] = Attempt{a.Failed, now}
	}
}

// Forget ends the pauses of something that did not fail, or is gone.
func (b Backoff[K]) Forget(k K) { delete(b, k) }

// Next returns the time of the earliest attempt, or zero.
func (b Backoff[K]) Next() time.Time {
	var first time.Time
	for _, a := range b {
		if first.IsZero() || a.At.Before(first) {
			first = a.At
		}
	}
	return first
}

// Bucket holds tokens: BucketSize at first, and then one more every BucketFill.
type Bucket struct {
	full time.Time // when it will be full again
}

// A full bucket has BucketSize tokens, and gets one every BucketFill.
const (
	BucketSize = 10
	BucketFill = 100 * time.Millisecond
)

// Take takes a token if there is one.
func (b *Bucket) Take(now time.Time) bool {
	if now.Before(b.Next()) {
		return false
	}
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(BucketFill)
	return true
}

// Next returns from when on there is a token.
func (b *Bucket) Next() time.Time { return b.full.Add(-(BucketSize - 1) * BucketFill) }
