// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// question is a request that waits in the queue of a topic that nobody serves.
type question struct {
	MsgID string `json:"_msg_id"`
	Reply string `json:"_reply_q"`
	Rest  map[string]any
}

// unserved is a client of a broker with a queue for topic t that nobody consumes.
func unserved(t *testing.T, b *memBroker, change func(*Config)) *memClient {
	t.Helper()
	b.do(func() {
		b.exchanges["neutron"] = exchange{"neutron", "topic", false, false, ""}
		b.queues["t"] = &memQueue{queue: queue{name: "t"}, bound: map[string]bool{"neutron t": true}}
	})
	return b.client(t, "hv1", change)
}

// asks begins a call, and returns the question and where its end comes out.
func (m *memClient) asks(b *memBroker, timeout time.Duration, result any) (question, chan error) {
	m.t.Helper()
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		done <- m.Call(ctx, Target{Topic: "t"}, "m", nil, result)
	}()
	settle()
	var q question
	b.do(func() {
		var sealed map[string]string
		waiting := b.queues["t"].waiting
		body := waiting[len(waiting)-1].body
		if err := errors.Join(json.Unmarshal(body, &sealed), json.Unmarshal([]byte(sealed["oslo.message"]), &q), json.Unmarshal([]byte(sealed["oslo.message"]), &q.Rest)); err != nil {
			m.t.Fatal(err)
		}
	})
	return q, done
}

// answer puts a reply into the caller's queue; ID stands for that of the question.
func (b *memBroker) answer(q question, headers amqp.Table, inner string) {
	b.put(q.Reply, "", q.Reply, headers, string(seal([]byte(strings.ReplaceAll(inner, "ID", q.MsgID)))))
}

// over is the end of a call that has one by now.
func over(t *testing.T, done chan error) error {
	t.Helper()
	settle()
	select {
	case err := <-done:
		return err
	default:
		t.Fatal("the call goes on")
		return nil
	}
}

// TestAnswerBeforeTheConfirmation: a broker may confirm a request after its reply was delivered, or never.
func TestAnswerBeforeTheConfirmation(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := unserved(t, b, nil)
		settle()
		b.do(func() { b.late = true })
		var n int
		q, done := c.asks(b, time.Minute, &n)
		b.answer(q, nil, `{"_msg_id": "ID", "result": null, "failure": null, "ending": false}`) // the server is at work
		settle()
		b.answer(q, nil, `{"_msg_id": "ID", "result": 5, "failure": null, "ending": true}`)
		if err := over(t, done); err != nil || n != 5 {
			t.Errorf("%d, %v", n, err)
		}
		// Nobody answers, and nobody confirms.
		began := time.Now()
		_, done = c.asks(b, 10*time.Second, nil)
		if err := <-done; !errors.Is(err, ErrTimeout) || since(began) != 10*time.Second {
			t.Errorf("%v after %s", err, since(began))
		}
		// The connection is lost, and the reply has come by the time that another is there.
		q, done = c.asks(b, time.Minute, &n)
		b.cut()
		settle()
		b.answer(q, nil, `{"_msg_id": "ID", "result": 6, "failure": null, "ending": true}`)
		time.Sleep(time.Second)
		if err := over(t, done); err != nil || n != 6 {
			t.Errorf("%d, %v", n, err)
		}
		b.wantSaid(t, "basic.publish neutron t", 3) // none is sent twice
		// The time is over while a reply to what was sent before is waited for; or the client is closed.
		_, done = c.asks(b, time.Second+resendGrace/2, nil)
		b.cut()
		if err := <-done; !errors.Is(err, ErrTimeout) {
			t.Errorf("%v", err)
		}
		b.wantSaid(t, "basic.publish neutron t", 4)
		_, done = c.asks(b, time.Minute, nil)
		b.cut()
		time.Sleep(time.Second + resendGrace/2)
		ended := make(chan error, 1)
		go func() { ended <- c.Close(context.Background()) }()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	// Closed while the confirmation is waited for.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := unserved(t, b, nil)
		settle()
		b.do(func() { b.late = true })
		_, done := c.asks(b, time.Minute, nil)
		c.close()
		if err := over(t, done); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
	// Closed while the reply is waited for.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := unserved(t, b, nil)
		_, done := c.asks(b, time.Minute, nil)
		c.close()
		if err := over(t, done); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// TestRequestsSay who asks, and until when; a cast has no end.
func TestRequestsSay(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := unserved(t, b, func(cfg *Config) {
			cfg.Context = func(context.Context) map[string]any { return map[string]any{"is_admin": true} }
		})
		q, done := c.asks(b, 12345*time.Millisecond, nil)
		if q.Rest["_context_is_admin"] != true {
			t.Errorf("%v", q.Rest)
		}
		if err := c.Cast(context.Background(), Target{Topic: "t"}, "m", nil); err != nil {
			t.Error(err)
		}
		b.do(func() {
			const expires = 1 // in the first byte of the flags
			call, cast := b.queues["t"].waiting[0].header, b.queues["t"].waiting[1].header
			if call[12]&expires == 0 || !strings.Contains(string(call), "\x051234") || cast[12]&expires != 0 {
				t.Errorf("headers %q, %q", call, cast)
			}
		})
		<-done
		// A heartbeat on its own is no answer, and many are not kept.
		q, done = c.asks(b, time.Minute, nil)
		for range 20 {
			b.answer(q, nil, `{"_msg_id": "ID", "result": null, "failure": null, "ending": false}`)
		}
		settle()
		b.answer(q, nil, `{"_msg_id": "ID", "result": null, "failure": null, "ending": true}`)
		if err := over(t, done); err != nil {
			t.Error(err)
		}
		c.close()
	})
}

