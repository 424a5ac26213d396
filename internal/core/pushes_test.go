// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
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

// What passes is told once, and is about a port.
func TestPassed(t *testing.T) {
	a := New(Config{Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}}, nil, time.Now())
	push := func(kind, data string) effect.Message {
		return effect.Message{Message: &messaging.Message{
			Topic: "neutron-vo-" + kind + "-1.0", Method: "push",
			Args: []byte(`{"event_type":"updated","resource_list":[{"versioned_object.name":"` + kind + `","versioned_object.version":"1.0","versioned_object.data":` + data + `}]}`),
		}}
	}
	if p := a.Take(time.Now(), push("Port", `{"id":"p","revision_number":3}`)); p == nil || p.Kind != neutron.KindPort {
		t.Error("a port of another host does not pass")
	}
	for name, e := range map[string]effect.Event{"a network": push("Network", `{"id":"n"}`), "a report": effect.ReportDue{}} {
		a.Take(time.Now(), push("Port", `{"id":"p","revision_number":3}`))
		if a.Take(time.Now(), e) != nil {
			t.Errorf("%s passes", name)
		}
	}
}
