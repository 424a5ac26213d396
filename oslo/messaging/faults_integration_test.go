// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// TestDisconnects: 100 forced disconnects spread over 10,000 calls. Every call ends in its result or a typed error, and no
// handler sees a message twice.
func TestDisconnects(t *testing.T) {
	const calls, cuts, parallel = 10_000, 100, 50
	noLeaks(t)
	ps, pc := newProxy(t, shared.Addr()), newProxy(t, shared.Addr())

	var mu sync.Mutex
	handled := map[int]int{}
	server, slog := open(t, shared, "server", "s1", ps.through)
	serve(t, server, messaging.Service{Topics: []string{"faults"}, Shared: true, Concurrency: 16,
		Handler: func(_ context.Context, m *messaging.Message) (any, error) {
			var args struct{ N int }
			if err := json.Unmarshal(m.Args, &args); err != nil {
				return nil, err
			}
			mu.Lock()
			handled[args.N]++
			mu.Unlock()
			return args.N, nil
		}})
	client, clog := open(t, shared, "client", "c1", pc.through)

	var done, wrong, failed, untyped atomic.Int64
	var next, allowed atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range parallel {
		wg.Go(func() {
			for {
				n := int(next.Add(1))
				if n > calls {
					return
				}
				for int64(n) > allowed.Load() {
					time.Sleep(time.Millisecond)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				var got int
				err := client.Call(ctx, messaging.Target{Topic: "faults"}, "echo", map[string]int{"n": n}, &got)
				cancel()
				var re *messaging.RemoteError
				var te *messaging.TimeoutError
				switch {
				case err == nil && got != n:
					wrong.Add(1)
				case errors.As(err, &re), errors.As(err, &te):
					failed.Add(1)
				case err != nil:
					untyped.Add(1)
					t.Errorf("call %d: untyped error %v", n, err)
				}
				done.Add(1)
			}
		})
	}
	byBroker := 0
	for cut := range cuts {
		// The share of this cut may start; the cut falls into the middle of it, with both sides connected.
		allowed.Store(int64(cut+1) * calls / cuts)
		for done.Load() < int64(cut)*calls/cuts+calls/cuts/4 || !connected(slog) || !connected(clog) {
			time.Sleep(time.Millisecond)
		}
		switch {
		case cut%20 == 19:
			byBroker++
			if _, err := shared.Ctl(within(t, 20*time.Second), "close_all_connections", "test"); err != nil {
				t.Fatal(err)
			}
		case cut%3 == 0:
			ps.cut()
		case cut%3 == 1:
			pc.cut()
		default:
			ps.cut()
			pc.cut()
		}
	}
	wg.Wait()
	dups := 0
	for n, k := range handled {
		if k > 1 {
			dups++
			t.Errorf("message %d was handled %d times", n, k)
		}
	}
	disconnects := count[messaging.Disconnected](slog) + count[messaging.Disconnected](clog)
	t.Logf("%d calls, %d disconnects forced (%d by the broker), %d seen by the clients, in %s: %d results, %d typed errors, %d handled, %d duplicates, %d gaps",
		done.Load(), cuts, byBroker, disconnects, time.Since(began).Round(time.Millisecond),
		done.Load()-failed.Load()-wrong.Load()-untyped.Load(), failed.Load(), len(handled), dups, count[messaging.Gap](slog))
	if wrong.Load() != 0 {
		t.Errorf("%d wrong results", wrong.Load())
	}
	if disconnects < cuts {
		t.Errorf("only %d disconnects reached the clients", disconnects)
	}
	if n := count[messaging.Gap](slog); n != 0 {
		t.Errorf("%d gaps reported, but the queue was never lost", n)
	}
}

func connected(l *eventLog) bool {
	up := false
	for _, e := range l.all() {
		switch e.(type) {
		case messaging.Connected:
			up = true
		case messaging.Disconnected:
			up = false
		}
	}
	return up
}

// listener serves one topic and notes what arrives.
type listener struct {
	mu  sync.Mutex
	got []string
}

func (l *listener) handle(_ context.Context, m *messaging.Message) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, m.Method)
	return nil, nil
}

func (l *listener) has(methods ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.got, " ") == strings.Join(methods, " ")
}

func (l *listener) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.got, " ")
}

