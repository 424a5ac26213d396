// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func testConfig(t testing.TB, url string) Config {
	t.Helper()
	u, err := ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return Config{URL: u, Exchange: "neutron", Rabbit: DefaultRabbit(), Program: "neutron-openvswitch-agent", Host: "hv1"}
}

// TestDefaults: what is not set has a default, and whatever is set is as it is.
func TestDefaults(t *testing.T) {
	cfg := testConfig(t, "rabbit://h")
	cfg.Exchange, cfg.Rabbit = "", Rabbit{}
	if err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	if cfg.Exchange != "openstack" || cfg.Rabbit != DefaultRabbit() || cfg.Timeout != time.Minute || cfg.MaxTimeout != 10*time.Minute || cfg.Instance != 1 || cfg.MaxInFlight != 1024 ||
		cfg.MaxMessage != 128<<20 || cfg.MaxBacklog != 64<<20 || cfg.OnEvent == nil || cfg.Dial == nil || cfg.Rand == nil {
		t.Errorf("%+v", cfg)
	}
	cfg.OnEvent(Unblocked{})
	if x := cfg.Rand(); x < 0 || x >= 1 {
		t.Error(x)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cfg.Dial(ctx, "tcp", "127.0.0.1:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("dialing: %v", err)
	}
	set := testConfig(t, "rabbit://h")
	set.Rabbit.RetryInterval, set.Timeout, set.MaxTimeout, set.Instance, set.MaxInFlight, set.MaxMessage, set.MaxBacklog = 1, 1, 1, 2, 1, 1, 1
	if err := set.fill(); err != nil {
		t.Fatal(err)
	}
	if set.Rabbit.RetryInterval != 1 || set.Timeout != 1 || set.MaxTimeout != 1 || set.Instance != 2 || set.MaxInFlight != 1 || set.MaxMessage != 1 || set.MaxBacklog != 1 || set.Exchange != "neutron" {
		t.Errorf("%+v", set)
	}
	set.Rabbit.RetryInterval = 0
	if err := set.fill(); err != nil || set.Rabbit.RetryInterval != time.Second {
		t.Errorf("%s, %v", set.Rabbit.RetryInterval, err)
	}
}

func TestOpenRefusesBadOptions(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"mirrored and quorum":     func(c *Config) { c.Rabbit.HAQueues, c.Rabbit.QuorumQueue = true, true },
		"stream without quorum":   func(c *Config) { c.Rabbit.StreamFanout, c.Rabbit.PrefetchCount = true, 1 },
		"stream without prefetch": func(c *Config) { c.Rabbit.StreamFanout, c.Rabbit.TransientQuorumQueue = true, true },
		"unknown login":           func(c *Config) { c.Rabbit.LoginMethod = "RABBIT-CR-DEMO" },
		"unknown compression":     func(c *Config) { c.Rabbit.Compression = "lzma" },
		"unknown failover":        func(c *Config) { c.Rabbit.FailoverStrategy = "x" },
		"unknown query":           func(c *Config) { c.URL.Query = map[string]string{"nosuch": "1"} },
		"missing authority":       func(c *Config) { c.Rabbit.TLS, c.Rabbit.TLSCAFile = true, "/nonexistent" },
		"unknown TLS version":     func(c *Config) { c.Rabbit.TLS, c.Rabbit.TLSVersion = true, "SSLv3" },
		"no program":              func(c *Config) { c.Program = "" },
		"no url":                  func(c *Config) { c.URL = URL{} },
	} {
		cfg := testConfig(t, "rabbit://h")
		change(&cfg)
		if c, err := Open(cfg); err == nil {
			t.Errorf("%s: accepted", name)
			_ = c.Close(context.Background())
		}
	}
}

