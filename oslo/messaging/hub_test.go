// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// withHub is the option under test.
func withHub(cfg *Config) { cfg.Hub = "hub" }

// heard collects what a client handles.
type heard struct{ got []string }

func (h *heard) handle(_ context.Context, m *Message) (any, error) {
	h.got = append(h.got, fmt.Sprintf("%s %s fanout=%t directed=%t", m.Method, m.Topic, m.Fanout, m.Directed))
	return nil, nil
}

func (h *heard) want(t *testing.T, lines ...string) {
	t.Helper()
	settle()
	if !slices.Equal(h.got, lines) {
		t.Errorf("handled %q, want %q", h.got, lines)
	}
	h.got = nil
}

func cast(t *testing.T, c *memClient, to Target, method string) {
	t.Helper()
	if err := c.Cast(context.Background(), to, method, nil); err != nil {
		t.Fatal(err)
	}
}

// TestHub: the first client binds the hub, all have two bindings, and each gets what is for it.
func TestHub(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		topics := []string{"u", "t", "v"}
		var one, two heard
		first := b.client(t, "b", withHub)
		first.serve(Service{Topics: topics, Handler: one.handle})
		hub := first.layout.hub(topics, nil).name
		if other := first.layout.hub([]string{"v", "u", "t"}, nil).name; other != hub || !strings.HasPrefix(hub, "hub_") || first.layout.hub(topics[:2], nil).name == hub {
			t.Errorf("hubs %s and %s", hub, other)
		}
		b.wantSaid(t, "exchange.bind", 4)
		b.wantSaid(t, "queue.bind", 2)
		second := b.client(t, "a.b", withHub)
		second.serve(Service{Topics: topics, Handler: two.handle})
		b.wantSaid(t, "exchange.bind", 4) // it is bound already
		b.wantSaid(t, "queue.bind", 4)
		b.do(func() {
			want := map[string]bool{"neutron #.b": true, hub + " ": true}
			if q := b.queues[first.layout.privateQ]; !cmp.Equal(q.bound, want) {
				t.Errorf("bound %v, want %v", q.bound, want)
			}
			if e := b.exchanges[hub]; e.kind != "fanout" || !e.autoDelete || e.durable {
				t.Errorf("%+v", e)
			}
		})
		for _, topic := range topics {
			cast(t, first, Target{Topic: topic, Fanout: true}, "all")
		}
		lines := []string{"all u fanout=true directed=false", "all t fanout=true directed=false", "all v fanout=true directed=false"}
		one.want(t, lines...)
		two.want(t, lines...)
		cast(t, first, Target{Topic: "t", Server: "b"}, "own")
		cast(t, first, Target{Topic: "t", Server: "a.b"}, "other") // the key ends like those of the first
		cast(t, first, Target{Topic: "dhcp_agent", Server: "b"}, "foreign")
		one.want(t, "own t fanout=false directed=true")
		two.want(t, "other t fanout=false directed=true")
		time.Sleep(2 * ackDelay)
		settle()
		b.do(func() {
			for name, q := range b.queues {
				for _, k := range q.consumers {
					if len(q.waiting)+len(k.unacked) > 0 {
						t.Errorf("%s: %d wait, %d are not acknowledged", name, len(q.waiting), len(k.unacked))
					}
				}
			}
		})
		first.close()
		second.close()
	})
}

