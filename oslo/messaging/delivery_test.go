// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func rawRequest(t testing.TB, id, method, msgID, replyQ string) string {
	t.Helper()
	body, err := request(Target{Topic: "t"}, method, nil, nil, id, msgID, replyQ)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestAcknowledgements: casts together, after a moment or a quarter of the prefetch count; calls one by one; what cannot be
// read is rejected; a repetition is not handled again.
func TestAcknowledgements(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", func(cfg *Config) { cfg.Rabbit.PrefetchCount = 16 })
		c.serve(Service{Topics: []string{"t"}})
		name := c.layout.privateQ
		for i := range 3 {
			b.put(name, "t_fanout", "", nil, rawRequest(t, fmt.Sprintf("id%d", i), "m", "", ""))
		}
		settle()
		b.wantSaid(t, "basic.ack", 0)
		time.Sleep(ackDelay)
		b.wantSaid(t, "basic.ack 3", 1)
		for i := range 5 {
			b.put(name, "t_fanout", "", nil, rawRequest(t, fmt.Sprintf("more%d", i), "m", "", ""))
		}
		settle()
		b.wantSaid(t, "basic.ack 4", 1)
		time.Sleep(ackDelay)
		b.wantSaid(t, "basic.ack 1", 1)
		b.put(name, "t_fanout", "", nil, rawRequest(t, "id1", "again", "", ""))
		b.wantSaid(t, "basic.ack 1", 2)
		b.put(name, "t_fanout", "x", nil, "{")
		b.put(name, "neutron", "t.hv1", nil, rawRequest(t, "nameless", "", "", ""))
		b.wantSaid(t, "basic.reject 1", 2)
		c.wantEvents("Connected", "Dropped t_fanout x", "Dropped neutron t.hv1")
		time.Sleep(time.Second)
		b.wantSaid(t, "basic.ack", 4)
		if got := len(c.methods()); got != 8 {
			t.Errorf("%d handled", got)
		}
		// What was rejected, or acknowledged by itself, is no hindrance for those after it.
		for i := range 3 {
			b.put(name, "t_fanout", "", nil, rawRequest(t, fmt.Sprintf("last%d", i), "m", "", ""))
		}
		time.Sleep(time.Second)
		b.wantSaid(t, "basic.ack 3", 2)
		c.close()
	})
	// A call is acknowledged before it is answered, and not with others.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		b.do(func() { b.queues["q"] = &memQueue{queue: queue{name: "q"}} })
		b.put(c.layout.privateQ, "neutron", "t.hv1", nil, rawRequest(t, "1", "m", "abc", "q"))
		b.wantSaid(t, "basic.ack 1", 1)
		b.do(func() {
			if n := len(b.queues["q"].waiting); n != 1 || !strings.Contains(string(b.queues["q"].waiting[0].body), "abc") {
				t.Errorf("%d replies", n)
			}
		})
		// Without a queue to answer to it is a cast.
		b.put(c.layout.privateQ, "neutron", "t.hv1", nil, rawRequest(t, "2", "m", "abc", ""))
		settle()
		if !c.got[0].Call || c.got[1].Call || c.got[1].ID != "2" {
			t.Errorf("%+v", c.got)
		}
		c.close()
	})
}

