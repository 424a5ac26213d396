// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestWhichHost: in turn, from a random first one on, or by chance each time.
func TestWhichHost(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		random   float64
		want     []string
	}{
		{"round-robin", 0, []string{"b2:5672", "b1:5672", "b2:5672", "b1:5672"}}, {"shuffle", 0, []string{"b2:5672", "b2:5672", "b2:5672", "b2:5672"}},
		{"round-robin", 0.9, []string{"b1:5672", "b2:5672", "b1:5672", "b2:5672"}}, {"shuffle", 0.9, []string{"b2:5672", "b2:5672", "b2:5672", "b2:5672"}},
	} {
		strategy, want := tt.strategy, tt.want
		synctest.Test(t, func(t *testing.T) {
			c, events := unreachable(t, func(cfg *Config) {
				cfg.Rabbit.FailoverStrategy, cfg.Rand = strategy, func() float64 { return tt.random }
			})
			time.Sleep(10 * time.Minute)
			var tried []string
			for _, e := range events()[:4] {
				tried = append(tried, e.(ConnectFailed).Addr)
			}
			if !slices.Equal(tried, want) {
				t.Errorf("%s: %v, want %v", strategy, tried, want)
			}
			if cap(c.slots) != 1024 || cap(c.replySlots) != 1024 || c.cfg.MaxMessage != 128<<20 || c.cfg.MaxBacklog != 64<<20 || c.cfg.MaxTimeout != 10*time.Minute {
				t.Errorf("%+v", c.cfg)
			}
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBoundsOfCalls: more than may be in flight wait for their turn, and what cannot be encoded is not sent.
func TestBoundsOfCalls(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", func(cfg *Config) { cfg.MaxInFlight = 1 })
		b.do(func() { b.exchanges["neutron"] = exchange{"neutron", "topic", false, false, ""} })
		b.do(func() { b.queues["t"] = &memQueue{queue: queue{name: "t"}, bound: map[string]bool{"neutron t": true}} }) // nobody answers
		call := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			return c.Call(ctx, Target{Topic: "t"}, "m", nil, nil)
		}
		first := make(chan error)
		go func() { first <- call(10 * time.Second) }()
		settle()
		began := time.Now()
		if err := call(time.Second); !errors.Is(err, ErrTimeout) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		b.wantSaid(t, "basic.publish neutron t", 1)
		if err := <-first; !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
		if err := call(time.Second); !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
		b.wantSaid(t, "basic.publish neutron t", 2)
		for name, err := range map[string]error{
			"call": c.Call(context.Background(), Target{Topic: "t"}, "m", make(chan int), nil), "cast": c.Cast(context.Background(), Target{Topic: "t"}, "m", make(chan int)),
		} {
			if err == nil {
				t.Errorf("a %s of what cannot be encoded is sent", name)
			}
		}
		b.do(func() { b.silent = true })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Cast(ctx, Target{Topic: "t"}, "m", nil); !errors.Is(err, ErrTimeout) {
			t.Errorf("a broker that confirms nothing: %v", err)
		}
		b.do(func() { b.silent = false })
		b.cut()
		time.Sleep(time.Minute)
		c.close()
	})
}

// TestQueueThatCannotBeConsumed: declared and yet not found, our own is made anew; one of others is left alone.
func TestQueueThatCannotBeConsumed(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		name := c.layout.privateQ
		b.do(func() { b.refuse["basic.consume "+name] = []refuse{{amqp.NotFound, "no home"}} })
		b.do(func() { b.refuse["basic.consume t"] = []refuse{{amqp.NotFound, "no home"}} })
		c.serve(Service{Topics: []string{"t"}, Shared: true})
		c.wantEvents("SetupFailed "+name, "SetupFailed t", "Connected") // no gap: nothing was bound yet
		b.wantSaid(t, "queue.delete "+name, 1)
		b.wantSaid(t, "queue.delete t", 0)
		// Refused otherwise, it stays.
		b.do(func() { b.refuse["basic.consume "+name] = []refuse{{amqp.AccessRefused, "no"}} })
		b.cut()
		time.Sleep(time.Minute)
		b.wantSaid(t, "queue.delete "+name, 1)
		c.wantEvents("Disconnected", "Refused "+name, "Connected")
		// A binding that is gone is no reason to fail, anything else is.
		what := fmt.Sprintf("queue.unbind %s t_fanout t", name)
		b.do(func() { b.refuse[what] = []refuse{{amqp.NotFound, "gone"}} })
		c.serve(Service{Topics: []string{"u"}, Shared: true})
		c.wantEvents()
		b.do(func() {
			b.refuse[fmt.Sprintf("queue.unbind %s u_fanout u", name)] = []refuse{{amqp.AccessRefused, "no"}}
		})
		c.serve(Service{Topics: []string{"v"}, Shared: true})
		c.wantEvents("Refused "+name, "Connected")
		time.Sleep(time.Hour)
		c.wantEvents() // it is over: no further attempt
		// An exchange that was last used between its declaration and the binding.
		b.do(func() { b.refuse[fmt.Sprintf("queue.bind %s w_fanout w", name)] = []refuse{{amqp.NotFound, "gone"}} })
		c.serve(Service{Topics: []string{"w"}})
		c.wantEvents()
		b.wantSaid(t, "exchange.declare w_fanout", 2)
		c.close()
	})
	// Declared while a cluster elects: once more is enough, and more than once is not tried.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		name := c.layout.privateQ
		b.do(func() { b.refuse["queue.declare "+name] = []refuse{{amqp.NotFound, "electing"}} })
		c.serve(Service{Topics: []string{"t"}})
		c.wantEvents("Connected")
		b.wantSaid(t, "queue.declare "+name, 3) // the first time on the main channel
		c.close()
	})
	// An internal error costs the connection, and time.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		b.do(func() { b.refuse["queue.declare "+c.layout.privateQ] = []refuse{{}} })
		began := time.Now()
		c.serve(Service{Topics: []string{"t"}})
		if took := time.Since(began); took < 500*time.Millisecond || took > time.Second {
			t.Errorf("took %s", took)
		}
		c.wantEvents("Disconnected", "Connected")
		c.close()
	})
}

