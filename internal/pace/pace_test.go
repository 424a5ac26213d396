// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	now := time.Now()
	b := Backoff[string]{}
	if b.Waiting("a", now) || !b.Next().IsZero() {
		t.Error("waits without a failure")
	}
	for n, longest := range []time.Duration{Shortest, 2 * Shortest, 4 * Shortest, 8 * Shortest} {
		if got := b.Fail("a", now); got > longest || got < longest/2 || b["a"].Failed != n+1 {
			t.Errorf("failure %d: a pause of %s, want %s at most and half of it at least", n+1, got, longest)
		}
	}
	b.FailAtMost("b", now, Shortest)
	if got := b.FailAtMost("b", now, Shortest); got > Shortest {
		t.Errorf("a pause of %s, at most %s wanted", got, Shortest)
	}
	if !b.Waiting("a", now) || b.Waiting("a", b["a"].At) || !b.Next().Equal(b["b"].At) {
		t.Errorf("%v", b)
	}
	b.RetryNow(now)
	if b.Waiting("a", now) || b["a"].Failed != 4 {
		t.Errorf("%v", b)
	}
	for range 100 {
		b.Fail("a", now)
	}
	if pause := b["a"].At.Sub(now); pause > Longest || pause < Longest/2 {
		t.Errorf("after many failures a pause of %s", pause)
	}
	if got := b.FailCall("a", now, false); got > LongestCall || got < LongestCall/2 {
		t.Errorf("a call that nobody answers waits %s", got)
	}
	if got := b.FailCall("a", now, true); got <= LongestCall || got > Longest {
		t.Errorf("a call that is refused again and again waits %s", got)
	}
	b.Forget("a")
	if _, ok := b["a"]; ok {
		t.Error("not forgotten")
	}
}

func TestBucket(t *testing.T) {
	now := time.Now()
	var b Bucket
	for i := range BucketSize {
		if !b.Take(now) {
			t.Fatalf("no token %d", i)
		}
	}
	if b.Take(now) || b.Take(now.Add(BucketFill/2)) {
		t.Error("a token too many")
	}
	if next := b.Next(); next.Sub(now) != BucketFill || !b.Take(next) || b.Take(next) {
		t.Errorf("the next token after %s", next.Sub(now))
	}
	got := 0
	for later := now.Add(time.Hour); b.Take(later); {
		got++
	}
	if got != BucketSize {
		t.Errorf("%d tokens after an hour", got)
	}
}
