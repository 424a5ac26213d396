// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// memClient is a client of a broker in memory, with what happened to it.
type memClient struct {
	*Client
	t       *testing.T
	mu      sync.Mutex
	events  []string
	lost    error   // why the last connection ended
	refused Refused // the last one
	got     []Message
}

// inMemory runs a test in virtual time. What does not end hangs the bubble and fails the test.
func inMemory(t *testing.T, test func(t *testing.T, b *memBroker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newMemBroker()) })
}

func (b *memBroker) client(t *testing.T, host string, change func(*Config)) *memClient {
	t.Helper()
	m := &memClient{t: t}
	cfg := testConfig(t, "rabbit://user:hunter2@b1/")
	cfg.Host, cfg.Dial, cfg.Rand = host, b.dial, func() float64 { return 0.5 }
	cfg.OnEvent = func(e Event) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.events = append(m.events, strings.TrimPrefix(fmt.Sprintf("%T", e), "messaging."))
		switch e := e.(type) {
		case Disconnected:
			m.lost = e.Err
		case Gap:
			m.events[len(m.events)-1] += " " + e.Reason
		case Fallback:
			m.events[len(m.events)-1] += " " + e.Name
		case Blocked:
			m.events[len(m.events)-1] += " " + e.Reason
		case Refused:
			m.events[len(m.events)-1] += " " + e.Err.Queue
			m.refused = e
		case SetupFailed:
			m.events[len(m.events)-1] += " " + e.Queue
		case Dropped:
			m.events[len(m.events)-1] += " " + e.Exchange + " " + e.RoutingKey
		case ReplyAbandoned:
			m.events[len(m.events)-1] += " " + e.Queue + " " + e.Method
		}
	}
	if change != nil {
		change(&cfg)
	}
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.Client = c
	return m
}

// close ends a client, which takes its queues with it.
func (m *memClient) close() {
	m.t.Helper()
	if err := m.Close(context.Background()); err != nil {
		m.t.Errorf("closing: %v", err)
	}
}

// seen are the events so far, which are then forgotten.
func (m *memClient) seenEvents() []string {
	settle()
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.events
	m.events = nil
	return e
}

func (m *memClient) wantEvents(want ...string) {
	m.t.Helper()
	if got := m.seenEvents(); !slices.Equal(got, want) {
		m.t.Errorf("events %q, want %q", got, want)
	}
}

// serve answers with the arguments, and notes what came.
func (m *memClient) serve(svc Service) {
	m.t.Helper()
	if svc.Handler == nil {
		svc.Handler = func(_ context.Context, msg *Message) (any, error) {
			m.mu.Lock()
			got := *msg
			got.wire = nil
			m.got = append(m.got, got)
			m.mu.Unlock()
			if msg.Method == "fail" {
				return nil, errors.New("no such thing")
			}
			return msg.Args, nil
		}
	}
	if err := m.Serve(context.Background(), svc); err != nil {
		m.t.Fatal(err)
	}
}

// methods are those of the messages so far.
func (m *memClient) methods() []string {
	settle()
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, g := range m.got {
		all = append(all, g.Method)
	}
	return all
}

func (b *memBroker) wantSaid(t *testing.T, what string, want int) {
	t.Helper()
	settle()
	if got := b.count(what); got != want {
		t.Errorf("%s %d times, want %d", what, got, want)
	}
}

func echo(c *memClient, method string) error {
	var result struct{ N int }
	err := c.Call(context.Background(), Target{Topic: "t", Version: "1.0"}, method, map[string]int{"N": 7}, &result)
	if err == nil && result.N != 7 {
		return fmt.Errorf("answered %+v", result)
	}
	return err
}