// TestOldIDsGo: the latest are remembered, at most twice as many as are due, however many came.
func TestOldIDsGo(t *testing.T) {
	const due = 40
	s := newSeenIDs(due)
	for i := range 10 * due {
		if !s.first(fmt.Sprint("x", i)) {
			t.Fatal(i)
		}
		for old := range i + 1 {
			k := hashID(fmt.Sprint("x", old))
			if known := s.now.has(k) || s.old.has(k); old > i-due && !known || old <= i-2*due && known {
				t.Fatalf("after %d: %d is remembered: %v", i, old, known)
			}
		}
	}
}

// TestVersions: what counts as served.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		served, requested string
		want              bool
	}{
		{"1.4", "1.4", true}, {"1.4", "1.5", false}, {"1.4", "", true}, {"1", "1.0", true}, {"1.4.9", "1.4", true}, {"2.0", "1.0", false}, {"1.0", "2.0", false}, {"x", "1.0", false},
		{"1.x", "1.0", false}, {"1.0", "x", false}, {"1.4", "1.4.7", true}, {"1.10", "1.9", true},
	} {
		if got := VersionServed(c.served, c.requested); got != c.want {
			t.Errorf("%s for %s: %v", c.served, c.requested, got)
		}
	}
	if !strings.Contains((&TooLargeError{Size: 5, Limit: 3}).Error(), "3") {
		t.Error("the limit is not named")
	}
}

// TestSchemes: letters, then letters, digits and three signs.
func TestSchemes(t *testing.T) {
	for text, want := range map[string]bool{"a1+-.Z:x": true, "a{b:x": false, "@b:x": false, "1b:x": false, "a:": true, ":x": false, "ab": false, "a_b:x": false, "z:x": true, "[b:x": false, "`b:x": false} {
		if scheme, rest, ok := cutScheme(text); ok != want || ok && strings.ToLower(text) != scheme+":"+rest {
			t.Errorf("%s: %q, %q, %v", text, scheme, rest, ok)
		}
	}
}

// TestOpenBracket: an address that does not end is refused, not read past.
func TestOpenBracket(t *testing.T) {
	if h, err := parseHost("[::1"); err == nil {
		t.Errorf("%+v", h.Addr())
	}
	if h, err := parseHost("[]:5"); err != nil || h.Name != "" || h.Port != 5 {
		t.Errorf("%+v, %v", h.Addr(), err)
	}
}

// TestEnvelopesOfOthers: another version, or none that can be read, is not taken; a failure that cannot be read is one.
func TestEnvelopesOfOthers(t *testing.T) {
	for text, want := range map[string]bool{
		`{"oslo.version":"2.0","oslo.message":"{\"method\":\"m\"}"}`: true, `{"oslo.version":"3.0","oslo.message":"{}"}`: false, `{"oslo.version":2,"oslo.message":"{}"}`: false,
		`{"oslo.message":"{\"method\":\"m\"}","oslo.version":"2.0"}`: true, `{"oslo.message":"{}","oslo.version":"3.0"}`: false, `{"oslo.message":3,"oslo.version":"2.0"}`: false,
		`{"oslo.version":"2.0","oslo.message":"{}"} x`: false, `{"method":"m"}`: true, `{"method":"m"} x`: false, `[]`: false, `{"method":5}`: false, `{"version":5}`: false, `{"namespace":5}`: false,
		`{"_unique_id":5}`: false, `{"_msg_id":5}`: false, `{"_reply_q":5}`: false, `{"oslo.version":"2.0","x":}`: false,
		`{"oslo.version":"2.0","oslo.message":"{"}`: false, `{"oslo.version":"2.0","oslo.message":3}`: false, `{"oslo.version":"2.1","oslo.message":"{}"}`: false,
	} {
		w, err := decodeMessage([]byte(text))
		if (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
		if err == nil && w.method != "m" {
			t.Errorf("%s: method %q", text, w.method)
		}
	}
	for _, text := range []string{`"x"`, `7`, `{`, `"{\"class\":"`} {
		if err := decodeFailure([]byte(text)); err == nil {
			t.Errorf("%s is no failure", text)
		}
	}
}