// TestConcurrentHandlers: as many as asked for, no more, each acknowledged by itself; Close waits for them.
func TestConcurrentHandlers(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		running, most := 0, 0
		c.serve(Service{Topics: []string{"t"}, Concurrency: 2, Handler: func(context.Context, *Message) (any, error) {
			c.mu.Lock()
			running++
			most = max(most, running)
			c.mu.Unlock()
			time.Sleep(time.Second)
			c.mu.Lock()
			running--
			c.mu.Unlock()
			return nil, nil
		}})
		for i := range 5 {
			b.put(c.layout.privateQ, "t_fanout", "", nil, rawRequest(t, fmt.Sprintf("id%d", i), "m", "", ""))
		}
		time.Sleep(2500 * time.Millisecond)
		b.wantSaid(t, "basic.ack 1", 4)
		began := time.Now()
		c.close()
		if took := since(began); took != 500*time.Millisecond || most != 2 || running != 0 {
			t.Errorf("%s, %d handlers at a time, %d left", took, most, running)
		}
	})
	// One that is done is acknowledged alone: those before it may be in hand.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}, Concurrency: 2, Handler: func(_ context.Context, m *Message) (any, error) {
			if m.Method == "slow" {
				time.Sleep(time.Minute)
			}
			return nil, nil
		}})
		for _, method := range []string{"slow", "quick"} {
			b.put(c.layout.privateQ, "t_fanout", "", nil, rawRequest(t, method, method, "", ""))
		}
		time.Sleep(time.Second)
		b.wantSaid(t, "basic.ack 1", 1)
		b.do(func() {
			if n := len(b.queues[c.layout.privateQ].consumers[0].unacked); n != 1 {
				t.Errorf("%d are not acknowledged", n)
			}
		})
		c.close()
	})
	// Close does not wait longer than it is told.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}, Handler: func(ctx context.Context, _ *Message) (any, error) {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil, nil
		}})
		b.put(c.layout.privateQ, "t_fanout", "", nil, rawRequest(t, "1", "m", "", ""))
		settle()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		time.Sleep(2 * time.Minute)
	})
}

// TestReplyQueueGone: a reply waits for the caller's queue, for as long as the option says, and the next one to a queue
// that is gone does not wait at all.
func TestReplyQueueGone(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", func(cfg *Config) { cfg.Rabbit.MissingConsumerRetry = 9900 * time.Millisecond })
		c.serve(Service{Topics: []string{"t"}})
		ask := func(id string) {
			b.put(c.layout.privateQ, "neutron", "t.hv1", nil, rawRequest(t, id, "m", "abc", "caller"))
		}
		ask("1")
		time.Sleep(time.Second)
		b.wantSaid(t, "basic.publish  caller", 5)
		b.do(func() { b.queues["caller"] = &memQueue{queue: queue{name: "caller"}} })
		time.Sleep(time.Second)
		b.do(func() {
			if n := len(b.queues["caller"].waiting); n != 1 {
				t.Errorf("%d replies", n)
			}
			delete(b.queues, "caller")
		})
		c.wantEvents("Connected")
		ask("2")
		time.Sleep(9 * time.Second)
		c.wantEvents()
		time.Sleep(2 * time.Second)
		c.wantEvents("ReplyAbandoned caller m")
		sent := b.count("basic.publish  caller")
		ask("3")
		time.Sleep(20 * time.Second)
		b.wantSaid(t, "basic.publish  caller", sent)
		c.wantEvents()
		c.close()
	})
	// With direct_mandatory_flag off nobody looks whether it arrived.
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", func(cfg *Config) { cfg.Rabbit.DirectMandatory = false })
		c.serve(Service{Topics: []string{"t"}})
		b.put(c.layout.privateQ, "neutron", "t.hv1", nil, rawRequest(t, "1", "m", "abc", "caller"))
		time.Sleep(time.Minute)
		b.wantSaid(t, "basic.publish  caller", 1)
		c.close()
	})
}

// TestUnencodableResult: the caller is told.
func TestUnencodableResult(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}, Handler: func(context.Context, *Message) (any, error) { return make(chan int), nil }})
		var remote *RemoteError
		if err := c.Call(context.Background(), Target{Topic: "t", Server: "hv1"}, "m", nil, nil); !errors.As(err, &remote) {
			t.Errorf("%v", err)
		}
		c.close()
	})
}

// TestBlocked: while the broker takes no messages, calls and casts wait.
func TestBlocked(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		c.wantEvents("Connected")
		b.do(func() { b.conns[0].method(0, 10, 60, "low on memory") })
		c.wantEvents("Blocked low on memory")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Cast(ctx, Target{Topic: "t"}, "m", nil); !errors.Is(err, ErrTimeout) {
			t.Errorf("%v", err)
		}
		b.wantSaid(t, "basic.publish", 0)
		done := make(chan error)
		go func() { done <- c.Cast(context.Background(), Target{Topic: "t"}, "m", nil) }()
		time.Sleep(time.Second)
		b.wantSaid(t, "basic.publish", 0)
		b.do(func() { b.conns[0].method(0, 10, 61) })
		if err := <-done; err != nil {
			t.Error(err)
		}
		c.wantEvents("Unblocked")
		// A connection that is lost while it is blocked lets its callers go on with the next one.
		b.do(func() { b.conns[0].method(0, 10, 60, "low on disk") })
		settle()
		go func() { done <- c.Cast(context.Background(), Target{Topic: "t"}, "m", nil) }()
		settle()
		b.cut()
		if err := <-done; err != nil {
			t.Error(err)
		}
		c.close()
	})
}