// TestRepliesThatAreNotTaken: too large, before or after decompression, or not of the type that is asked for.
func TestRepliesThatAreNotTaken(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := unserved(t, b, func(cfg *Config) { cfg.MaxMessage = 1000 })
		var n int
		q, done := c.asks(b, time.Minute, &n)
		b.answer(q, nil, `{"_msg_id": "ID", "result": "text", "failure": null, "ending": true}`)
		if err := over(t, done); err == nil || !strings.Contains(err.Error(), "decoding the result of m") {
			t.Errorf("%v", err)
		}
		q, done = c.asks(b, time.Minute, &n)
		b.answer(q, nil, `{"result": "`+strings.Repeat("x", 2000)+`", "failure": null, "ending": true, "_msg_id": "ID"}`)
		var large *TooLargeError
		if err := over(t, done); !errors.As(err, &large) || large.Limit != 1000 || large.Size < 2000 || !strings.Contains(err.Error(), "reply to m on t refused") {
			t.Errorf("%v", err)
		}
		c.wantEvents("Connected")
		b.answer(question{MsgID: newID(), Reply: q.Reply}, nil, `{"result": "`+strings.Repeat("x", 2000)+`", "_msg_id": "ID"}`) // nobody waits for it
		c.wantEvents("Dropped  " + q.Reply)
		b.answer(q, amqp.Table{"compression": "application/x-gzip"}, `{}`)
		b.answer(q, amqp.Table{"compression": "lzma"}, `{}`)
		c.wantEvents("Dropped  "+q.Reply, "Dropped  "+q.Reply)
		body, err := compress(seal([]byte(`{"result": "` + strings.Repeat("x", 2000) + `", "_msg_id": "` + q.MsgID + `"}`)))
		if err != nil {
			t.Fatal(err)
		}
		b.put(q.Reply, "", q.Reply, amqp.Table{"compression": headerGzip}, string(body))
		c.wantEvents("Dropped  " + q.Reply)
		// All of that is forgotten: what waits is bounded, not what came.
		for range 20 {
			q, done = c.asks(b, time.Minute, &n)
			b.answer(q, nil, `{"result": 7, "x": "`+strings.Repeat("x", 500)+`", "failure": null, "ending": true, "_msg_id": "ID"}`)
			if err := over(t, done); err != nil || n != 7 {
				t.Fatalf("%d, %v", n, err)
			}
		}
		c.Client.mu.Lock()
		if len(c.waiters) != 0 {
			t.Errorf("%d calls that are over wait for replies", len(c.waiters))
		}
		c.Client.mu.Unlock()
		c.close()
	})
}