func TestCallsAndCasts(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		server := b.client(t, "s1", nil)
		server.serve(Service{Topics: []string{"t"}, Shared: true})
		c := b.client(t, "hv1", nil)
		if err := c.Ready(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := echo(c, "m"); err != nil {
			t.Error(err)
		}
		var remote *RemoteError
		if err := echo(c, "fail"); !errors.As(err, &remote) || remote.Message != "no such thing" || remote.Class != "RuntimeError" {
			t.Errorf("a failure comes back as %v", err)
		}
		ctx := context.Background()
		for _, target := range []Target{{Topic: "t"}, {Topic: "t", Server: "s1"}, {Topic: "t", Fanout: true}, {Topic: "t", Server: "other"}} {
			if err := c.Cast(ctx, target, "cast", nil); err != nil {
				t.Errorf("%+v: %v", target, err)
			}
			settle() // each has a queue of its own, and queues come in any order
		}
		if err := c.Call(ctx, Target{Topic: "t", Fanout: true}, "m", nil, nil); err == nil {
			t.Error("a call to all servers is taken")
		}
		settle()
		type seen struct {
			Topic, Method, Version string
			Fanout, Directed, Call bool
		}
		var got []seen
		for _, m := range server.got {
			got = append(got, seen{m.Topic, m.Method, m.Version, m.Fanout, m.Directed, m.Call})
		}
		want := []seen{
			{"t", "m", "1.0", false, false, true}, {"t", "fail", "1.0", false, false, true},
			{"t", "cast", "", false, false, false}, {"t", "cast", "", false, true, false}, {"t", "cast", "", true, false, false},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		c.wantEvents("Connected")
		server.wantEvents("Connected")
		b.wantSaid(t, "exchange.declare neutron", 2) // once a connection
		b.wantSaid(t, "exchange.declare t_fanout", 2)
		b.wantSaid(t, "connection.open /", 2)
		c.close()
		if names := b.queueNames(); len(names) != 2 {
			t.Errorf("queues after one client closed: %q", names)
		}
		server.close()
		if names := b.queueNames(); !slices.Equal(names, []string{"t"}) {
			t.Errorf("queues after both closed: %q", names)
		}
		b.wantSaid(t, "connection.close", 2)
	})
}

func TestLogins(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		for _, method := range []string{"AMQPLAIN", "plain", "EXTERNAL", ""} {
			c := b.client(t, "hv1", func(cfg *Config) { cfg.Rabbit.LoginMethod = method })
			if err := c.Ready(context.Background()); err != nil {
				t.Fatal(err)
			}
			want := strings.ToUpper(method)
			if want == "" {
				want = "AMQPLAIN"
			}
			b.do(func() {
				if got := b.conns[0].login; got != want {
					t.Errorf("login method %s, want %s", got, want)
				}
			})
			c.close()
			settle()
		}
	})
}

// TestPrivateQueue: its flags, its time to live, and the prefetch counts.
func TestPrivateQueue(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t", "u"}})
		name := c.layout.privateQ
		b.do(func() {
			q := b.queues[name]
			want := map[string]bool{"neutron t.hv1": true, "neutron u.hv1": true, "t_fanout t": true, "u_fanout u": true}
			if q == nil || q.durable || q.autoDelete || q.args["x-expires"] != int64(240_000) || !cmp.Equal(q.bound, want) {
				t.Errorf("%+v", q)
			}
			if e := b.exchanges["t_fanout"]; e != (exchange{"t_fanout", "fanout", false, true, ""}) {
				t.Errorf("%+v", e)
			}
		})
		b.wantSaid(t, "basic.qos 256", 1)
		b.wantSaid(t, "queue.declare", 1)
		// Other topics: what is no longer served is no longer bound.
		c.serve(Service{Topics: []string{"u", "v"}})
		b.do(func() {
			want := map[string]bool{"neutron u.hv1": true, "neutron v.hv1": true, "u_fanout u": true, "v_fanout v": true}
			if q := b.queues[name]; !cmp.Equal(q.bound, want) {
				t.Errorf("bound %v", q.bound)
			}
		})
		b.wantSaid(t, "queue.declare", 1)
		b.wantSaid(t, "queue.bind", 6)
		b.wantSaid(t, "queue.unbind", 2)
		c.close()
	})
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", func(cfg *Config) { cfg.Rabbit.PrefetchCount = 9 })
		c.serve(Service{Topics: []string{"t"}})
		b.wantSaid(t, "basic.qos 9", 1)
		if err := c.Call(context.Background(), Target{Topic: "t", Server: "hv1"}, "m", nil, nil); err != nil {
			t.Error(err)
		}
		b.wantSaid(t, "basic.qos 256", 1)
		c.close()
	})
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}, Concurrency: 200})
		b.wantSaid(t, "basic.qos 400", 1)
		c.close()
	})
}

