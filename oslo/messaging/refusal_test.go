// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// restart loses what is not durable, as a restart of the broker does: exchanges, and with them bindings, and queues.
func (b *memBroker) restart() {
	b.do(func() {
		maps.DeleteFunc(b.exchanges, func(_ string, e exchange) bool { return !e.durable })
		maps.DeleteFunc(b.queues, func(_ string, q *memQueue) bool { return !q.durable })
		for _, q := range b.queues {
			maps.DeleteFunc(q.bound, func(bound string, _ bool) bool {
				name, _, _ := strings.Cut(bound, " ")
				_, ok := b.exchanges[name]
				return !ok
			})
		}
	})
	b.cut()
}

// names are those of our queues now: private, reply.
func (m *memClient) names() (private, reply string) {
	m.Client.mu.Lock()
	defer m.Client.mu.Unlock()
	return m.layout.privateQ, m.layout.replyQ
}

// wantDurable: both queues of ours are durable classic ones that expire.
func (b *memBroker) wantDurable(t *testing.T, c *memClient) {
	t.Helper()
	b.do(func() {
		for _, name := range []string{c.layout.replyQ, c.layout.privateQ} {
			q := b.queues[name]
			if q == nil || !q.durable || q.args["x-queue-type"] != "classic" || q.args["x-expires"] != int64(240_000) {
				t.Errorf("%s: %+v", name, q)
			}
		}
	})
}

// TestTransientQueuesDenied: where the broker denies queues that are not durable, ours are durable. They lose nothing in a
// disconnect, and a restart of the broker is a gap even when somebody else has made the exchanges anew.
func TestTransientQueuesDenied(t *testing.T) {
	for _, tt := range []struct {
		name   string
		set    func(*memBroker)
		events []string // before everything is set up
		conns  int
	}{
		{"by default, as its version says", func(b *memBroker) { b.deny, b.version = true, "4.3.1" }, []string{"Connected"}, 1},
		{"by its configuration", func(b *memBroker) { b.deny, b.version = true, "4.2.0" }, []string{"Connected"}, 2},
		{"by the default type of the virtual host", func(b *memBroker) { b.durable = true }, []string{"SetupFailed", "Connected"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, b *memBroker) {
				tt.set(b)
				c := b.client(t, "hv1", nil)
				c.serve(Service{Topics: []string{"t"}})
				e := c.seenEvents()
				for i := range e {
					e[i], _, _ = strings.Cut(e[i], " ")
				}
				if !slices.Equal(e, tt.events) {
					t.Errorf("events %q, want %q", e, tt.events)
				}
				b.wantSaid(t, "connection.open", tt.conns)
				if err := c.Call(context.Background(), Target{Topic: "t", Server: "hv1"}, "m", nil, nil); err != nil {
					t.Error(err)
				}
				b.wantDurable(t, c)
				b.cut()
				time.Sleep(2 * time.Second)
				c.wantEvents("Disconnected", "Connected")
				b.restart()
				b.do(func() { b.exchanges["t_fanout"] = exchange{"t_fanout", "fanout", false, true, ""} })
				b.do(func() { b.exchanges["neutron"] = exchange{"neutron", "topic", false, false, ""} })
				time.Sleep(2 * time.Second)
				c.wantEvents("Disconnected", "Gap the queue's bindings were lost", "Connected")
				if err := c.Cast(context.Background(), Target{Topic: "t", Fanout: true}, "n", nil); err != nil {
					t.Error(err)
				}
				if got := c.methods(); !slices.Equal(got, []string{"m", "n"}) {
					t.Errorf("handled %q", got)
				}
				c.close()
				if names := b.queueNames(); len(names) != 0 {
					t.Errorf("queues after the end: %q", names)
				}
			})
		})
	}
	// Durable exchanges keep their bindings: no witness, no gap.
	inMemory(t, func(t *testing.T, b *memBroker) {
		b.deny = true
		c := b.client(t, "hv1", func(cfg *Config) { cfg.Rabbit.QuorumQueue, cfg.Rabbit.TransientQuorumQueue = true, true })
		c.serve(Service{Topics: []string{"t"}})
		b.wantSaid(t, "exchange.declare", 2)
		b.restart()
		time.Sleep(2 * time.Second)
		c.wantEvents("Connected", "Disconnected", "Connected")
		c.close()
	})
}

// refusals serves for twenty minutes, in which the broker refuses: each time with the same event, at most once a minute or so. It
// returns the last reason.
func (m *memClient) refusals(s Service, event string) error {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	s.Handler = func(context.Context, *Message) (any, error) { return nil, nil }
	err := m.Serve(ctx, s)
	e := m.seenEvents()
	if n := len(e); n < 20 || n > 35 || slices.ContainsFunc(e, func(s string) bool { return s != event }) {
		m.t.Errorf("%d events: %q", n, e)
	}
	return err
}

