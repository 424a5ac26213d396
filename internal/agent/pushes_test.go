// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// fill fills the box until it takes no more, and gives the number that it took.
func fill(p *pushbox, m *messaging.Message) int {
	n := 0
	for ; n < 10*maxPushes; n++ {
		if !p.offer(m) {
			break
		}
	}
	return n
}

func TestPushboxIsBounded(t *testing.T) {
	small := &messaging.Message{Args: []byte("{}")}
	if n := fill(newPushbox(), small); n != maxPushes {
		t.Errorf("%d messages fit, want %d", n, maxPushes)
	}
	large := &messaging.Message{Args: make([]byte, maxPushBytes/4)}
	if n := fill(newPushbox(), large); n != 4 {
		t.Errorf("%d messages of a quarter of the bytes fit", n)
	}
	huge := &messaging.Message{Args: make([]byte, 2*maxPushBytes)}
	if n := fill(newPushbox(), huge); n != 1 {
		t.Errorf("%d messages larger than the box fit, want one into an empty box", n)
	}
}

// The handler waits while the loop has enough, so that the broker keeps the rest; it goes on when the loop takes one, and gives
// up when the client closes.
func TestHandlerWaitsForTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPushbox()
		m := &messaging.Message{Args: []byte("{}")}
		fill(p, m)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.put(ctx, m) }()
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("a full box takes a message")
		}
		p.next()
		if err := <-done; err != nil {
			t.Error(err)
		}
		go func() { done <- p.put(ctx, m) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the client: %v", err)
		}
	})
}

func lone(t *testing.T) *Agent {
	t.Helper()
	a, err := New(Config{Host: "hv1", World: world.Config{Host: "hv1", IntegrationBridge: "br-int"}, Log: slog.New(slog.DiscardHandler)}, nil,
		func(func(messaging.Event)) (Broker, error) { return &fakeBroker{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The loop leaves messages that take longer than their time, for its other inputs, and is called back for them.
func TestLoopLeavesPushes(t *testing.T) {
	a := lone(t)
	slow := &messaging.Message{Topic: "q-agent-notifier-tunnel-update", Method: "tunnel_update",
		Args: []byte(`{"tunnel_ip":"192.0.2.1","tunnel_type":"vxlan","other":[` + strings.Repeat("1,", maxPushBytes/maxPushes/2-100) + `1]}`)}
	if n := fill(a.pushes, slow); n < maxPushes {
		t.Fatalf("%d messages fit", n)
	}
	turns := 0
	for ; a.pushes.len() > 0; turns++ {
		select {
		case <-a.pushes.ready:
			a.takePushes()
		case <-time.After(5 * time.Second):
			t.Fatal("the loop is not called back for the messages that are left")
		}
	}
	if turns < 2 {
		t.Errorf("%d messages of %d bytes were handled in one turn", maxPushes, len(slow.Args))
	}
}

// Dropped messages are counted, however many there are between two looks of the loop; large ones cause one resync.
func TestDroppedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startConnected(t)
		before := r.log.Len()
		for i := range 10_000 {
			r.broker.onEvent(messaging.Dropped{Exchange: "x_fanout", Err: fmt.Errorf("no message at byte %d", i)})
		}
		wait(10 * time.Second)
		if n := r.lines("AMQP message cannot be decoded, dropped"); n == 0 || n > maxReasons+1 {
			t.Errorf("%d lines about unreadable messages", n)
		}
		if r.lines("resyncing") != 0 {
			t.Error("what cannot be decoded is a reason to resync")
		}
		r.broker.onEvent(messaging.Dropped{RoutingKey: "reply_x", Err: &messaging.TooLargeError{Size: 1 << 30, Limit: 1}})
		wait(10 * time.Second)
		if r.lines("resyncing") != 0 {
			t.Error("a large reply is a reason to resync")
		}
		r.broker.onEvent(messaging.Dropped{Exchange: "x_fanout", RoutingKey: "k", Err: &messaging.TooLargeError{Size: 200_000_000, Limit: 64 << 20}})
		r.broker.onEvent(messaging.Dropped{Exchange: "x_fanout", Err: errors.New("small")})
		wait(10 * time.Second)
		text := r.log.String()[before:]
		if strings.Count(text, "message too large, dropped; resyncing") != 1 || !strings.Contains(text, "200000000 bytes") {
			t.Errorf("log of a large message:\n%s", text)
		}
		_ = r.stop()
	})
}

func TestReasonsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startConnected(t)
		for i := range 1000 {
			_, _ = r.broker.service.Handler(t.Context(), &messaging.Message{Topic: fmt.Sprint("neutron-vo-Port-1.", i), Method: "push", Args: []byte(`{"resource_list":[]}`)})
		}
		wait(time.Second)
		if n := r.lines("RPC message cannot be decoded"); n != maxReasons+1 {
			t.Errorf("%d lines about 1000 messages with a reason each, want %d", n, maxReasons+1)
		}
		_ = r.stop()
	})
}