// TestSharedTopicEnds: the queue stays for others, and our consumer goes.
func TestSharedTopicEnds(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "s1", nil)
		c.serve(Service{Topics: []string{"t", "u"}, Shared: true})
		c.serve(Service{Topics: []string{"u"}, Shared: true})
		b.wantSaid(t, "basic.cancel t", 1)
		b.do(func() {
			if len(b.queues["t"].consumers) != 0 || len(b.queues["u"].consumers) != 1 {
				t.Error("wrong consumers")
			}
		})
		if got := c.ownQueues(); !slices.Equal(got, []string{c.layout.privateQ}) {
			t.Errorf("own queues %q", got)
		}
		// Served again, it is made and consumed again.
		c.serve(Service{Topics: []string{"t", "u"}, Shared: true})
		b.wantSaid(t, "queue.declare t", 2)
		b.do(func() {
			if len(b.queues["t"].consumers) != 1 {
				t.Error("not consumed again")
			}
		})
		c.close()
	})
}

// TestLostConnection: the same queue is consumed again, after about a second, and nothing is missed.
func TestLostConnection(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		b.cut()
		c.wantEvents("Connected", "Disconnected")
		if c.trouble() == nil {
			t.Error("there is no connection, and no reason")
		}
		if err := c.Call(context.Background(), Target{Topic: "t", Server: "nobody"}, "m", nil, nil); err == nil {
			t.Error("nobody answers")
		} else if !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
		b.do(func() { b.said = nil })
		b.cut()
		began := time.Now()
		settle()
		if err := c.Ready(context.Background()); err != nil {
			t.Fatal(err)
		}
		if took := since(began); took != time.Second {
			t.Errorf("connected again after %s", took)
		}
		if settle(); c.trouble() != nil {
			t.Errorf("connected again, and yet %v", c.trouble())
		}
		b.wantSaid(t, "queue.passive", 1) // the private queue; replies need no look
		b.wantSaid(t, "queue.declare", 2)
		if e := c.seenEvents(); slices.ContainsFunc(e, func(s string) bool { return strings.HasPrefix(s, "Gap") }) {
			t.Errorf("events %q", e)
		}
		c.close()
	})
}

// TestGap: a queue that is gone is a gap, reported once, before its first message.
func TestGap(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		b.do(func() { delete(b.queues, c.layout.privateQ) })
		b.cut()
		time.Sleep(2 * time.Second)
		c.wantEvents("Connected", "Disconnected", "Gap the queue was lost", "Connected")
		b.cut()
		time.Sleep(2 * time.Second)
		c.wantEvents("Disconnected", "Connected")
		// The broker ends the consumer, with the connection up.
		b.do(func() { b.deleteQueue(c.layout.privateQ) })
		c.wantEvents("Gap the queue was lost")
		b.wantSaid(t, "queue.declare "+c.layout.privateQ, 4)
		c.close()
	})
	// A durable queue outlives its exchange, which takes the binding with it.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", func(cfg *Config) { cfg.Rabbit.TransientQuorumQueue = true })
		c.serve(Service{Topics: []string{"t"}})
		b.cut()
		time.Sleep(2 * time.Second)
		c.wantEvents("Connected", "Disconnected", "Connected")
		b.wantSaid(t, "exchange.passive", 3) // both, and the witness of those that are not durable
		b.do(func() { delete(b.exchanges, "t_fanout") })
		b.cut()
		time.Sleep(2 * time.Second)
		c.wantEvents("Disconnected", "Gap the exchange t_fanout was lost", "Connected")
		c.close()
	})
}

// TestRepliesQueueLost: calls work again although the reply queue was deleted.
func TestRepliesQueueLost(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		server := b.client(t, "s1", nil)
		server.serve(Service{Topics: []string{"t"}, Shared: true})
		c := b.client(t, "hv1", nil)
		if err := echo(c, "m"); err != nil {
			t.Fatal(err)
		}
		b.do(func() { b.deleteQueue(c.layout.replyQ) })
		settle()
		if err := echo(c, "m"); err != nil {
			t.Error(err)
		}
		c.wantEvents("Connected")
		b.wantSaid(t, "queue.declare "+c.layout.replyQ, 2)
		c.close()
		server.close()
	})
}

