// SPDX-License-Identifier: Apache-2.0

package zones

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
)

var (
	start = time.Unix(1_700_000_000, 0)
	errNo = errors.New("no")
)

func TestFlush(t *testing.T) {
	z := New()
	z.Allocated(2)
	z.Allocated(1)
	if got := z.ToFlush(start); !slices.Equal(got, []uint16{1, 2}) || z.Pending() != 2 || !z.Deadline(start).IsZero() {
		t.Errorf("%v, %+v", got, z)
	}
	if z.Flushed(1, nil, start) || z.Unflushed(1) {
		t.Error("a flush that succeeds at once recovers from nothing")
	}
	z.Flushed(2, errNo, start)
	if got := z.ToFlush(start); len(got) != 0 || !z.Unflushed(2) || !slices.Equal(z.Failed(), []uint16{2}) {
		t.Errorf("no pause after a failure: %v, %+v", got, z)
	}
	next := z.Deadline(start)
	if got := z.ToFlush(next); !next.After(start) || !slices.Equal(got, []uint16{2}) || !z.Deadline(next).IsZero() {
		t.Errorf("next at %s: %v", next, got)
	}
	if !z.Flushed(2, nil, next) || z.Pending() != 0 || len(z.Failed()) != 0 {
		t.Errorf("%+v", z)
	}
}

func TestChangedFilters(t *testing.T) {
	z := New()
	z.FiltersChanged(3)
	taken := z.TakeChanged()
	if !maps.Equal(taken, map[uint16]bool{3: true}) || len(z.TakeChanged()) != 0 {
		t.Errorf("%v, %+v", taken, z)
	}
	z.FiltersChanged(4)
	z.Withheld(taken)
	if got := z.TakeChanged(); !maps.Equal(got, map[uint16]bool{3: true, 4: true}) {
		t.Errorf("%v", got)
	}
}

// run lists zones whenever it is time to, and returns when which were. Each listing takes so long.
func run(z *Zones, took, until time.Duration, each func(now time.Time)) (log []string) {
	for now := start; now.Before(start.Add(until)); now = now.Add(100 * time.Millisecond) {
		each(now)
		if due := z.Next(now); len(due) > 0 {
			log = append(log, fmt.Sprintf("%v at %s", due, now.Sub(start)))
			now = now.Add(took)
			if z.Next(now) != nil {
				log = append(log, "two at a time")
			}
			z.Listed(nil, took, nil, now)
			z.Released()
		}
	}
	return log
}

func TestEachZoneIsListedThreeTimes(t *testing.T) {
	z := New()
	z.Committed(map[uint16]bool{1: true, 2: true}, start)
	got := run(z, 0, 20*time.Second, func(time.Time) {})
	if want := []string{"[1 2] at 0s", "[1 2] at 1s", "[1 2] at 5s"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSlowListingsAreRare(t *testing.T) {
	z := New()
	got := run(z, 500*time.Millisecond, 25*time.Second, func(now time.Time) { z.Committed(map[uint16]bool{1: true}, now) })
	if want := []string{"[1] at 0s", "[1] at 10.5s", "[1] at 21s"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestDeadlineOfListings(t *testing.T) {
	z := New()
	z.Committed(map[uint16]bool{1: true}, start)
	z.Next(start)
	if z.Committed(map[uint16]bool{1: true}, start); z.Next(start) != nil {
		t.Error("two listings at a time")
	}
	z.Listed(nil, 0, nil, start)
	z.Released()
	z.Next(start)
	if !z.Deadline(start).IsZero() {
		t.Error("wakes up while zones are listed")
	}
	z.Listed(nil, time.Millisecond, nil, start)
	z.Released()
	if got := z.Deadline(start); !got.Equal(start.Add(time.Second)) {
		t.Errorf("the second listing at %s", got.Sub(start))
	}
	z.Listed(nil, time.Second, nil, start)
	if got := z.Deadline(start); !got.Equal(start.Add(20 * time.Second)) {
		t.Errorf("after a slow listing at %s", got.Sub(start))
	}
	z.Next(start.Add(20 * time.Second))
	z.Abandoned([]Connections{{Zone: 9}}, start.Add(20*time.Second))
	if got := z.Next(start.Add(21 * time.Second)); !slices.Equal(got, []uint16{9}) {
		t.Errorf("listed again after it was abandoned: %v", got)
	}
}

func TestConnectionsToRelease(t *testing.T) {
	z := New()
	found := []Connections{{1, []conntrack.Connection{{DstPort: 80}, {DstPort: 22}}}, {2, []conntrack.Connection{{DstPort: 22}}}}
	got := z.Listed(found, 0, func(_ uint16, c conntrack.Connection) bool { return c.DstPort == 80 }, start)
	if len(got) != 1 || got[0].Zone != 1 || len(got[0].List) != 1 || got[0].List[0].DstPort != 80 {
		t.Errorf("%+v", got)
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		limit    uint32
		changed  bool
		mayPrune bool
		want     string
	}{
		{500, false, false, ""}, {500, true, false, "map[1:500 2:500] false"}, {500, true, true, "map[1:500 2:500] true"},
		{0, true, false, ""}, {0, false, true, "map[] true"},
	} {
		l := NewLimits(c.limit, false)
		if c.changed {
			l.Changed()
		}
		got := ""
		if l.Due(c.mayPrune, start) {
			job := l.Next([]uint16{1, 2}, c.mayPrune)
			l.Done(job, nil, start)
			got = fmt.Sprint(job.Want, job.Prune)
		}
		if got != c.want || l.Due(c.mayPrune, start) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestLimitsThatFail(t *testing.T) {
	l := NewLimits(500, false)
	l.Changed()
	wait := l.Done(l.Next(nil, false), errNo, start)
	if wait == 0 || l.Due(false, start) || !l.Deadline(start).Equal(start.Add(wait)) || !l.Due(false, start.Add(wait)) || !l.Deadline(start.Add(wait)).IsZero() {
		t.Errorf("a pause of %s, %+v", wait, l)
	}
	l.Done(l.Next(nil, true), fmt.Errorf("limiting: %w", conntrack.ErrNoLimits), start.Add(time.Minute))
	if l.Changed(); l.Due(true, start.Add(time.Hour)) {
		t.Error("asks a switch again that has no limits")
	}
}

// TestFragmentsOfARestartedSwitch: what the switch was told before it started again does not count.
func TestFragmentsOfARestartedSwitch(t *testing.T) {
	for _, err := range []error{nil, conntrack.ErrNoLimits} {
		l := NewLimits(0, true)
		l.Restarted()
		job := l.Next(nil, false)
		l.Restarted()
		if l.Done(job, err, start); l.Dropped() || !l.Due(false, start) {
			t.Errorf("%v: the switch that started meanwhile is not told", err)
		}
		if l.Done(l.Next(nil, false), err, start); !l.Dropped() || l.Due(false, start) {
			t.Errorf("%v: it is told again", err)
		}
	}
}