// TestHubAside: what is sent to all by a topic of which only directed messages are served stays on the broker. The topic's exchange is there, for those who publish to it,
// and has something bound to it.
func TestHubAside(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		topics, aside := []string{"t"}, []string{"u"}
		var h heard
		c := b.client(t, "hv1", withHub)
		c.serve(Service{Topics: topics, Directed: aside, Handler: h.handle})
		hub := c.layout.hub(topics, aside)
		if hub.name == c.layout.hub(topics, nil).name || hub.name == c.layout.hub([]string{"t", "u"}, nil).name {
			t.Errorf("the hub is called %s", hub.name)
		}
		b.do(func() {
			if !b.behind["u_fanout"][hub.keeper().name] || !b.behind[hub.keeper().name][hub.name] || b.exchanges[hub.keeper().name].kind != "direct" {
				t.Errorf("bound %v", b.behind)
			}
		})
		cast(t, c, Target{Topic: "u", Fanout: true}, "all")
		cast(t, c, Target{Topic: "u", Server: "hv1"}, "own")
		cast(t, c, Target{Topic: "t", Fanout: true}, "all")
		h.want(t, "own u fanout=false directed=true", "all t fanout=true directed=false")
		b.wantSaid(t, "basic.publish u_fanout", 1)
		b.do(func() { b.deleteExchange("u_fanout") })
		time.Sleep(3 * checkEvery)
		c.wantEvents("Connected", "Gap the exchange u_fanout was lost")
		c.close()
	})
	inMemory(t, func(t *testing.T, b *memBroker) { // without a hub all come
		var h heard
		c := b.client(t, "hv1", func(*Config) {})
		c.serve(Service{Topics: []string{"t"}, Directed: []string{"u"}, Handler: h.handle})
		cast(t, c, Target{Topic: "u", Fanout: true}, "all")
		cast(t, c, Target{Topic: "u", Server: "hv1"}, "own")
		h.want(t, "all u fanout=true directed=false", "own u fanout=false directed=true")
		c.close()
	})
}

// TestHubIsMended: exchanges that somebody deleted are made again, and the gap is told.
func TestHubIsMended(t *testing.T) {
	topics := []string{"t", "u"}
	own := func(hub exchange) []string { return []string{hub.name, hub.bound().name} }
	for _, tt := range []struct {
		lost          func(hub exchange) []string
		pause, within time.Duration
	}{
		{own, 0, 2 * firstCheck},
		{own, 3 * checkEvery, 2 * checkEvery},
		{func(exchange) []string { return []string{"u_fanout"} }, 3 * checkEvery, 2 * checkEvery},
	} {
		lost, pause := tt.lost, tt.pause
		inMemory(t, func(t *testing.T, b *memBroker) {
			var h heard
			c := b.client(t, "hv1", withHub)
			c.serve(Service{Topics: topics, Handler: h.handle})
			time.Sleep(pause)
			c.wantEvents("Connected")
			names := lost(c.layout.hub(topics, nil))
			b.do(func() {
				for _, name := range names {
					b.deleteExchange(name)
				}
			})
			time.Sleep(tt.within)
			c.wantEvents("Gap the exchange " + names[0] + " was lost")
			cast(t, c, Target{Topic: "u", Fanout: true}, "all")
			h.want(t, "all u fanout=true directed=false")
			c.close()
		})
	}
}

// TestHubRefused: a user who may not make the hub binds its queue to each exchange.
func TestHubRefused(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		var h heard
		c := b.client(t, "hv1", withHub)
		hub := c.layout.hub([]string{"t"}, nil).name
		b.do(func() {
			b.refuse["exchange.declare "+hub] = []refuse{{amqp.AccessRefused, "ACCESS_REFUSED"}}
		})
		c.serve(Service{Topics: []string{"t"}, Handler: h.handle})
		b.do(func() {
			want := map[string]bool{"neutron t.hv1": true, "t_fanout t": true}
			if q := b.queues[c.layout.privateQ]; !cmp.Equal(q.bound, want) {
				t.Errorf("bound %v, want %v", q.bound, want)
			}
		})
		if events := c.seenEvents(); !slices.Contains(events, "NoHub") {
			t.Errorf("events %q", events)
		}
		cast(t, c, Target{Topic: "t", Fanout: true}, "all")
		h.want(t, "all t fanout=true directed=false")
		c.close()
	})
}

// TestHubBesideStreams: with streams the private queue has directed messages only.
func TestHubBesideStreams(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", func(cfg *Config) {
			withHub(cfg)
			cfg.Rabbit.QuorumQueue, cfg.Rabbit.TransientQuorumQueue, cfg.Rabbit.StreamFanout, cfg.Rabbit.PrefetchCount = true, true, true, 9
		})
		c.serve(Service{Topics: []string{"t", "u"}})
		b.do(func() {
			want := map[string]bool{"neutron #.hv1": true}
			if q := b.queues[c.layout.privateQ]; !cmp.Equal(q.bound, want) {
				t.Errorf("bound %v, want %v", q.bound, want)
			}
		})
		b.wantSaid(t, "exchange.bind", 0)
		c.close()
	})
}