// TestNobodyServes: a call to a topic without a server waits, and is answered when one comes.
func TestNobodyServes(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c, server := b.client(t, "hv1", nil), b.client(t, "s1", nil)
		done := make(chan error)
		go func() { done <- echo(c, "m") }()
		time.Sleep(5 * time.Second)
		if n := b.count("basic.publish neutron t"); n < 2 {
			t.Errorf("published %d times", n)
		}
		server.serve(Service{Topics: []string{"t"}, Shared: true})
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := server.methods(); !slices.Equal(got, []string{"m"}) {
			t.Errorf("ran %q", got)
		}
		// One that ends while it waits.
		go func() { done <- c.Call(context.Background(), Target{Topic: "nobody"}, "m", nil, nil) }()
		time.Sleep(time.Second)
		c.close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		server.close()
	})
}

// TestSilentBroker: a broker that does not answer loses the connection after the time that was agreed.
func TestSilentBroker(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		time.Sleep(10 * time.Minute) // heartbeats keep it
		c.wantEvents("Connected")
		b.do(func() { b.silent = true })
		time.Sleep(59 * time.Second)
		b.do(func() { b.silent = false })
		time.Sleep(time.Minute)
		if e := c.seenEvents(); len(e) > 2 {
			t.Errorf("events %q", e)
		}
		b.do(func() { b.silent = true })
		time.Sleep(61 * time.Second)
		if e := c.seenEvents(); len(e) == 0 || e[0] != "Disconnected" {
			t.Errorf("events %q", e)
		}
		// The handshake has its own limit.
		time.Sleep(handshakeTimeout + 5*time.Second)
		if e := c.seenEvents(); len(e) == 0 || e[0] != "ConnectFailed" {
			t.Errorf("events %q", e)
		}
		b.do(func() { b.silent = false })
		time.Sleep(3 * time.Minute)
		c.wantEvents("ConnectFailed", "Connected")
		// A declaration that is not answered. That the broker was slow before has no bearing on the next connection.
		b.cut()
		time.Sleep(time.Minute)
		b.do(func() { b.silent = true })
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := c.RemoveLeftovers(ctx, []string{"t"}, "hv1"); err == nil || time.Since(began) != setupTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if settle(); c.lost == nil || !strings.Contains(c.lost.Error(), "does not answer a declaration") {
			t.Errorf("lost because of %v", c.lost)
		}
		b.do(func() { b.silent = false })
		time.Sleep(2 * time.Minute)
		c.close()
	})
}

// TestSlowBroker: a broker that takes longer than one may wait, because thousands of clients come at once, gets longer each time. Other hosts are tried at once all the same,
// and one that accepts no connection is not slow.
func TestSlowBroker(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		b.slow = 2*setupTimeout + time.Second
		c := b.client(t, "hv1", nil)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		answer := func(context.Context, *Message) (any, error) { return nil, nil }
		if err := c.Serve(ctx, Service{Topics: []string{"t"}, Handler: answer}); err != nil {
			t.Error(err)
		}
		c.wantEvents("Disconnected", "Disconnected", "Connected")
		b.do(func() { b.slow = 0 })
		time.Sleep(20 * time.Minute)
		c.close()
	})
	for name, answer := range map[string]func(ctx context.Context) (net.Conn, error){
		"silent": func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, there) }()
			return here, nil
		},
		"not there": func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, b *memBroker) {
				var others, first time.Duration
				began := time.Now()
				c := b.client(t, "hv1", func(cfg *Config) {
					cfg.URL.Hosts = append(cfg.URL.Hosts, cfg.URL.Hosts[0], cfg.URL.Hosts[0])
					cfg.URL.Hosts[1].Name, cfg.URL.Hosts[2].Name = "b2", "b3"
					cfg.Rand = func() float64 { return 0.9 }
					dials := 0
					cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
						switch dials++; dials {
						case 1, 2:
							return answer(ctx)
						case 3:
							others = time.Since(began)
							return answer(ctx)
						case 4:
							first = time.Since(began)
						}
						return b.dial(ctx, network, addr)
					}
				})
				time.Sleep(10 * time.Minute)
				c.wantEvents("ConnectFailed", "ConnectFailed", "ConnectFailed", "Connected")
				pauses := first - 3*handshakeTimeout
				if others > 2*handshakeTimeout+time.Second || (pauses > slowPause) != (name == "silent") {
					t.Errorf("the third host was tried after %s, the first again after %s", others, first)
				}
				c.close()
			})
		})
	}
}

