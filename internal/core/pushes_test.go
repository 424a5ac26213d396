// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
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

// A message is counted once: as handled, or as dropped.
func TestEveryMessageIsCounted(t *testing.T) {
	const body = `{"event_type":"updated","resource_list":[%s]}`
	for name, c := range map[string]struct {
		args              string
		messages, dropped uint64
	}{
		"of another host":  {fmt.Sprintf(body, `{"versioned_object.name":"Port","versioned_object.version":"1.0","versioned_object.data":{"id":"p","revision_number":3}}`), 1, 0},
		"without a kind":   {fmt.Sprintf(body, `{}`), 0, 1},
		"without objects":  {fmt.Sprintf(body, ``), 0, 1},
		"no JSON":          {`{`, 0, 1},
		"with a broken id": {fmt.Sprintf(body, `{"versioned_object.name":"Port","versioned_object.version":"1.0","versioned_object.data":{"id":7}}`), 1, 0},
	} {
		a := New(Config{Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}}, nil, time.Now())
		a.Take(time.Now(), effect.Message{Message: &messaging.Message{Topic: "neutron-vo-Port-1.0", Method: "push", Args: []byte(c.args)}})
		if got := a.seen.totals; got.Messages != c.messages || got.Dropped != c.dropped {
			t.Errorf("%s: %d handled and %d dropped, want %d and %d", name, got.Messages, got.Dropped, c.messages, c.dropped)
		}
	}
	a := New(Config{Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}}, nil, time.Now())
	a.abandon(effect.Message{}) // handling it panicked
	if got := a.seen.totals; got.Messages != 0 || got.Dropped != 1 {
		t.Errorf("one that was given up: %d handled and %d dropped", got.Messages, got.Dropped)
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