// TestSharedQueueDenied: a queue that is not ours alone is as the options say, so nothing but other options help. That is said,
// and tried again at most once a minute or so.
func TestSharedQueueDenied(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		b.deny = true
		c := b.client(t, "hv1", nil)
		err := c.refusals(Service{Topics: []string{"t"}, Shared: true}, "Refused ")
		var r *RefusedError
		if !errors.As(err, &r) || !strings.Contains(err.Error(), "set amqp_durable_queues") || !strings.Contains(err.Error(), "transient_nonexcl_queues") {
			t.Errorf("%v", err)
		}
		if c.refused.Next > refusalMax || c.refused.Next < refusalMax/2 || c.refused.Addr != "b1:5672" {
			t.Errorf("%+v", c.refused)
		}
		b.do(func() { b.deny = false })
		time.Sleep(refusalMax)
		c.wantEvents("Connected")
		c.close()
	})
}

// TestOldBroker: what its release does not have is refused with the reason, not with what came of asking again, and with the
// option to change.
func TestOldBroker(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		b.old = true
		c := b.client(t, "hv1", func(cfg *Config) { cfg.Rabbit.TransientQuorumQueue = true })
		err := c.refusals(Service{Topics: []string{"t"}}, "Refused "+c.layout.privateQ)
		if !refused(err, amqp.PreconditionFailed) || !strings.Contains(err.Error(), "invalid arg 'x-expires'") || !strings.Contains(err.Error(), "set rabbit_transient_quorum_queue = false") {
			t.Errorf("%v", err)
		}
		b.wantSaid(t, "queue.delete", 0)
		b.wantSaid(t, "connection.open", 1)
		b.do(func() { b.old = false })
		time.Sleep(refusalMax)
		c.wantEvents("Connected")
		c.close()
	})
}

// TestQueueOfANodeThatIsDown: a durable queue keeps its name while its node is down, so ours get other names.
func TestQueueOfANodeThatIsDown(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		b.version = "4.3.0"
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		if err := c.Call(context.Background(), Target{Topic: "t", Server: "hv1"}, "one", nil, nil); err != nil {
			t.Fatal(err)
		}
		private, reply := c.names()
		for _, name := range []string{private, reply} {
			down := refuse{amqp.NotFound, "NOT_FOUND - home node 'rabbit@b' of durable queue '" + name + "' in vhost '/' is down or inaccessible"}
			b.do(func() { b.refuse["queue.declare "+name] = slices.Repeat([]refuse{down}, 1000) })
			b.do(func() { b.refuse["queue.passive "+name] = slices.Repeat([]refuse{down}, 1000) })
		}
		b.cut()
		time.Sleep(10 * time.Second)
		c.wantEvents("Connected", "Disconnected", "SetupFailed "+reply, "SetupFailed "+private, "Gap the queue's node is down", "Connected")
		old, now := c.names()
		if !strings.HasPrefix(old, private+"~") || len(now) != len(reply)+9 {
			t.Errorf("%s and %s", old, now)
		}
		if err := c.Call(context.Background(), Target{Topic: "t", Server: "hv1"}, "two", nil, nil); err != nil {
			t.Error(err)
		}
		// Another node goes, with the new names.
		b.do(func() { b.refuse["queue.declare "+old] = slices.Repeat([]refuse{{amqp.NotFound, "down"}}, 2) })
		b.cut()
		time.Sleep(10 * time.Second)
		if now, _ := c.names(); now == old || len(now) != len(old) {
			t.Errorf("%s", now)
		}
		c.close()
		if names := b.queueNames(); !slices.Equal(names, slices.Sorted(slices.Values([]string{private, reply, old}))) {
			t.Errorf("queues after the end: %q", names) // those expire
		}
	})
}

// TestLeftoverOfPython: the stable name of the reply queue is the Python library's too, which makes it otherwise.
func TestLeftoverOfPython(t *testing.T) {
	for _, version := range []string{"3.8.9", "4.3.0"} {
		inMemory(t, func(t *testing.T, b *memBroker) {
			b.version = version
			name := "reply_hv1:neutron-openvswitch-agent:1"
			b.queues[name] = &memQueue{queue: queue{name: name, args: amqp.Table{"x-expires": int64(1_800_000)}}, bound: map[string]bool{}}
			c := b.client(t, "hv1", func(cfg *Config) { cfg.Rabbit.UseQueueManager = true })
			c.serve(Service{Topics: []string{"t"}})
			if err := c.Call(context.Background(), Target{Topic: "t", Server: "hv1"}, "m", nil, nil); err != nil {
				t.Error(err)
			}
			c.wantEvents("Connected")
			b.wantSaid(t, "queue.delete "+name, 1)
			b.do(func() {
				if q := b.queues[name]; q.durable != (version == "4.3.0") || q.args["x-expires"] != int64(240_000) {
					t.Errorf("%+v", q)
				}
			})
			c.close()
		})
	}
}