// TestWhatIsDroppedDoesNotWait: messages that no handler takes do not count among those that wait for one.
func TestWhatIsDroppedDoesNotWait(t *testing.T) {
	for name, body := range map[string]func(i int) (exchange, text string){
		"unreadable": func(int) (string, string) { return "t_fanout", "{" + strings.Repeat(" ", 400) },
		"repeated": func(int) (string, string) {
			return "t_fanout", rawRequest(t, "same", "m"+strings.Repeat("m", 300), "", "")
		},
		"of a topic that is not served": func(i int) (string, string) {
			return "u_fanout", rawRequest(t, fmt.Sprint(i), "m"+strings.Repeat("m", 300), "", "")
		},
		"handled": func(i int) (string, string) {
			return "t_fanout", rawRequest(t, fmt.Sprint(i), "m"+strings.Repeat("m", 300), "", "")
		},
	} {
		inMemory(t, func(t *testing.T, b *memBroker) {
			c := b.client(t, "hv1", func(cfg *Config) { withHub(cfg); cfg.MaxBacklog = 1000 })
			c.serve(Service{Topics: []string{"t"}})
			for i := range 10 {
				ex, text := body(i)
				b.put(c.layout.privateQ, ex, "", nil, text)
				settle()
			}
			b.put(c.layout.privateQ, "t_fanout", "", nil, rawRequest(t, "last", "last", "", ""))
			if got := c.methods(); len(got) == 0 || got[len(got)-1] != "last" {
				t.Errorf("%s: handled %d", name, len(got))
			}
			c.Client.mu.Lock()
			in := c.live.intake
			c.Client.mu.Unlock()
			in.mu.Lock()
			for consumer, n := range in.held {
				if n != 0 {
					t.Errorf("%s: %d bytes of consumer %s count, though nothing waits", name, n, consumer)
				}
			}
			in.mu.Unlock()
			c.close()
		})
	}
}

// TestCloseWaitsForReplies that are on their way, as long as it may.
func TestCloseWaitsForReplies(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		if err := c.Serve(context.Background(), Service{Topics: []string{"t"}}); err == nil {
			t.Error("served without a handler")
		}
		c.serve(Service{Topics: []string{"t"}})
		b.do(func() {
			b.queues["caller"] = &memQueue{queue: queue{name: "caller"}}
			b.conns[0].method(0, 10, 60, "low on memory")
		})
		settle()
		b.put(c.layout.privateQ, "neutron", "t.hv1", nil, rawRequest(t, "1", "m", "abc", "caller"))
		settle()
		ended := make(chan error, 1)
		go func() { ended <- c.Close(context.Background()) }()
		time.Sleep(5 * time.Second)
		b.do(func() { b.conns[0].method(0, 10, 61) })
		if err := <-ended; err != nil {
			t.Error(err)
		}
		b.do(func() {
			if n := len(b.queues["caller"].waiting); n != 1 {
				t.Errorf("%d replies", n)
			}
		})
	})
	// A broker that does not answer during the login is not waited for, and that is the reason.
	inMemory(t, func(t *testing.T, b *memBroker) {
		b.silent = true
		var reasons []error
		c := b.client(t, "hv1", func(cfg *Config) {
			cfg.OnEvent = func(e Event) {
				if f, ok := e.(ConnectFailed); ok {
					b.do(func() { reasons = append(reasons, f.Err) })
				}
			}
		})
		time.Sleep(handshakeTimeout + time.Second)
		b.do(func() {
			if len(reasons) != 1 || !errors.Is(reasons[0], context.DeadlineExceeded) || !strings.Contains(reasons[0].Error(), "logging in to b1:5672") {
				t.Errorf("%v", reasons)
			}
		})
		c.close()
		time.Sleep(time.Minute)
	})
	// A connection that is being made and does not look at its context holds Close up as long as that may last, and the end is told.
	synctest.Test(t, func(t *testing.T) {
		c, _ := unreachable(t, func(cfg *Config) {
			cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(time.Minute)
				return nil, errors.New("refused")
			}
		})
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		time.Sleep(2 * time.Minute)
	})
}

