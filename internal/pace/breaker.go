// SPDX-License-Identifier: Apache-2.0

package pace

import "time"

// Breaker stops calls to a server that fails all of them for one reason, and says when to probe whether the reason is over.
// Several servers may answer, and one of them be broken: the breaker then opens and closes in turns, and the pauses grow as if it
// had stayed open.
type Breaker struct {
	open, probing bool
	at            time.Time     // of the next probe
	pause         time.Duration // before the probe after a good one
	good          time.Time     // when the last good one ended
	failed        Backoff[struct{}]
}

// Calm is how long there has to be no failure for the pauses to begin anew.
const Calm = time.Minute

// Open says whether calls have to wait.
func (b *Breaker) Open() bool { return b.open }

// Observe takes the outcome of any call, nil or an error of the one reason, and says whether it closed the breaker.
func (b *Breaker) Observe(err error, now time.Time) (closed bool) {
	switch {
	case err != nil && !b.open:
		b.open = true
		b.fail(now, false)
	case err == nil && b.open:
		b.open = false
		return true
	case b.Calm(now):
		b.failed.Forget(struct{}{})
	}
	return false
}

// Calm says whether the last failure is long over.
func (b *Breaker) Calm(now time.Time) bool { return !b.open && now.Sub(b.failed[struct{}{}].At) > Calm }

// Watch plans a probe because a call has begun that may take long: after a time, then ever more rarely. Calls that follow each other, as at a server that
// has much to do, do not begin anew.
func (b *Breaker) Watch(after time.Duration, now time.Time) {
	if b.pause < after || now.Sub(b.good) > Calm {
		b.pause = after
	}
	b.at = now.Add(b.pause)
}

// Probe says whether to probe now. The outcome has to be given to Probed.
func (b *Breaker) Probe(now time.Time) bool {
	if b.probing || now.Before(b.at) {
		return false
	}
	b.probing = true
	return true
}

// Probed takes that a probe has ended.
func (b *Breaker) Probed(failed, refused bool, now time.Time) {
	b.probing = false
	if failed {
		b.fail(now, refused)
		return
	}
	b.pause, b.good = min(2*b.pause, Calm), now
	b.at = now.Add(b.pause)
}

// Deadline returns the time of the next probe; zero while one is on its way.
func (b *Breaker) Deadline() time.Time {
	if b.probing {
		return time.Time{}
	}
	return b.at
}

func (b *Breaker) fail(now time.Time, refused bool) {
	if b.failed == nil {
		b.failed = Backoff[struct{}]{}
	}
	b.at = now.Add(b.failed.FailCall(struct{}{}, now, refused))
}
