// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// withStream is the option under test.
func withStream(cfg *Config) { cfg.Hub, cfg.HubStream = "hub", true }

// wantBound checks the bindings of a queue.
func (b *memBroker) wantBound(t *testing.T, name string, want ...string) {
	t.Helper()
	settle()
	b.do(func() {
		q := b.queues[name]
		if q == nil {
			t.Errorf("there is no queue %s", name)
			return
		}
		all := map[string]bool{}
		for _, w := range want {
			all[w] = true
		}
		if !cmp.Equal(q.bound, all) {
			t.Errorf("%s is bound to %v, want %v", name, q.bound, want)
		}
	})
}

// offset is from where the only consumer of a stream reads.
func (b *memBroker) offset(name string) (at any) {
	settle()
	b.do(func() { at = b.queues[name].consumers[0].args["x-stream-offset"] })
	return at
}

// keepRefusing has something refused so many times.
func (b *memBroker) keepRefusing(what string, err refuse, times int) {
	b.do(func() { b.refuse[what] = slices.Repeat([]refuse{err}, times) })
}

// TestHubStream: the private queue has directed messages only, and the stream, which is bound to the hub, is read on the one channel. A client beside it without the option has the hub to itself.
func TestHubStream(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", withStream)
		c.serve(Service{Topics: []string{"t", "u"}})
		hub := c.layout.hub([]string{"t", "u"}, nil).name
		stream := hub + "_stream"
		b.wantBound(t, c.layout.privateQ, "neutron #.hv1")
		b.wantBound(t, stream, hub+" ")
		if at := b.offset(stream); at != "next" {
			t.Errorf("begins at %v", at)
		}
		b.do(func() {
			q := b.queues[stream]
			if !q.durable || q.autoDelete || q.args["x-queue-type"] != "stream" || q.args["x-max-age"] != "600s" || q.args["x-max-length-bytes"] != int64(256<<20) || q.args["x-stream-max-segment-size-bytes"] != int64(16<<20) {
				t.Errorf("%+v", q)
			}
		})
		b.wantSaid(t, "queue.passive "+stream, 2) // it is looked for twice, and then made
		b.wantSaid(t, "queue.declare "+stream, 1)
		other := b.client(t, "hv2", withHub)
		other.serve(Service{Topics: []string{"t", "u"}})
		b.wantBound(t, other.layout.privateQ, "neutron #.hv2", hub+" ")
		b.put(stream, "t_fanout", "", amqp.Table{"x-stream-offset": int64(4)}, rawRequest(t, "id", "m", "", ""))
		if got := c.methods(); !slices.Equal(got, []string{"m"}) {
			t.Errorf("handled %q", got)
		}
		b.cut()
		time.Sleep(2 * time.Second)
		if at := b.offset(stream); at != int64(5) {
			t.Errorf("goes on at %v", at)
		}
		c.wantEvents("Connected", "Disconnected", "Connected")
		c.close()
		other.close()
		b.do(func() {
			if b.queues[stream] == nil {
				t.Error("a client deletes the stream of all")
			}
		})
	})
}

// TestStreamOfAnotherBroker: a broker that lost the private queue may have lost the stream, and another client may have made it anew. What was read of it before says nothing.
func TestStreamOfAnotherBroker(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", withStream)
		c.serve(Service{Topics: []string{"t"}})
		stream := c.layout.hub([]string{"t"}, nil).stream().name
		b.put(stream, "t_fanout", "", amqp.Table{"x-stream-offset": int64(4000)}, rawRequest(t, "id", "m", "", ""))
		c.methods()
		c.wantEvents("Connected")
		b.do(func() { delete(b.queues, c.layout.privateQ) })
		b.cut()
		time.Sleep(2 * time.Second)
		if at := b.offset(stream); at != "next" {
			t.Errorf("goes on at %v", at)
		}
		c.wantEvents("Disconnected", "Gap the queue was lost", "Connected")
		c.close()
	})
}

