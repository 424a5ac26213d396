// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

const small = 1 << 20

// bounded has bounds that a test reaches quickly.
func bounded(cfg *messaging.Config) { cfg.MaxMessage, cfg.MaxBacklog = small, small }

func dropped(l *eventLog) (large []messaging.Dropped) {
	for _, e := range l.all() {
		d, ok := e.(messaging.Dropped)
		var too *messaging.TooLargeError
		if ok && errors.As(d.Err, &too) {
			large = append(large, d)
		}
	}
	return large
}

// TestLargeMessages: what is too large is refused without being put together, said, and what follows comes in as ever, on the
// same connection.
func TestLargeMessages(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 60*time.Second)
	client, log := open(t, shared, "agent", "h1", bounded)
	var handled atomic.Int64
	serve(t, client, messaging.Service{Topics: []string{"large"}, Handler: func(context.Context, *messaging.Message) (any, error) {
		handled.Add(1)
		return nil, nil
	}})
	ch := raw(t, shared)
	publish := func(body []byte, headers amqp.Table) {
		t.Helper()
		if err := ch.PublishWithContext(ctx, "large_fanout", "", false, false, amqp.Publishing{Body: body, Headers: headers}); err != nil {
			t.Fatal(err)
		}
	}
	message := []byte(`{"method":"x","args":{}}`)
	for range 3 {
		publish(make([]byte, 20*small), nil)
		publish(message, nil)
	}
	eventually(t, 20*time.Second, "small messages behind large ones", func() bool { return handled.Load() == 3 && len(dropped(log)) == 3 })
	if d := dropped(log)[0]; d.Exchange != "large_fanout" || !strings.Contains(d.Err.Error(), "20971520 bytes") {
		t.Errorf("%+v", d)
	}
	// Two megabytes of the same byte are a few thousand bytes on the wire.
	var bomb bytes.Buffer
	z := zlib.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 2*small))
	_ = z.Close()
	publish(bomb.Bytes(), amqp.Table{"compression": "application/x-gzip"})
	eventually(t, 20*time.Second, "a bomb is refused", func() bool { return len(dropped(log)) == 4 })
	if n := count[messaging.Disconnected](log); n != 0 {
		t.Errorf("the connection was lost %d times", n)
	}
}

// TestLargeReplies: a call whose reply is too large says so at once, whoever answers.
func TestLargeReplies(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 60*time.Second)
	client, log := open(t, shared, "agent", "h2", bounded)
	server, _ := open(t, shared, "server", "big")
	serve(t, server, messaging.Service{Topics: []string{"replies"}, Shared: true, Concurrency: 8, Handler: func(_ context.Context, m *messaging.Message) (any, error) {
		if m.Method == "large" {
			return strings.Repeat("x", 3*small), nil
		}
		return "small", nil
	}})
	startPython(t, "server", shared.URL(), "pyreplies", "py").ready()
	var large *messaging.TooLargeError
	for range 3 {
		began := time.Now()
		if err := client.Call(ctx, messaging.Target{Topic: "replies"}, "large", nil, nil); !errors.As(err, &large) {
			t.Errorf("a call with a large reply: %v", err)
		}
		if err := client.Call(ctx, messaging.Target{Topic: "pyreplies", Version: "1.2"}, "make", args{"size": 3 * small}, nil); !errors.As(err, &large) {
			t.Errorf("a call to Python with a large reply: %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("they took %s", took)
		}
		var got string
		if err := client.Call(ctx, messaging.Target{Topic: "replies"}, "small", nil, &got); err != nil || got != "small" {
			t.Errorf("a small one afterwards: %q, %v", got, err)
		}
	}
	if n := count[messaging.Disconnected](log) + count[messaging.Dropped](log); n != 0 {
		t.Errorf("%+v", log.all())
	}
}

// TestBrokerKeepsWhatTheHandlerDoesNotTake: a handler that is behind costs no memory here, and calls go on.
func TestBrokerKeepsWhatTheHandlerDoesNotTake(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 60*time.Second)
	const sent = 5000
	client, log := open(t, shared, "agent", "h3")
	server, _ := open(t, shared, "server", "s3")
	serve(t, server, messaging.Service{Topics: []string{"answers"}, Shared: true, Handler: echo})
	release := make(chan struct{})
	var handled atomic.Int64
	serve(t, client, messaging.Service{Topics: []string{"busy"}, Handler: func(ctx context.Context, _ *messaging.Message) (any, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		handled.Add(1)
		return nil, nil
	}})
	ch := raw(t, shared)
	for range sent {
		if err := ch.PublishWithContext(ctx, "busy_fanout", "", false, false, amqp.Publishing{Body: []byte(`{"method":"x","args":{}}`)}); err != nil {
			t.Fatal(err)
		}
	}
	queue := queuesOf(t, shared, "agent_fanout_h3_")[0].Name
	eventually(t, 20*time.Second, "the broker keeps all but 256", func() bool {
		q, err := ch.QueueDeclarePassive(queue, false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q.Messages >= sent-256 // it counts those that are not delivered
	})
	for i := range 20 {
		var got int
		if err := client.Call(ctx, messaging.Target{Topic: "answers"}, "echo", args{"value": i}, &got); err != nil || got != i {
			t.Fatalf("a call meanwhile: %d, %v", got, err)
		}
	}
	if n := handled.Load(); n != 0 {
		t.Errorf("%d were handled", n)
	}
	close(release)
	eventually(t, 20*time.Second, "all handled", func() bool { return handled.Load() == sent })
	if n := count[messaging.Dropped](log) + count[messaging.Disconnected](log); n != 0 {
		t.Errorf("%+v", log.all())
	}
}