func TestLayout(t *testing.T) {
	id := func() string { return "0123" }
	for _, tt := range []struct {
		name                      string
		set                       func(*Config)
		reply, private            string
		ownDurable                bool
		ownArgs, sharedArgs       amqp.Table
		control, fanout           exchange
		sharedDurable, sharedAuto bool
	}{
		{
			name: "defaults", set: func(*Config) {},
			reply: "reply_0123", private: "neutron-openvswitch-agent_fanout_hv1_0123",
			ownArgs: amqp.Table{"x-expires": int64(240_000)}, sharedArgs: amqp.Table{},
			control: exchange{"neutron", "topic", false, false, ""}, fanout: exchange{"t_fanout", "fanout", false, true, ""},
		},
		{
			name: "durable, mirrored, short ttl", set: func(c *Config) {
				c.Rabbit.DurableQueues, c.Rabbit.HAQueues, c.Rabbit.AutoDelete = true, true, true
				c.Rabbit.TransientQueuesTTL = time.Minute
			},
			reply: "reply_0123", private: "neutron-openvswitch-agent_fanout_hv1_0123",
			ownArgs:    amqp.Table{"x-expires": int64(60_000), "x-ha-policy": "all"},
			sharedArgs: amqp.Table{"x-ha-policy": "all"}, sharedDurable: true, sharedAuto: true,
			control: exchange{"neutron", "topic", true, true, ""}, fanout: exchange{"t_fanout", "fanout", false, true, ""},
		},
		{
			name: "quorum, queue manager", set: func(c *Config) {
				r := &c.Rabbit
				r.QuorumQueue, r.TransientQuorumQueue, r.QuorumDeliveryLimit, r.UseQueueManager, r.ProcessName = true, true, 3, true, "agent"
				r.TransientQueuesTTL = 0
			},
			reply: "reply_hv1:agent:1", private: "neutron-openvswitch-agent_fanout_hv1:agent:1", ownDurable: true,
			ownArgs:       amqp.Table{"x-expires": int64(240_000), "x-queue-type": "quorum", "x-delivery-limit": int64(3)},
			sharedArgs:    amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(3)},
			sharedDurable: true,
			control:       exchange{"neutron", "topic", true, false, ""}, fanout: exchange{"t_fanout", "fanout", true, true, ""},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t, "rabbit://h")
			tt.set(&cfg)
			if err := cfg.fill(); err != nil {
				t.Fatal(err)
			}
			l := newLayout(&cfg, id)
			own, shared := l.own("q"), l.shared("t")
			if l.replyQ != tt.reply || l.privateQ != tt.private {
				t.Errorf("names %s, %s", l.replyQ, l.privateQ)
			}
			if l.consumeArgs() != nil {
				t.Errorf("consumed with %v", l.consumeArgs())
			}
			l.rabbit.EnableCancelOnFailover = true
			if got := l.consumeArgs(); got["x-cancel-on-ha-failover"] != true {
				t.Errorf("consumed with %v", got)
			}
			if own.durable != tt.ownDurable || own.autoDelete || !cmp.Equal(own.args, tt.ownArgs) {
				t.Errorf("own queue %+v", own)
			}
			if shared.durable != tt.sharedDurable || shared.autoDelete != tt.sharedAuto || !cmp.Equal(shared.args, tt.sharedArgs) {
				t.Errorf("shared queue %+v", shared)
			}
			if l.controlExchange() != tt.control || l.fanoutExchange("t") != tt.fanout {
				t.Errorf("exchanges %+v %+v", l.controlExchange(), l.fanoutExchange("t"))
			}
		})
	}
}

func TestQueueNamesFitAMQP(t *testing.T) {
	for _, manager := range []bool{false, true} {
		cfg := testConfig(t, "rabbit://h")
		cfg.Program, cfg.Host, cfg.Rabbit.UseQueueManager = strings.Repeat("p", 300), strings.Repeat("ü", 300), manager
		l := newLayout(&cfg, newID)
		if len(l.privateQ) > 255 || len(l.replyQ) > 255 {
			t.Errorf("%d and %d bytes", len(l.privateQ), len(l.replyQ))
		}
	}
}

func TestRoute(t *testing.T) {
	l := layout{control: "neutron"}
	for _, tt := range []struct {
		to            Target
		exchange, key string
	}{
		{Target{Topic: "t"}, "neutron", "t"},
		{Target{Topic: "t", Server: "h.x"}, "neutron", "t.h.x"},
		{Target{Topic: "t", Fanout: true}, "t_fanout", ""},
	} {
		if e, key := l.route(tt.to); e.name != tt.exchange || key != tt.key {
			t.Errorf("%+v goes to %s, %s", tt.to, e.name, key)
		}
	}
}

