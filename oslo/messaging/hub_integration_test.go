// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// fleet is clients with one hub.
type fleet struct {
	t      *testing.T
	stream bool // they read what is sent to all from one stream
	topics []string
	agents []*messaging.Client
	logs   []*eventLog
	heard  []*listener
}

// aside is a topic of which clients of a fleet serve directed messages only.
const aside = "fleet-aside-1.0"

// tellAside sends a message to all by that topic, and one to a client alone: the client has the second one, and nobody the first.
func (f *fleet) tellAside(server *messaging.Client, i int) {
	f.t.Helper()
	l := f.heard[i]
	l.mu.Lock()
	l.got = nil
	l.mu.Unlock()
	for _, to := range []messaging.Target{{Topic: aside, Fanout: true}, {Topic: aside, Server: fmt.Sprint("hv", i)}} {
		if err := server.Cast(within(f.t, 30*time.Second), to, map[bool]string{true: "to-all", false: "to-one"}[to.Fanout], nil); err != nil {
			f.t.Fatal(err)
		}
	}
	eventually(f.t, 30*time.Second, "the directed message", func() bool { return l.String() != "" })
	if got := l.String(); got != "to-one" {
		f.t.Errorf("client %d has %q", i, got)
	}
}

// add starts so many clients at once.
func (f *fleet) add(b *broker.Broker, n int) {
	f.t.Helper()
	first := len(f.agents)
	for i := range n {
		c, log := open(f.t, b, "agent", fmt.Sprint("hv", first+i), func(cfg *messaging.Config) { cfg.Hub, cfg.HubStream = "fleet", f.stream })
		f.agents, f.logs, f.heard = append(f.agents, c), append(f.logs, log), append(f.heard, &listener{})
	}
	var wg sync.WaitGroup
	for i, c := range f.agents[first:] {
		wg.Go(func() {
			if err := c.Serve(within(f.t, time.Minute), messaging.Service{Topics: f.topics, Directed: []string{aside}, Handler: f.heard[first+i].handle}); err != nil {
				f.t.Error(err)
			}
		})
	}
	wg.Wait()
}

// tell sends a message to all by each topic, and waits until each of the clients has all of them, once.
func (f *fleet) tell(server *messaging.Client, method string, to ...*listener) {
	f.t.Helper()
	for _, l := range to {
		l.mu.Lock()
		l.got = nil
		l.mu.Unlock()
	}
	for _, topic := range f.topics {
		if err := server.Cast(within(f.t, 30*time.Second), messaging.Target{Topic: topic, Fanout: true}, method, nil); err != nil {
			f.t.Fatal(err)
		}
	}
	for i, l := range to {
		eventually(f.t, 30*time.Second, fmt.Sprintf("all messages %s at client %d", method, i), func() bool { return f.hasAll(l, method) })
	}
}

// tellNewest sends a message by each topic to the newest client, which has all of them, or tells of a gap and has those that follow.
func (f *fleet) tellNewest(server *messaging.Client) {
	f.t.Helper()
	newest, log := f.heard[len(f.heard)-1], f.logs[len(f.logs)-1]
	for _, topic := range f.topics {
		if err := server.Cast(within(f.t, 30*time.Second), messaging.Target{Topic: topic, Fanout: true}, "new", nil); err != nil {
			f.t.Fatal(err)
		}
	}
	eventually(f.t, time.Minute, "the messages, or a gap", func() bool { return f.hasAll(newest, "new") || count[messaging.Gap](log) > 0 })
	if !f.hasAll(newest, "new") {
		f.t.Logf("the hub was lost while the client came: %+v", log.all())
		f.tell(server, "later", newest)
	}
}

// hasAll says whether a client has a message by each topic, once.
func (f *fleet) hasAll(l *listener, method string) bool {
	return l.String() == strings.TrimSpace(strings.Repeat(method+" ", len(f.topics)))
}

// TestFleetWithOneHub: clients that start at once, a broker that dies under them, and a client that comes while the last one goes: whoever serves
// gets what is sent to all.
func TestFleetWithOneHub(t *testing.T) { testFleet(t, false) }

// TestFleetWithOneStream: the same with one stream behind the hub.
func TestFleetWithOneStream(t *testing.T) { testFleet(t, true) }

func testFleet(t *testing.T, stream bool) {
	noLeaks(t)
	cfg := broker.Config{Dir: t.TempDir()}
	release(&cfg)
	b, err := broker.Start(within(t, 2*time.Minute), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(within(t, time.Minute)) })
	f := &fleet{t: t, stream: stream}
	for i := range 13 {
		f.topics = append(f.topics, fmt.Sprintf("fleet-1.%d", i))
	}
	server, slog := open(t, b, "server", "s1")
	const agents = 30
	if stream {
		f.add(b, 1) // RabbitMQ closes connections that declare a new stream at the same moment
	}
	f.add(b, agents-len(f.agents))
	f.tell(server, "first", f.heard...)
	f.tellAside(server, 3)
	bindings, err := b.Bindings(within(t, 90*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if most := 3*agents + len(f.topics) + 3; len(bindings) > most {
		t.Errorf("%d bindings for %d clients, want at most %d", len(bindings), agents, most)
	}

	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.Start(within(t, 2*time.Minute), b.Config()); err != nil {
		t.Fatal(err)
	}
	for i, log := range append(f.logs, slog) {
		eventually(t, time.Minute, fmt.Sprintf("client %d back", i), func() bool { return connected(log) })
	}
	for i, log := range f.logs {
		if theNode(t, b).minor >= 403 {
			break // the node keeps exchanges and bindings, and our queues are durable there
		}
		eventually(t, 30*time.Second, fmt.Sprintf("the gap told by client %d", i), func() bool {
			n := count[messaging.Gap](log)
			return n == 1 || stream && n > 1 // the stream may come back later than the queue
		})
	}
	f.tell(server, "again", f.heard...)
	f.tellAside(server, 7)

	for i, c := range f.agents[1:] {
		if err := c.Close(within(t, 20*time.Second)); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
	last, newcomers := f.agents[0], 15
	if stream {
		newcomers = 3 // the stream keeps the hub, and where the broker has not brought it back each of them waits 15 s for it
	}
	for range newcomers {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := last.Close(within(t, 20*time.Second)); err != nil {
				t.Error(err)
			}
		})
		f.add(b, 1)
		wg.Wait()
		last = f.agents[len(f.agents)-1]
		f.tellNewest(server)
	}
	// The server has declared the exchange long ago, and somebody must have kept it.
	f.tellAside(server, len(f.agents)-1)
}