// TestFailuresAreForgotten: the pauses begin anew after what was wanted is there, on a connection and for connections.
func TestFailuresAreForgotten(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		topics := []string{"t"}
		for _, step := range []struct {
			topic    string
			refusals int
			want     time.Duration
		}{{"u", 2, (1 + 3) * 750 * time.Millisecond}, {"v", 1, 750 * time.Millisecond}, {"w", 1, 750 * time.Millisecond}} {
			topics = append(topics, step.topic)
			b.do(func() {
				for range step.refusals {
					b.refuse["basic.consume "+step.topic] = append(b.refuse["basic.consume "+step.topic], refuse{amqp.NotFound, "no home"})
				}
			})
			began := time.Now()
			c.serve(Service{Topics: topics, Shared: true})
			if took := since(began); took != step.want {
				t.Errorf("%s was there after %s, want %s", step.topic, took, step.want)
			}
			if err := c.trouble(); err != nil {
				t.Errorf("%s: %v", step.topic, err)
			}
		}
		c.close()
	})
	inMemory(t, func(t *testing.T, b *memBroker) {
		var pauses []time.Duration
		c := b.client(t, "hv1", func(cfg *Config) {
			cfg.OnEvent = func(e Event) {
				if f, ok := e.(ConnectFailed); ok {
					b.do(func() { pauses = append(pauses, f.Next) })
				}
			}
		})
		want := []time.Duration{750 * time.Millisecond, 2250 * time.Millisecond}
		for range 2 {
			if err := c.Ready(context.Background()); err != nil {
				t.Fatal(err)
			}
			b.do(func() { pauses, b.away = nil, true })
			b.cut()
			time.Sleep(3 * time.Second) // a second before the first attempt
			b.do(func() {
				if !slices.Equal(pauses, want) {
					t.Errorf("pauses %v, want %v", pauses, want)
				}
				b.away = false
			})
			time.Sleep(time.Minute)
		}
		c.close()
	})
}