// TestConsumedBeforeBound: a queue that is consumed does not expire while the broker is busy with the bindings. One that cannot
// be bound is consumed once when it can, and what came first reaches the handler.
func TestConsumedBeforeBound(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		name := c.layout.privateQ
		b.do(func() { b.refuse["queue.bind "+name+" t_fanout t"] = []refuse{{amqp.ResourceError, "busy"}} })
		c.serve(Service{Topics: []string{"t"}})
		c.wantEvents("SetupFailed "+name, "Connected")
		b.do(func() {
			consume := slices.Index(b.said, "basic.consume "+name)
			bind := slices.IndexFunc(b.said, func(s string) bool { return strings.HasPrefix(s, "queue.bind ") })
			if consume < 0 || consume > bind {
				t.Errorf("%q", b.said)
			}
			if n := len(b.queues[name].consumers); n != 1 {
				t.Errorf("%d consumers", n)
			}
		})
		if err := c.Cast(context.Background(), Target{Topic: "t", Fanout: true}, "n", nil); err != nil {
			t.Error(err)
		}
		if got := c.methods(); !slices.Equal(got, []string{"n"}) {
			t.Errorf("handled %q", got)
		}
		c.close()
	})
}

// TestRefusals: what lasts, and what helps.
func TestRefusals(t *testing.T) {
	said := func(code int, text string) error {
		return fmt.Errorf("declaring: %w", &amqp.Error{Code: code, Reason: text, Server: true})
	}
	for _, tt := range []struct {
		err error
		do  string // the beginning, "" for what may pass
	}{
		{errors.New("no route to host"), ""},
		{said(amqp.NotFound, "NOT_FOUND - no queue"), ""},
		{said(amqp.InternalError, "INTERNAL_ERROR"), ""},
		{said(amqp.ResourceLocked, "RESOURCE_LOCKED"), ""},
		{said(amqp.PreconditionFailed, "PRECONDITION_FAILED - queue 't_fanout' does not have a replica on the local node"), ""},
		{said(amqp.AccessRefused, "ACCESS_REFUSED - configure access to queue 'q' refused"), "give the user"},
		{fmt.Errorf("logging in: %w", amqp.ErrCredentials), "check user and password"},
		{fmt.Errorf("logging in: %w", amqp.ErrSASL), "set rabbit_login_method"},
		{said(amqp.NotAllowed, "NOT_ALLOWED - vhost v not found"), "check the virtual host"},
		{said(amqp.NotImplemented, "NOT_IMPLEMENTED"), "switch off"},
		{said(amqp.InternalError, "INTERNAL_ERROR - Feature `transient_nonexcl_queues` is deprecated."), "set amqp_durable_queues"},
		{said(amqp.InternalError, "INTERNAL_ERROR - Feature `global_qos` is deprecated."), "permit the feature"},
		{said(amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid property 'non-durable' for queue 't'"), "set amqp_durable_queues"},
		{said(amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'q'"), "set rabbit_transient_quorum_queue = false"},
		{said(amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue 'q'"), "switch off the options of queue types"},
		{said(amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid arg 'x-delivery-limit' for queue 'q'"), "switch off the [oslo_messaging_rabbit] option"},
		{said(amqp.PreconditionFailed, "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for exchange 'neutron'"), "set amqp_auto_delete as in"},
		{said(amqp.PreconditionFailed, "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 't'"), "set rabbit_quorum_queue as in"},
		{said(amqp.PreconditionFailed, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 't_fanout'"), "delete the queue or exchange"},
	} {
		r := refusal(&setupError{"q", tt.err})
		if (r == nil) != (tt.do == "") || r != nil && (!strings.HasPrefix(r.Do, tt.do) || r.Queue != "q" || !strings.HasSuffix(r.Error(), r.Do)) {
			t.Errorf("%v: %v, want %s", tt.err, r, tt.do)
		}
	}
	for version, want := range map[string]bool{"": false, "x": false, "3.13.7": false, "4.2.9": false, "4.3.0-rc.1": true, "4.10.0": true, "5.0.0": true} {
		if got := transientDenied(amqp.Table{"product": "RabbitMQ", "version": version}); got != want {
			t.Errorf("RabbitMQ %s: %t", version, got)
		}
	}
	if transientDenied(amqp.Table{"product": "LavinMQ", "version": "5.0"}) {
		t.Error("the version is another program's")
	}
	r := DefaultRabbit()
	for refusals, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute} {
		if d := refusalDelay(r, refusals, 1, func() float64 { return 1 }); d != want {
			t.Errorf("after %d refusals %s, want %s", refusals, d, want)
		}
	}
	if d := refusalDelay(r, 3, 2, func() float64 { return 1 }); d != r.RetryInterval/4 {
		t.Errorf("the other host after %s", d)
	}
}
