// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"testing"
	"time"
)

func TestLimits(t *testing.T) {
	l := Limits[string]{Every: 100 * time.Millisecond, Burst: 3}
	now := time.Unix(1000, 0)
	take := func(k string, times int) (taken int) {
		for range times {
			if l.Take(k, now) {
				taken++
			}
		}
		return taken
	}
	if n := take("a", 10); n != 3 {
		t.Errorf("a burst of %d, want 3", n)
	}
	if n := take("b", 2); n != 2 {
		t.Errorf("another key got %d of 2: one that asks too often must not cost the others", n)
	}
	now = now.Add(250 * time.Millisecond)
	if n := take("a", 10); n != 2 {
		t.Errorf("%d after a quarter of a second, want 2", n)
	}
	now = now.Add(time.Hour)
	if n := take("a", 10); n != 3 {
		t.Errorf("%d after a long time, want the burst", n)
	}
}

func TestLimitsForgetQuietKeys(t *testing.T) {
	l := Limits[int]{Every: time.Second, Burst: 2}
	now := time.Unix(1000, 0)
	for i := range 3 * manyKeys {
		now = now.Add(10 * time.Millisecond)
		if !l.Take(i, now) {
			t.Fatal("a new key is refused")
		}
	}
	if len(l.full) > manyKeys {
		t.Errorf("%d keys are kept, want at most %d", len(l.full), manyKeys)
	}
}

// TestLimitsKeepWhoIsBusy: keys are forgotten when there are many, and then only those whose burst is full again.
func TestLimitsKeepWhoIsBusy(t *testing.T) {
	l := Limits[int]{Every: time.Second, Burst: 2}
	now := time.Unix(1000, 0)
	l.Take(0, now)
	now = now.Add(time.Hour)
	for i := 1; i < manyKeys-1; i++ {
		l.Take(i, now)
	}
	if len(l.full) != manyKeys-1 {
		t.Fatalf("%d keys are kept, though they are few", len(l.full))
	}
	l.Take(manyKeys, now)
	if _, kept := l.full[0]; kept || len(l.full) != manyKeys-1 {
		t.Errorf("%d keys are kept, the quiet one among them: %v", len(l.full), kept)
	}
}