// TestHostThatIsBack: of several hosts the one that accepts connections again is tried next, and the event tells how long there was none.
func TestHostThatIsBack(t *testing.T) {
	for _, back := range []string{"b1:5672", "b2:5672", "b3:5672"} {
		inMemory(t, func(t *testing.T, b *memBroker) {
			var events []Event
			began, last := time.Now(), ""
			b.version = "3.10.8"
			cfg := testConfig(t, "rabbit://u:p@b1,u:p@b2,u:p@b3/")
			cfg.Rand = func() float64 { return 0.5 }
			cfg.OnEvent = func(e Event) { b.do(func() { events = append(events, e) }) }
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr != back || time.Since(began) < 7*time.Minute {
					return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
				}
				b.do(func() { last = addr })
				return b.dial(ctx, network, addr)
			}
			c, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Ready(context.Background()); err != nil {
				t.Fatal(err)
			}
			settle()
			b.do(func() {
				if last != back {
					t.Errorf("connected to %q", last)
				}
				up, ok := events[len(events)-1].(Connected)
				if !ok || up.Addr != back || up.Broker != "RabbitMQ 3.10.8" || up.Setup < 7*time.Minute || up.Setup > 7*time.Minute+2*knockEvery {
					t.Errorf("%+v", events[len(events)-1])
				}
				// Nobody was tried in between who does not listen.
				if f, ok := events[len(events)-2].(ConnectFailed); !ok || f.Next < time.Second {
					t.Errorf("%+v", events[len(events)-2])
				}
			})
			b.cut()
			time.Sleep(2 * time.Second)
			b.do(func() {
				if up, ok := events[len(events)-1].(Connected); !ok || up.Setup.Round(time.Millisecond) != time.Second {
					t.Errorf("%+v", events[len(events)-1])
				}
			})
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if _, err := c.RemoveLeftovers(context.Background(), []string{"t"}, "hv1"); !errors.Is(err, ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// TestOffsetsBeginAtZero: the first message of a stream has number 0.
func TestOffsetsBeginAtZero(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		f := &feed{kind: feedStream, queue: queue{name: "s"}}
		f.offset.Store(-1)
		for _, step := range []struct {
			header any
			taken  bool
			gap    string
		}{
			{int64(0), true, ""}, {int64(0), false, ""}, {int64(2), true, "Gap the stream no longer had the messages from 1 to 1"}, {int64(3), true, ""}, {"x", true, ""}, {int64(1), false, ""}, {int64(4), true, ""},
		} {
			got := c.takeOffset(f, amqp.Delivery{Headers: amqp.Table{"x-stream-offset": step.header}})
			e := slices.DeleteFunc(c.seenEvents(), func(e string) bool { return e == "Connected" })
			if got != step.taken || strings.Join(e, "") != step.gap {
				t.Errorf("%v: taken %v, events %q", step.header, got, e)
			}
		}
		c.close()
	})
}

// TestQueueAndExchangeGone: after the broker has ended a consumer, exchanges are declared anew before the queue is bound to them.
func TestQueueAndExchangeGone(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		name := c.layout.privateQ
		b.do(func() { b.deleteExchange("t_fanout"); b.deleteQueue(name) })
		settle()
		c.wantEvents("Connected", "Gap the queue was lost")
		b.wantSaid(t, "exchange.declare t_fanout", 2)
		b.wantSaid(t, "queue.bind "+name+" t_fanout t", 2)
		cast(t, c, Target{Topic: "t", Fanout: true}, "all")
		if got := c.methods(); !slices.Equal(got, []string{"all"}) {
			t.Errorf("handled %q", got)
		}
		c.close()
	})
}

// TestQueueWithOtherArguments: somebody has made our queue anew while we were away; what it missed is a gap, and a reply queue misses nothing.
func TestQueueWithOtherArguments(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		if err := c.Call(context.Background(), Target{Topic: "t", Server: "hv1"}, "m", nil, nil); err != nil {
			t.Fatal(err)
		}
		c.wantEvents("Connected")
		for name, gap := range map[string][]string{c.layout.privateQ: {"Gap the queue had other arguments"}, c.layout.replyQ: nil} {
			b.cut()
			settle()
			b.do(func() {
				b.queues[name] = &memQueue{queue: queue{name: name, args: amqp.Table{"x-expires": int64(1)}}, bound: map[string]bool{}}
			})
			time.Sleep(2 * time.Second)
			c.wantEvents(slices.Concat([]string{"Disconnected"}, gap, []string{"Connected"})...)
			b.wantSaid(t, "queue.delete "+name, 1)
		}
		c.close()
	})
}