// TestRefusedLogin: the error says where, and the pauses grow. A connection may end during a login for other reasons; one that
// ends three times in a row is taken for refused.
func TestRefusedLogin(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		b.do(func() { b.refuse["login"] = []refuse{{}} })
		c := b.client(t, "hv1", nil)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if err := c.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "logging in to b1:5672") {
			t.Errorf("%v", err)
		}
		e := c.seenEvents()
		if n := len(e); n < 15 || n > 25 || e[1] != "ConnectFailed" || e[2] != "Refused " {
			t.Errorf("%d attempts: %q", n, e)
		}
		if r := c.refused; r.Addr != "b1:5672" || r.Err.Do != "check user and password in transport_url" || r.Next > refusalMax || r.Next < refusalMax/2 {
			t.Errorf("%+v", r)
		}
		b.do(func() { delete(b.refuse, "login") })
		if err := c.Ready(context.Background()); err != nil {
			t.Error(err)
		}
		c.close()
	})
}

// TestStream: the position is remembered, a jump is a gap, and what was read is not read again.
func TestStream(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", func(cfg *Config) {
			cfg.Rabbit.StreamFanout, cfg.Rabbit.TransientQuorumQueue, cfg.Rabbit.PrefetchCount = true, true, 4
			cfg.Rabbit.TransientQueuesTTL = time.Minute
		})
		c.serve(Service{Topics: []string{"t"}})
		offset := func() any {
			var at any
			settle()
			b.do(func() { at = b.queues["t_fanout"].consumers[0].args["x-stream-offset"] })
			return at
		}
		b.do(func() {
			q := b.queues["t_fanout"]
			if !q.durable || q.args["x-queue-type"] != "stream" || q.args["x-max-age"] != "60s" || !q.bound["t_fanout t"] {
				t.Errorf("%+v", q)
			}
			if p := b.queues[c.layout.privateQ]; p.bound["t_fanout t"] || !p.bound["neutron t.hv1"] {
				t.Errorf("private queue bound to %v", p.bound)
			}
		})
		if at := offset(); at != "next" {
			t.Errorf("begins at %v", at)
		}
		began := time.Now()
		time.Sleep(time.Hour)
		b.cut()
		time.Sleep(2 * time.Second)
		if at, ok := offset().(time.Time); !ok || at.Before(began.Add(-2*time.Minute)) || at.After(began.Add(-30*time.Second)) {
			t.Errorf("goes on at %v on a second connection before any message, the first one was at %v", at, began)
		}
		c.wantEvents("Connected", "Disconnected", "Connected")
		put := func(at int64) {
			b.put("t_fanout", "t_fanout", "", amqp.Table{"x-stream-offset": at}, rawRequest(t, fmt.Sprint("id", at), fmt.Sprint("m", at), "", ""))
		}
		for _, at := range []int64{5, 6, 4, 6, 7} {
			put(at)
		}
		if got := c.methods(); !slices.Equal(got, []string{"m5", "m6", "m7"}) {
			t.Errorf("handled %q", got)
		}
		b.put("t_fanout", "t_fanout", "", amqp.Table{"x-stream-offset": int64(7)}, rawRequest(t, "another", "again", "", ""))
		if got := c.methods(); len(got) != 3 {
			t.Errorf("an offset that was read is read again: %q", got)
		}
		put(10)
		c.wantEvents("Gap the stream no longer had the messages from 8 to 9")
		b.do(func() { b.queues["t_fanout"].waiting = nil })
		b.cut()
		time.Sleep(2 * time.Second)
		if at := offset(); at != int64(11) {
			t.Errorf("goes on at %v", at)
		}
		c.wantEvents("Disconnected", "Connected")
		b.do(func() { delete(b.queues, "t_fanout") })
		b.cut()
		time.Sleep(2 * time.Second)
		if at := offset(); at != "next" {
			t.Errorf("after a loss it begins at %v", at)
		}
		c.wantEvents("Disconnected", "Gap the queue was lost", "Connected")
		c.close()
	})
}

