// SPDX-License-Identifier: Apache-2.0

package floor

import (
	"testing"
	"time"
)

// TestWatchKeepsTheNewest: news of a busy server come in any order; what a port is, the highest revision says, and since when, the first news of it.
func TestWatchKeepsTheNewest(t *testing.T) {
	w := &Watch{seen: map[string]seen{}}
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for n, news := range []struct {
		status   string
		revision int64
		is       seen
	}{
		{"DOWN", 1, seen{"DOWN", 1, at(0)}},
		{"ACTIVE", 3, seen{"ACTIVE", 3, at(1)}},
		{"DOWN", 2, seen{"ACTIVE", 3, at(1)}},
		{"ACTIVE", 5, seen{"ACTIVE", 5, at(1)}},
		{"DOWN", 4, seen{"ACTIVE", 5, at(1)}},
		{"DOWN", 6, seen{"DOWN", 6, at(5)}},
	} {
		before := w.seen["p"].status
		changed := w.note("p", news.status, news.revision, at(n))
		if got := w.seen["p"]; got != news.is || changed != (before != got.status) {
			t.Errorf("after %s of revision %d: %v, changed %v; want %v", news.status, news.revision, got, changed, news.is)
		}
	}
}
