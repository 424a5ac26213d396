// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

const crashEnv = "PATCHBAY_MESSAGING_CRASH"

func TestCallCastServe(t *testing.T) {
	noLeaks(t)
	server, _ := open(t, shared, "server", "s1")
	serve(t, server, messaging.Service{Topics: []string{"basic"}, Shared: true, Handler: echo, Concurrency: 4})
	client, _ := open(t, shared, "client", "c1")
	ctx := within(t, 20*time.Second)

	var got string
	to := messaging.Target{Topic: "basic", Version: "1.0"}
	if err := client.Call(ctx, to, "echo", map[string]any{"value": "grüße ☃ \u0000 \U0001F600"}, &got); err != nil || got != "grüße ☃ \u0000 \U0001F600" {
		t.Errorf("echo: %q, %v", got, err)
	}
	to.Server = "s1"
	var where map[string]any
	if err := client.Call(ctx, to, "where", nil, &where); err != nil || where["directed"] != true || where["topic"] != "basic" {
		t.Errorf("where: %v, %v", where, err)
	}
	err := client.Call(ctx, to, "nosuch", nil, nil)
	if !errors.Is(err, messaging.NoSuchMethod) {
		t.Errorf("nosuch: %v", err)
	}
	var re *messaging.RemoteError
	if err := client.Call(ctx, to, "fail", nil, nil); !errors.As(err, &re) || re.Message != "bad ☃" {
		t.Errorf("fail: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	var te *messaging.TimeoutError
	if err := client.Call(short, messaging.Target{Topic: "nobody"}, "x", nil, nil); !errors.As(err, &te) || !errors.Is(err, messaging.ErrTimeout) {
		t.Errorf("timeout: %v", err)
	}
}

// TestCallBeforeTheServer: after a restart of the broker a client may be back before the server. Its call is not lost.
func TestCallBeforeTheServer(t *testing.T) {
	noLeaks(t)
	client, _ := open(t, shared, "client", "early")
	ctx := within(t, 20*time.Second)
	done := make(chan error, 1)
	go func() {
		done <- client.Call(ctx, messaging.Target{Topic: "late"}, "echo", map[string]any{"value": 1}, nil)
	}()
	time.Sleep(time.Second)
	server, _ := open(t, shared, "server", "s1")
	serve(t, server, messaging.Service{Topics: []string{"late"}, Shared: true, Handler: echo})
	began := time.Now()
	if err := <-done; err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// TestOneConnectionTwoQueues is about what the broker carries for an agent.
func TestOneConnectionTwoQueues(t *testing.T) {
	noLeaks(t)
	var topics []string
	for i := range 20 {
		topics = append(topics, fmt.Sprintf("few-%d", i))
	}
	var mu sync.Mutex
	got := map[string]int{}
	agent, _ := open(t, shared, "neutron-openvswitch-agent", "hv1")
	serve(t, agent, messaging.Service{Topics: topics, Handler: func(_ context.Context, m *messaging.Message) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		got[fmt.Sprintf("%s %t %t", m.Topic, m.Fanout, m.Directed)]++
		return nil, nil
	}})
	ctx := within(t, 30*time.Second)
	client, _ := open(t, shared, "client", "c1")
	for _, topic := range topics {
		for _, to := range []messaging.Target{{Topic: topic, Fanout: true}, {Topic: topic, Server: "hv1"}} {
			if err := client.Cast(ctx, to, "push", nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, 5*time.Second, "all casts handled", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == 40 })
	for k, n := range got {
		if n != 1 {
			t.Errorf("%s came %d times", k, n)
		}
	}
	// A call adds the reply queue.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_ = agent.Call(short, messaging.Target{Topic: "nobody"}, "x", nil, nil)
	conns, err := shared.Connections(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	name := regexp.MustCompile(`^neutron-openvswitch-agent:\d+:[0-9a-f-]{36}$`)
	for _, c := range conns {
		if s, _ := c.Properties["connection_name"].(string); name.MatchString(s) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d connections, want 1: %+v", n, conns)
	}
	queues := queuesOf(t, shared, "_")
	// The policy operators use to keep mirroring off short-lived queues must see ours as such.
	exempt := regexp.MustCompile(`^(amq\.)|(.*_fanout_)|(reply_).*`)
	if len(queues) != 2 {
		t.Errorf("%d queues, want 2: %+v", len(queues), queues)
	}
	for _, q := range queues {
		if !exempt.MatchString(q.Name) {
			t.Errorf("queue name %s is not recognised as transient", q.Name)
		}
		if ttl, _ := q.Arguments["x-expires"].(float64); ttl <= 0 || ttl >= 300_000 {
			t.Errorf("queue %s expires after %v ms, want under 5 minutes", q.Name, q.Arguments["x-expires"])
		}
	}
	if err := agent.Close(ctx); err != nil {
		t.Error(err)
	}
	if q := queuesOf(t, shared, "_"); len(q) != 0 {
		t.Errorf("left behind: %+v", q)
	}
}

// TestCloseDuringSetup: however early Close comes, it leaves no queue behind.
func TestCloseDuringSetup(t *testing.T) {
	noLeaks(t)
	for i := range 30 {
		c, _ := open(t, shared, "early", "hv1")
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
		_ = c.Serve(ctx, messaging.Service{Topics: []string{"early-a", "early-b", "early-c"}, Handler: echo})
		cancel()
		if err := c.Close(within(t, 5*time.Second)); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if q := queuesOf(t, shared, "early"); len(q) != 0 {
		t.Errorf("left behind: %+v", q)
	}
}