// TestStreamRefused: who may not have the stream has copies in its queue. So has a connection on which it cannot be read for a while; the next one tries again.
func TestStreamRefused(t *testing.T) {
	topics := []string{"t"}
	for _, tt := range []struct {
		name  string
		what  string
		err   refuse
		times int
		gone  bool // whether the event is told
		later bool // whether the next connection asks for the stream
	}{
		{"no streams", "queue.declare", refuse{amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue"}, 1000, true, false},
		{"no permission", "queue.declare", refuse{amqp.AccessRefused, "ACCESS_REFUSED"}, 1000, true, false},
		{"a replica is missing", "queue.declare", refuse{amqp.PreconditionFailed, "PRECONDITION_FAILED - queue does not have a replica on the local node"}, 3, false, true},
		{"it stays down", "queue.declare", refuse{amqp.NotFound, "NOT_FOUND - home node of durable queue is down or inaccessible"}, 1000, true, true},
		{"it ends connections", "basic.consume", refuse{amqp.InternalError, "INTERNAL_ERROR"}, 1000, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, b *memBroker) {
				c := b.client(t, "hv1", withStream)
				hub := c.layout.hub(topics, nil)
				b.keepRefusing(tt.what+" "+hub.stream().name, tt.err, tt.times)
				c.serve(Service{Topics: topics})
				time.Sleep(time.Minute)
				events := c.seenEvents()
				if slices.Contains(events, "NoStream") != tt.gone || events[len(events)-1] != "Connected" || slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, "Refused") }) {
					t.Errorf("events %q", events)
				}
				if tt.gone {
					b.wantBound(t, c.layout.privateQ, "neutron #.hv1", hub.name+" ")
				} else {
					b.wantBound(t, c.layout.privateQ, "neutron #.hv1")
				}
				b.do(func() { delete(b.refuse, tt.what+" "+hub.stream().name) })
				b.cut()
				time.Sleep(10 * time.Second)
				b.do(func() {
					q := b.queues[hub.stream().name]
					if got := q != nil && len(q.consumers) > 0; got != tt.later {
						t.Errorf("the next connection reads the stream: %t", got)
					}
				})
				c.close()
			})
		})
	}
}

// TestStreamGoesDown: a stream that was read and cannot be any more, or about which no question can be asked, is a gap, which is told when the queue has copies.
func TestStreamGoesDown(t *testing.T) {
	for what, err := range map[string]refuse{
		"basic.consume": {amqp.NotFound, "NOT_FOUND - home node is down"}, "queue.passive": {amqp.InternalError, "INTERNAL_ERROR"},
	} {
		t.Run(what, func(t *testing.T) {
			inMemory(t, func(t *testing.T, b *memBroker) {
				c := b.client(t, "hv1", withStream)
				c.serve(Service{Topics: []string{"t"}})
				hub := c.layout.hub([]string{"t"}, nil)
				c.wantEvents("Connected")
				b.keepRefusing(what+" "+hub.stream().name, err, 1000)
				b.cut()
				time.Sleep(time.Minute)
				b.wantBound(t, c.layout.privateQ, "neutron #.hv1", hub.name+" ")
				events := c.seenEvents()
				gone, gap := slices.Index(events, "NoStream"), slices.Index(events, "Gap the stream was lost")
				if gone < 0 || gap < gone || events[len(events)-1] != "Connected" {
					t.Errorf("events %q", events)
				}
				c.close()
			})
		})
	}
}

// TestStreamIsDeleted: the broker ends the consumer, and whoever made the stream anew counts from 0.
func TestStreamIsDeleted(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", withStream)
		c.serve(Service{Topics: []string{"t"}})
		stream := c.layout.hub([]string{"t"}, nil).stream().name
		b.put(stream, "t_fanout", "", amqp.Table{"x-stream-offset": int64(4000)}, rawRequest(t, "id", "m", "", ""))
		c.methods()
		c.wantEvents("Connected")
		b.do(func() {
			old := b.queues[stream]
			b.deleteQueue(stream)
			b.queues[stream] = &memQueue{queue: old.queue, bound: old.bound}
		})
		time.Sleep(5 * time.Second)
		if at := b.offset(stream); at != "next" {
			t.Errorf("goes on at %v", at)
		}
		c.wantEvents("Gap the stream was lost")
		c.close()
	})
}

// TestTopicsOfAStream: with other topics another stream is read, and the channel that both would share is opened anew.
func TestTopicsOfAStream(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", withStream)
		c.serve(Service{Topics: []string{"t"}})
		first := c.layout.hub([]string{"t"}, nil).stream().name
		c.serve(Service{Topics: []string{"t", "u"}})
		time.Sleep(5 * time.Second)
		second := c.layout.hub([]string{"t", "u"}, nil).stream().name
		b.do(func() {
			if n, m := len(b.queues[first].consumers), len(b.queues[second].consumers); n != 0 || m != 1 {
				t.Errorf("%d read the old stream, %d the new one", n, m)
			}
		})
		b.wantSaid(t, "basic.cancel "+first, 0) // what is in hand would never be acknowledged on a channel that goes on
		b.put(second, "u_fanout", "", amqp.Table{"x-stream-offset": int64(1)}, rawRequest(t, "id", "m", "", ""))
		if got := c.methods(); !slices.Equal(got, []string{"m"}) {
			t.Errorf("handled %q", got)
		}
		c.wantEvents("Connected")
		c.close()
	})
}