// TestHubRefusedAnywhere: whatever a user may not do for the hub, the queue is bound to each exchange by itself. Without topics there is no hub.
func TestHubRefusedAnywhere(t *testing.T) {
	layout := func(change func(*Config)) layout {
		cfg := testConfig(t, "rabbit://h")
		change(&cfg)
		return newLayout(&cfg, newID)
	}
	l := layout(withHub)
	if got := l.private(&Service{}, "hv1"); got != nil {
		t.Errorf("bound to %v", got)
	}
	if got := l.private(&Service{Directed: []string{"u"}}, "hv1"); len(got) != 2 || !strings.HasPrefix(got[0].exchange.name, "hub_") {
		t.Errorf("bound to %v", got)
	}
	if long := layout(func(cfg *Config) { cfg.Hub = strings.Repeat("h", 200) }); len(long.hubName) != 100 { // names have 255 bytes at most
		t.Errorf("%d bytes begin the name of the hub", len(long.hubName))
	}
	hub := l.hub([]string{"t"}, []string{"u"})
	for _, what := range []string{
		"exchange.declare " + hub.name, "exchange.declare t_fanout", "exchange.bind " + hub.name + " t_fanout t", "exchange.declare " + hub.keeper().name,
		"exchange.bind " + hub.name + " " + hub.keeper().name + " " + noMessage, "exchange.declare u_fanout", "exchange.bind " + hub.keeper().name + " u_fanout u",
		"exchange.declare " + hub.bound().name, "exchange.bind " + hub.name + " " + hub.bound().name + " ",
	} {
		inMemory(t, func(t *testing.T, b *memBroker) {
			c := b.client(t, "hv1", withHub)
			b.do(func() { b.refuse[what] = []refuse{{amqp.AccessRefused, "ACCESS_REFUSED"}} })
			c.serve(Service{Topics: []string{"t"}, Directed: []string{"u"}})
			if e := c.seenEvents(); !slices.Contains(e, "NoHub") || e[len(e)-1] != "Connected" {
				t.Errorf("%s is refused: events %q", what, e)
			}
			if n := b.count("exchange.bind " + hub.name + " " + hub.bound().name); n > 2 || n > 0 && !strings.HasPrefix(what, "exchange.bind "+hub.name+" "+hub.bound().name) {
				t.Errorf("%s is refused, and the hub is called complete", what)
			}
			c.close()
		})
	}
	// What fails for another reason is tried again, with the hub.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", withHub)
		b.do(func() {
			b.refuse["exchange.bind "+hub.keeper().name+" u_fanout u"] = []refuse{{amqp.ResourceLocked, "locked"}}
		})
		c.serve(Service{Topics: []string{"t"}, Directed: []string{"u"}})
		c.wantEvents("SetupFailed "+c.layout.privateQ, "Connected")
		b.do(func() {
			if !b.behind[hub.bound().name][hub.name] {
				t.Error("the hub is not complete")
			}
		})
		c.close()
	})
}

// TestURLsThatBeginWithASign: nothing before an @ is no user, and nothing before a ? no virtual host.
func TestURLsThatBeginWithASign(t *testing.T) {
	u, err := ParseURL("rabbit://@h:5/%3Fx")
	if err != nil || len(u.Hosts) != 1 || u.Hosts[0].Name != "h" || u.Hosts[0].Username != "" || u.vhost() != "/" {
		t.Errorf("%+v, virtual host %q, %v", u, u.vhost(), err)
	}
	for text, want := range map[string]string{"rabbit://h/;x": "/", "rabbit://h/a/;x": "a/", "rabbit://h/a%23b": "a", "rabbit://h/a;b/c": "a;b/c", "rabbit://h/a%252Fb": "a/b"} {
		if u, err := ParseURL(text); err != nil || u.vhost() != want {
			t.Errorf("%s: %q, want %q", text, u.vhost(), want)
		}
	}
	for text, want := range map[string]string{"rabbit://a,b:x/": "host 2: the port", "rabbit://,a:x/": "host 1: the port", "rabbit://a,,[::1]:x/": "host 2: the port"} {
		if _, err := ParseURL(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if u, err := ParseURL("rabbit:///v"); err != nil || len(u.Hosts) != 0 || u.VirtualHost != "v" {
		t.Errorf("%+v, %v", u, err)
	}
}
