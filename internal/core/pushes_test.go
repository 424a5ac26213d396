// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// A message that was too large may have said anything.
func TestLargeMessageIsAGap(t *testing.T) {
	for large, want := range map[int]bool{0: false, 1: true} {
		a := lone(t)
		a.messagesDropped(droppedMessages{count: 2, large: large})
		if got := !a.resyncing.at.IsZero(); got != want || a.seen.totals.Dropped != 2 {
			t.Errorf("%d of 2 too large: resync %v, %d counted", large, got, a.seen.totals.Dropped)
		}
	}
}