func TestDelays(t *testing.T) {
	r := DefaultRabbit()
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(0, 0.999).Draw(t, "random")
		rnd := func() float64 { return x }
		hosts := rapid.IntRange(1, 5).Draw(t, "hosts")
		failures := rapid.IntRange(1, 100).Draw(t, "failures")
		if d := retryDelay(r, failures, hosts, rnd); d < 0 || d > r.IntervalMax {
			t.Fatalf("retryDelay(%d, %d) = %s", failures, hosts, d)
		}
		if d := reconnectDelay(r, rnd); d < r.ReconnectDelay/2 || d > 3*r.ReconnectDelay/2 {
			t.Fatalf("reconnectDelay = %s", d)
		}
	})
	half := func() float64 { return 1 }
	for x, want := range map[float64]time.Duration{0: time.Second, 0.5: 3 * time.Second, 1: 5 * time.Second} {
		if d := reconnectDelay(Rabbit{ReconnectDelay: 2 * time.Second, ReconnectSplay: 2 * time.Second}, func() float64 { return x }); d != want {
			t.Errorf("by chance %v: %s, want %s", x, d, want)
		}
	}
	for refusals, want := range map[int]time.Duration{1: 10 * time.Millisecond, 2: 20 * time.Millisecond, 10: 5120 * time.Millisecond, 11: 10240 * time.Millisecond, 12: 10240 * time.Millisecond, 99: 10240 * time.Millisecond} {
		if d := refusalDelay(Rabbit{RetryInterval: 10 * time.Millisecond}, refusals, 1, half); d != want {
			t.Errorf("after %d refusals %s, want %s", refusals, d, want)
		}
	}
	if d := refusalDelay(r, 4, 2, half); d != 2*time.Second {
		t.Errorf("after two rounds over two hosts %s", d)
	}
	if d := refusalDelay(r, 3, 2, half); d != retryDelay(r, 3, 2, half) {
		t.Errorf("before the second host %s", d)
	}
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 3 * time.Second, 3: 5 * time.Second, 99: 30 * time.Second} {
		if d := retryDelay(r, failures, 1, half); d != want {
			t.Errorf("after %d failures %s, want %s", failures, d, want)
		}
	}
}

func TestSeenIDs(t *testing.T) {
	s := newSeenIDs(3)
	a, b := newID(), "not a uuid"
	for i, tt := range []struct {
		id   string
		want bool
	}{{a, true}, {a, false}, {b, true}, {b, false}, {"", true}, {"", true}, {newID(), true}, {a, false}, {newID(), true}, {a, false}, {newID(), true}, {newID(), true}, {newID(), true}, {a, true}} {
		if got := s.first(tt.id); got != tt.want {
			t.Errorf("%d: first(%q) = %t", i, tt.id, got)
		}
	}
	if s.now.n != 2 || s.old.n != 3 {
		t.Errorf("%d and %d ids kept", s.now.n, s.old.n)
	}
}

func TestGoneQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g goneQueues
		g.add("q")
		if !g.has("q") || g.has("other") {
			t.Error("wrong queues")
		}
		time.Sleep(goneFor)
		if g.has("q") {
			t.Error("not forgotten")
		}
	})
}

// unreachable is a client whose broker refuses connections.
func unreachable(t *testing.T, change func(*Config)) (*Client, func() []Event) {
	t.Helper()
	var mu sync.Mutex
	var events []Event
	cfg := testConfig(t, "rabbit://user:hunter2@b1,user:hunter2@b2/")
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
	cfg.OnEvent = func(e Event) { mu.Lock(); defer mu.Unlock(); events = append(events, e) }
	if change != nil {
		change(&cfg)
	}
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() []Event { mu.Lock(); defer mu.Unlock(); return append([]Event(nil), events...) }
}

