// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
)

// A message that was too large may have said anything.
func TestLargeMessageIsAGap(t *testing.T) {
	for large, want := range map[int]bool{0: false, 1: true} {
		a := New(Config{Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}}, nil, time.Now())
		a.event(effect.Dropped{Count: 2, Large: large})
		if got := !a.resyncing.at.IsZero(); got != want || a.seen.totals.Dropped != 2 {
			t.Errorf("%d of 2 too large: resync %v, %d counted", large, got, a.seen.totals.Dropped)
		}
	}
}