// TestGapOnlyWhenThereWasOne: the private queue keeps its messages through a disconnect; when it is lost, that is
// reported once.
func TestGapOnlyWhenThereWasOne(t *testing.T) {
	noLeaks(t)
	b := broker.New(t, release)
	p := newProxy(t, b.Addr())
	var got listener
	agent, log := open(t, b, "agent", "hv1", p.through)
	serve(t, agent, messaging.Service{Topics: []string{"push"}, Handler: got.handle})
	sender, _ := open(t, b, "server", "s1")
	ctx := within(t, 3*time.Minute)
	cast := func(method string) {
		t.Helper()
		if err := sender.Cast(ctx, messaging.Target{Topic: "push", Fanout: true}, method, nil); err != nil {
			t.Fatal(err)
		}
	}
	gaps := func(want int, when string) {
		t.Helper()
		if n := count[messaging.Gap](log); n != want {
			t.Errorf("after %s: %d gaps reported, want %d: %+v", when, n, want, log.all())
		}
	}

	cast("one")
	eventually(t, 5*time.Second, "first cast", func() bool { return got.has("one") })

	// Cut, and cast while nobody listens: nothing is lost.
	p.refuse(true)
	p.cut()
	eventually(t, 5*time.Second, "disconnect noticed", func() bool { return count[messaging.Disconnected](log) == 1 })
	cast("two")
	cast("three")
	p.refuse(false)
	eventually(t, 10*time.Second, "casts during the outage", func() bool { return got.has("one", "two", "three") })
	gaps(0, "a disconnect")

	if _, err := b.Ctl(ctx, "close_all_connections", "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "reconnected", func() bool { return count[messaging.Connected](log) == 3 })
	cast("four")
	eventually(t, 5*time.Second, "cast after close_all_connections", func() bool { return got.has("one", "two", "three", "four") })
	gaps(0, "close_all_connections")

	// Delete the queue under the consumer.
	var private string
	for _, q := range queuesOf(t, b, "agent_fanout_hv1_") {
		private = q.Name
	}
	if _, err := b.Ctl(ctx, "delete_queue", private); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "gap after deletion", func() bool { return count[messaging.Gap](log) == 1 })
	cast("five")
	eventually(t, 5*time.Second, "cast after deletion, have "+got.String(), func() bool { return got.has("one", "two", "three", "four", "five") })
	gaps(1, "deletion of the queue")
	if n := count[messaging.Disconnected](log); n != 2 {
		t.Errorf("deletion of the queue cost the connection: %d disconnects", n)
	}

	// Restart the broker: queues that are not durable are gone, quorum queues are not.
	quorum := func(cfg *messaging.Config) {
		cfg.Rabbit.QuorumQueue, cfg.Rabbit.TransientQuorumQueue = true, true
		cfg.Exchange = "quorum"
	}
	var gotq listener
	agentq, logq := open(t, b, "agentq", "hv1", quorum)
	serve(t, agentq, messaging.Service{Topics: []string{"pushq"}, Handler: gotq.handle})
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.Start(ctx, b.Config()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "reconnected after restart", func() bool { return count[messaging.Connected](log) == 4 })
	// From 4.3 on our queues are durable, and the node keeps exchanges and bindings over a restart, durable or not.
	lost := 1
	if theNode(t, b).minor >= 403 {
		lost = 0
	}
	gaps(1+lost, "a restart of the broker")
	cast("six")
	senderq, _ := open(t, b, "serverq", "s1", quorum)
	if err := senderq.Cast(ctx, messaging.Target{Topic: "pushq", Fanout: true}, "q", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "cast to the quorum queue", func() bool { return gotq.has("q") })
	if n := count[messaging.Gap](logq); n != 0 {
		t.Errorf("%d gaps reported for a queue that survived: %+v", n, logq.all())
	}
	eventually(t, 5*time.Second, "cast after restart", func() bool { return got.has("one", "two", "three", "four", "five", "six") })

	// Crash it.
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.Start(ctx, b.Config()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "reconnected after crash", func() bool { return count[messaging.Connected](log) == 5 })
	gaps(1+2*lost, "a crash of the broker")
	cast("seven")
	eventually(t, 5*time.Second, "cast after crash", func() bool { return strings.HasSuffix(got.String(), "seven") })

	ch := raw(t, b)
	if _, err := ch.QueueDeclarePassive(private, false, false, false, false, nil); err != nil {
		t.Fatalf("before Close: %v", err)
	}
	began := time.Now()
	if err := agent.Close(ctx); err != nil {
		t.Error(err)
	}
	_, err := ch.QueueDeclarePassive(private, false, false, false, false, nil)
	t.Logf("queue gone %s after the call of Close", time.Since(began))
	if err == nil || time.Since(began) > time.Second {
		t.Errorf("after Close: %v, %s", err, time.Since(began))
	}
}

// TestCrashLeavesNothingForLong: a process that is killed leaves its queues to the broker, which removes them.
func TestCrashLeavesNothingForLong(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), crashEnv+"="+shared.URL())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "serving\n" {
		t.Fatalf("helper said %q, %v", line, err)
	}
	before := queuesOf(t, shared, "crash")
	if len(before) != 1 {
		t.Errorf("queues of the helper: %+v", before)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, 15*time.Second, "queue expired", func() bool { return len(queuesOf(t, shared, "crash")) == 0 })
}

// crashHelper is the process that gets killed.
func crashHelper() {
	u, err := messaging.ParseURL(os.Getenv(crashEnv))
	if err != nil {
		panic(err)
	}
	c, err := messaging.Open(messaging.Config{
		URL: u, Rabbit: messaging.DefaultRabbit(), Program: "crash", Host: "h", QueueTTL: 2 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	if err := c.Serve(context.Background(), messaging.Service{Topics: []string{"x"}, Handler: echo}); err != nil {
		panic(err)
	}
	fmt.Println("serving")
	select {}
}

// TestLeftoversOfAPythonAgent: queues named <topic>.<host> that nobody consumes are removed, consumed ones are not.
func TestLeftoversOfAPythonAgent(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 20*time.Second)
	ch := raw(t, shared)
	for _, q := range []string{"old-a.hv9", "old-b.hv9"} {
		if _, err := ch.QueueDeclare(q, false, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ch.Consume("old-b.hv9", "", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	c, log := open(t, shared, "agent", "hv9")
	removed, err := c.RemoveLeftovers(ctx, []string{"old-a", "old-b", "old-c"}, "hv9")
	if err != nil || len(removed) != 1 || removed[0] != "old-a.hv9" {
		t.Errorf("removed %v, %v", removed, err)
	}
	if q := queuesOf(t, shared, ".hv9"); len(q) != 1 || q[0].Name != "old-b.hv9" {
		t.Errorf("left: %+v", q)
	}
	if count[messaging.Disconnected](log) != 0 {
		t.Error("it cost the connection")
	}
}