// TestTimeoutsGrow: 60, 120, 240, 480, 600, 600 s per method, each error with a random time to wait.
func TestTimeoutsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := unreachable(t, nil)
		call := func(method string) time.Duration {
			began := time.Now()
			err := c.Call(context.Background(), Target{Topic: "t"}, method, nil, nil)
			var te *TimeoutError
			if !errors.As(err, &te) || !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v", err)
			}
			if !errors.Is(err, te.Last) {
				t.Errorf("%v is not %v", err, te.Last)
			}
			if te.RetryAfter < 0 || te.RetryAfter > time.Minute || te.Last == nil {
				t.Errorf("%+v", te)
			}
			return time.Since(began)
		}
		for _, want := range []float64{60, 120, 240, 480, 600, 600} {
			if got := call("m").Seconds(); got != want {
				t.Errorf("timed out after %v s, want %v", got, want)
			}
		}
		if got := call("other"); got != time.Minute {
			t.Errorf("another method: %s", got)
		}
		// A deadline of the caller's own counts as it is, and changes nothing.
		for range 2 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			began := time.Now()
			if err := c.Call(ctx, Target{Topic: "t"}, "fixed", nil, nil); !errors.Is(err, ErrTimeout) || time.Since(began) != 5*time.Second {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			cancel()
		}
		began := time.Now()
		if err := c.Cast(context.Background(), Target{Topic: "t"}, "m", nil); !errors.Is(err, ErrTimeout) || time.Since(began) != time.Minute {
			t.Errorf("cast: %v after %s", err, time.Since(began))
		}
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestBrokerIsBack: after an outage the pauses are long, but a broker that could not be connected to is noticed when it can.
// One that lets everybody in and then hangs up, such as a balancer without brokers, is left to the pauses.
func TestBrokerIsBack(t *testing.T) {
	for name, test := range map[string]struct {
		away error
		want time.Duration
	}{
		"refused": {&net.OpError{Op: "dial", Err: errors.New("refused")}, 2 * knockEvery},
		"hung up": {errors.New("hung up"), DefaultRabbit().IntervalMax},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				back := began.Add(7 * time.Minute)
				var noticed atomic.Int64
				c, events := unreachable(t, func(cfg *Config) {
					cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
						if time.Now().Before(back) {
							return nil, test.away
						}
						noticed.CompareAndSwap(0, int64(time.Since(back)))
						return nil, errors.New("enough")
					}
				})
				time.Sleep(7*time.Minute - time.Second)
				// The pauses grow all the same: looking whether somebody listens is no attempt.
				if n := len(events()); n < 30 || n > 80 {
					t.Errorf("%d attempts in 7 minutes", n)
				}
				time.Sleep(time.Minute + time.Second)
				if after := time.Duration(noticed.Load()); after == 0 || after > test.want {
					t.Errorf("noticed after %v, wanted %v", after, test.want)
				}
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestUnreachableBroker(t *testing.T) {
	defer goleak.VerifyNone(t)
	c, events := unreachable(t, func(cfg *Config) { cfg.Rabbit.RetryInterval = time.Millisecond })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Call(ctx, Target{Topic: "t"}, "m", nil, nil) }()
	for len(events()) < 6 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) {
		t.Errorf("cancelled call: %v", err)
	}
	hosts := map[string]bool{}
	for _, e := range events() {
		if f, ok := e.(ConnectFailed); ok {
			hosts[f.Addr] = true
		}
	}
	if len(hosts) != 2 {
		t.Errorf("tried %v", hosts)
	}
	go func() { done <- c.Call(context.Background(), Target{Topic: "t"}, "m", nil, nil) }()
	time.Sleep(10 * time.Millisecond)
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("call during Close: %v", err)
	}
	if err := c.Call(context.Background(), Target{Topic: "t"}, "m", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("call after Close: %v", err)
	}
	if err := c.Cast(context.Background(), Target{Topic: "t"}, "m", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("cast after Close: %v", err)
	}
	svc := Service{Topics: []string{"t"}, Handler: func(context.Context, *Message) (any, error) { return nil, nil }}
	if err := c.Serve(context.Background(), svc); !errors.Is(err, ErrClosed) {
		t.Errorf("serve after Close: %v", err)
	}
	if err := c.Close(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}