// TestPushbox counts what waits, by number and by size.
func TestPushbox(t *testing.T) {
	p := newPushbox()
	for i := range 3 {
		if err := p.put(t.Context(), &messaging.Message{Args: make([]byte, 10*(i+1))}); err != nil {
			t.Fatal(err)
		}
	}
	if p.len() != 3 || p.bytes != 60 {
		t.Errorf("%d messages of %d bytes", p.len(), p.bytes)
	}
	for i, want := range []int{50, 30, 0} {
		if m := p.next(); len(m.Args) != 10*(i+1) || p.bytes != want {
			t.Errorf("%d bytes, %d left", len(m.Args), p.bytes)
		}
	}
	if p.next() != nil || p.len() != 0 {
		t.Error("not empty")
	}
}

// TestDropsAreCounted: what is told is one of those that were too large, else the last; a reply is none that everything is checked for.
func TestDropsAreCounted(t *testing.T) {
	small := func(key string) messaging.Dropped {
		return messaging.Dropped{Exchange: "x", RoutingKey: key, Err: errors.New("unreadable")}
	}
	large := func(exchange, key string) messaging.Dropped {
		return messaging.Dropped{Exchange: exchange, RoutingKey: key, Err: &messaging.TooLargeError{Size: 2, Limit: 1}}
	}
	for name, c := range map[string]struct {
		all    []messaging.Dropped
		large  int
		latest string
	}{
		"none":                   {},
		"unreadable ones":        {[]messaging.Dropped{small("a"), small("b")}, 0, "b"},
		"a large one before":     {[]messaging.Dropped{large("x", "a"), small("b")}, 1, "a"},
		"a large one after":      {[]messaging.Dropped{small("a"), large("x", "b"), large("x", "c"), small("d")}, 2, "c"},
		"a large reply":          {[]messaging.Dropped{small("a"), large("", "b")}, 0, "b"},
		"a small one after that": {[]messaging.Dropped{large("", "a"), small("b")}, 0, "b"},
	} {
		var d drops
		for i, m := range c.all {
			if tell := d.put(m); tell != (i == 0) {
				t.Errorf("%s: the loop is told of message %d: %v", name, i, tell)
			}
		}
		if got := d.take(); got.Count != len(c.all) || got.Large != c.large || got.Latest.RoutingKey != c.latest {
			t.Errorf("%s: %+v", name, got)
		}
		if got := d.take(); got.Count != 0 {
			t.Errorf("%s: counted twice: %+v", name, got)
		}
	}
}

// TestTurnsAreCounted: how many, how long all of them took, and the longest.
func TestTurnsAreCounted(t *testing.T) {
	var all turns
	var got inspect.Totals
	for _, d := range []time.Duration{time.Second, 3 * time.Second, 2 * time.Second} {
		all.took(d)
	}
	if all.add(&got); got.Steps != 3 || got.BusySeconds != 6 || got.LongestSeconds != 3 {
		t.Errorf("%+v", got)
	}
}