// TestCallOverLostConnection: a request that was not confirmed is sent again with the same ids, and the server, which has
// seen it, does not run it twice.
func TestCallOverLostConnection(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		server := b.client(t, "s1", nil)
		server.serve(Service{Topics: []string{"t"}, Shared: true})
		c := b.client(t, "hv1", nil)
		if err := echo(c, "warm"); err != nil {
			t.Fatal(err)
		}
		b.do(func() { b.refuse["basic.publish neutron t"] = []refuse{{}} }) // hangs up instead of confirming
		began := time.Now()
		if err := echo(c, "m"); err != nil {
			t.Error(err)
		}
		if took := since(began); took != time.Second+resendGrace {
			t.Errorf("took %s", took)
		}
		if got := server.methods(); !slices.Equal(got, []string{"warm", "m"}) {
			t.Errorf("ran %q", got)
		}
		b.do(func() { b.nack = 2 })
		began = time.Now()
		if err := echo(c, "nacked"); err != nil || time.Since(began) != 2*retryPause {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		b.do(func() { b.nack = 1 })
		began = time.Now()
		if err := c.Cast(context.Background(), Target{Topic: "t"}, "cast", nil); err != nil || time.Since(began) != retryPause {
			t.Errorf("cast: %v after %s", err, time.Since(began))
		}
		b.do(func() { b.refuse["basic.publish neutron t"] = []refuse{{}} })
		if err := c.Cast(context.Background(), Target{Topic: "t"}, "cast", nil); err != nil {
			t.Errorf("cast over a lost connection: %v", err)
		}
		// An exchange that deleted itself is declared again.
		b.do(func() { delete(b.exchanges, "t_fanout") })
		if err := c.Cast(context.Background(), Target{Topic: "t", Fanout: true}, "cast", nil); err != nil {
			t.Error(err)
		}
		b.do(func() { delete(b.exchanges, "t_fanout") })
		if err := c.Cast(context.Background(), Target{Topic: "t", Fanout: true}, "cast", nil); err != nil {
			t.Errorf("to an exchange that is gone: %v", err)
		}
		c.close()
		server.close()
	})
}

// TestRefusedPublication: what repeating cannot change is returned at once.
func TestRefusedPublication(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		for _, code := range []uint16{amqp.AccessRefused, amqp.PreconditionFailed} {
			b.do(func() { b.refuse["exchange.declare neutron"] = []refuse{{code, "no"}} })
			began := time.Now()
			err := c.Cast(context.Background(), Target{Topic: "t"}, "m", nil)
			if !refused(err, int(code)) || since(began) != 0 {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			b.do(func() { b.refuse["exchange.declare neutron"] = []refuse{{code, "no"}} })
			if err := c.Call(context.Background(), Target{Topic: "t"}, "m", nil, nil); !refused(err, int(code)) {
				t.Errorf("call: %v", err)
			}
		}
		b.do(func() {
			b.refuse["exchange.declare neutron"] = []refuse{{amqp.ResourceError, "busy"}, {amqp.ResourceError, "busy"}}
		})
		began := time.Now()
		if err := c.Cast(context.Background(), Target{Topic: "t"}, "m", nil); err != nil || time.Since(began) != 2*retryPause {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		for range 3 {
			if err := c.Cast(context.Background(), Target{Topic: "t"}, "m", nil); err != nil {
				t.Error(err)
			}
		}
		b.wantSaid(t, "exchange.declare neutron", 8) // not for every message
		c.close()
	})
}

// TestOtherDurability: what exists with another durability is used as it is, and said.
func TestOtherDurability(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		b.do(func() { b.exchanges["neutron"] = exchange{"neutron", "topic", true, false, ""} })
		b.do(func() {
			b.queues["t"] = &memQueue{queue: queue{name: "t", durable: true, args: amqp.Table{}}, bound: map[string]bool{}}
		})
		c := b.client(t, "s1", nil)
		c.serve(Service{Topics: []string{"t"}, Shared: true})
		c.wantEvents("Fallback neutron", "Fallback t", "Connected")
		b.cut()
		time.Sleep(2 * time.Second)
		c.wantEvents("Disconnected", "Fallback neutron", "Connected") // of the queue it is remembered
		c.close()
	})
}

