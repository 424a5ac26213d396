// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"errors"
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	now, broken := time.Now(), errors.New("no database")
	var b Breaker
	if b.Observe(nil, now) || b.Open() || !b.Calm(now) {
		t.Error("opens or closes without a reason")
	}
	b.Observe(broken, now)
	first := b.Deadline()
	if b.Observe(broken, now); !b.Open() || b.Probe(now) || !b.Deadline().Equal(first) || first.Sub(now) > Shortest {
		t.Errorf("open %v, the first probe after %s", b.Open(), first.Sub(now))
	}
	for n := range 20 {
		if now = b.Deadline(); !b.Probe(now) || b.Probe(now) || !b.Deadline().IsZero() {
			t.Fatalf("probe %d: not one at a time", n)
		}
		b.Probed(true, false, now)
	}
	if pause := b.Deadline().Sub(now); pause > LongestCall || pause < LongestCall/2 {
		t.Errorf("after many failures a pause of %s", pause)
	}
	// It goes and comes: the pauses go on as they were.
	if !b.Observe(nil, now) || b.Open() || b.Calm(now) {
		t.Error("not closed")
	}
	if b.Observe(broken, now); b.Deadline().Sub(now) < LongestCall/2 {
		t.Errorf("opened again at once, it probes after %s", b.Deadline().Sub(now))
	}
	b.Observe(nil, now)
	if now = now.Add(Calm + LongestCall); !b.Calm(now) || b.Observe(nil, now) {
		t.Error("not calm")
	}
	if b.Observe(broken, now); b.Deadline().Sub(now) > Shortest {
		t.Errorf("after a calm time it probes after %s", b.Deadline().Sub(now))
	}
	b.Probed(true, true, now)
	b.Observe(nil, now)
	// A call that takes long is watched, ever more rarely.
	b.Watch(10*time.Second, now)
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		if got := b.Deadline().Sub(now); got != pause {
			t.Errorf("a probe after %s, want %s", got, pause)
		}
		if now = b.Deadline(); !b.Probe(now) {
			t.Error("no probe")
		}
		b.Probed(false, false, now)
	}
	if b.Watch(10*time.Second, now); b.Deadline().Sub(now) != Calm {
		t.Errorf("the next call that takes long is looked at after %s", b.Deadline().Sub(now))
	}
	now = now.Add(Calm + 1)
	b.Watch(10*time.Second, now)
	if got := b.Deadline().Sub(now); got != 10*time.Second {
		t.Errorf("a call that takes long after a calm time is looked at after %s", got)
	}
}