// TestCompressed: both ways.
func TestCompressed(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		gzip := func(cfg *Config) { cfg.Rabbit.Compression = "gzip" }
		server, c := b.client(t, "s1", gzip), b.client(t, "hv1", gzip)
		server.serve(Service{Topics: []string{"t"}, Shared: true})
		if err := echo(c, "m"); err != nil {
			t.Error(err)
		}
		c.close()
		server.close()
	})
}

// TestReplies: heartbeats of a server that works are dropped, a result in two messages is put together, replies to nobody
// are ignored, and all are acknowledged together.
func TestReplies(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		b.do(func() { b.exchanges["neutron"] = exchange{"neutron", "topic", false, false, ""} })
		b.do(func() { b.queues["t"] = &memQueue{queue: queue{name: "t"}, bound: map[string]bool{"neutron t": true}} })
		type asked struct {
			MsgID string `json:"_msg_id"`
			Reply string `json:"_reply_q"`
		}
		call := func(answer func(a asked)) (json.RawMessage, error) {
			type outcome struct {
				raw json.RawMessage
				err error
			}
			done := make(chan outcome)
			go func() {
				var raw json.RawMessage
				err := c.Call(context.Background(), Target{Topic: "t"}, "m", nil, &raw)
				done <- outcome{raw, err}
			}()
			settle()
			var a asked
			b.do(func() {
				var sealed map[string]string
				q := b.queues["t"]
				if err := errors.Join(json.Unmarshal(q.waiting[0].body, &sealed), json.Unmarshal([]byte(sealed["oslo.message"]), &a)); err != nil {
					t.Error(err)
				}
				q.waiting = nil
			})
			answer(a)
			o := <-done
			return o.raw, o.err
		}
		put := func(a asked, inner string) {
			b.put(a.Reply, "", a.Reply, nil, string(seal([]byte(strings.ReplaceAll(inner, "ID", a.MsgID)))))
		}
		raw, err := call(func(a asked) {
			put(a, `{"_msg_id": "ID", "result": null, "failure": null, "ending": false}`) // a heartbeat
			put(a, `{"_msg_id": "other", "result": 3, "failure": null, "ending": true}`)
			put(a, `{"_msg_id": "ID", "result": 5, "failure": null, "ending": false}`)
			put(a, `{"_msg_id": "ID", "result": null, "failure": null, "ending": true}`)
		})
		if string(raw) != "5" || err != nil {
			t.Errorf("%s, %v", raw, err)
		}
		b.wantSaid(t, "basic.ack", 0)
		time.Sleep(ackDelay)
		b.wantSaid(t, "basic.ack 4", 1)
		if raw, err = call(func(a asked) { put(a, `{"_msg_id": "ID", "result": 6, "failure": null, "ending": true}`) }); string(raw) != "6" || err != nil {
			t.Errorf("%s, %v", raw, err)
		}
		time.Sleep(time.Second)
		b.wantSaid(t, "basic.ack 1", 1)
		b.put(c.layout.replyQ, "", c.layout.replyQ, nil, "{")
		c.wantEvents("Connected", "Dropped  "+c.layout.replyQ)
		for range replyPrefetch / 4 {
			b.put(c.layout.replyQ, "", c.layout.replyQ, nil, "{")
		}
		b.wantSaid(t, "basic.ack 64", 1)
		c.close()
	})
}