// TestLeftoverOwnQueue: a queue under our stable name with other arguments is made anew, unless somebody consumes it.
func TestLeftoverOwnQueue(t *testing.T) {
	stable := func(c *Config) { c.Rabbit.UseQueueManager = true }
	inMemory(t, func(t *testing.T, b *memBroker) {
		name := "neutron-openvswitch-agent_fanout_hv1:neutron-openvswitch-agent:1"
		b.do(func() {
			b.queues[name] = &memQueue{queue: queue{name: name, args: amqp.Table{"x-expires": int64(1)}}, bound: map[string]bool{}}
		})
		c := b.client(t, "hv1", stable)
		c.serve(Service{Topics: []string{"t"}})
		c.wantEvents("Connected")
		b.wantSaid(t, "queue.delete "+name, 1)
		b.do(func() {
			if got := b.queues[name].args["x-expires"]; got != int64(240_000) {
				t.Errorf("x-expires %v", got)
			}
		})
		c.close()
	})
	inMemory(t, func(t *testing.T, b *memBroker) {
		name := "neutron-openvswitch-agent_fanout_hv1:neutron-openvswitch-agent:1"
		b.queues[name] = &memQueue{
			queue: queue{name: name, args: amqp.Table{"x-expires": int64(1)}}, bound: map[string]bool{},
			consumers: []*memConsumer{{}},
		}
		c := b.client(t, "hv1", stable)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := c.Serve(ctx, Service{Topics: []string{"t"}, Handler: func(context.Context, *Message) (any, error) { return nil, nil }})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another consumer uses queue "+name) {
			t.Errorf("%v", err)
		}
		b.wantSaid(t, "queue.delete "+name, 0)
		b.do(func() { b.queues[name].consumers = nil })
		time.Sleep(time.Minute)
		e := c.seenEvents()
		if e[0] != "SetupFailed "+name || e[len(e)-1] != "Connected" || len(e) < 3 || len(e) > 8 {
			t.Errorf("events %q", e)
		}
		c.close()
	})
}

func TestRemoveLeftovers(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		add := func(name string, consumers ...*memConsumer) {
			b.queues[name] = &memQueue{queue: queue{name: name}, consumers: consumers}
		}
		add("a.hv1")
		add("b.hv1", &memConsumer{})
		add("d.hv1")
		c := b.client(t, "hv1", nil)
		removed, err := c.RemoveLeftovers(context.Background(), []string{"a", "b", "c"}, "hv1")
		if err != nil || !slices.Equal(removed, []string{"a.hv1"}) {
			t.Errorf("%q, %v", removed, err)
		}
		// Where the first is not there nobody asks for the others.
		if removed, err := c.RemoveLeftovers(context.Background(), []string{"a", "d"}, "hv1"); err != nil || removed != nil {
			t.Errorf("%q, %v", removed, err)
		}
		b.wantSaid(t, "queue.passive d.hv1", 0)
		// It goes last: what ends before is taken up by the next attempt.
		b.do(func() {
			add("a.hv1")
			b.refuse["queue.delete d.hv1"] = []refuse{{amqp.AccessRefused, "no"}}
		})
		if removed, err := c.RemoveLeftovers(context.Background(), []string{"a", "d"}, "hv1"); !refused(err, amqp.AccessRefused) || removed != nil {
			t.Errorf("%q, %v", removed, err)
		}
		b.do(func() { b.deleteQueue("a.hv1") })
		b.do(func() { b.refuse["queue.delete d.hv1"] = []refuse{{amqp.PreconditionFailed, "in use"}} })
		if removed, err := c.RemoveLeftovers(context.Background(), []string{"d"}, "hv1"); err != nil || removed != nil {
			t.Errorf("%q, %v", removed, err)
		}
		b.do(func() { b.refuse["queue.passive d.hv1"] = []refuse{{amqp.AccessRefused, "no"}} })
		if removed, err := c.RemoveLeftovers(context.Background(), []string{"d"}, "hv1"); !refused(err, amqp.AccessRefused) || removed != nil {
			t.Errorf("%q, %v", removed, err)
		}
		if names := b.queueNames(); !slices.Equal(names, []string{"b.hv1", "d.hv1"}) {
			t.Errorf("queues %q", names)
		}
		c.close()
	})
}
