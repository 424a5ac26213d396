// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// raw is an AMQP channel of the test's own.
func raw(t *testing.T, b *broker.Broker) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial("amqp://patchbay:patchbay@" + b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// TestReplyQueueDeletedUnderACall: the reply finds the queue under its old name as soon as it is made anew.
func TestReplyQueueDeletedUnderACall(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 30*time.Second)
	started, finish := make(chan struct{}), make(chan struct{})
	server, slog := open(t, shared, "server", "s1")
	serve(t, server, messaging.Service{Topics: []string{"rq"}, Shared: true, Handler: func(context.Context, *messaging.Message) (any, error) {
		close(started)
		<-finish
		return "late", nil
	}})
	client, clog := open(t, shared, "client", "c1")
	done := make(chan error)
	var got string
	go func() { done <- client.Call(ctx, messaging.Target{Topic: "rq"}, "m", nil, &got) }()
	<-started
	ch := raw(t, shared)
	for _, q := range queuesOf(t, shared, "reply_") {
		if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
			t.Fatal(err)
		}
	}
	close(finish)
	if err := <-done; err != nil || got != "late" {
		t.Errorf("%q, %v", got, err)
	}
	if n := count[messaging.Gap](clog) + count[messaging.Disconnected](clog) + count[messaging.Disconnected](slog); n != 0 {
		t.Errorf("%+v", clog.all())
	}
}

// TestBadMessages: what cannot be decoded or answered is reported and does no harm.
func TestBadMessages(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 30*time.Second)
	server, log := open(t, shared, "server", "s2", func(cfg *messaging.Config) { cfg.Rabbit.MissingConsumerRetry = 300 * time.Millisecond })
	serve(t, server, messaging.Service{Topics: []string{"bad"}, Handler: echo})
	ch := raw(t, shared)
	bodies := []string{
		"", "not json", `{"oslo.version":"2.0","oslo.message":17}`, `{"oslo.version":"9.0","oslo.message":"{}"}`, `{"args":{}}`,
		`{"method":"echo","args":{"value":1},"_msg_id":"x","_reply_q":"reply_of_nobody","_unique_id":"u1"}`,
	}
	for _, body := range bodies {
		if err := ch.PublishWithContext(ctx, "bad_fanout", "", false, false, amqp.Publishing{Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.PublishWithContext(ctx, "bad_fanout", "", false, false, amqp.Publishing{Body: []byte("x"), Headers: amqp.Table{"compression": "application/x-gzip"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "all reported", func() bool {
		return count[messaging.Dropped](log) == 6 && count[messaging.ReplyAbandoned](log) == 1
	})
	var got int
	if err := server.Call(ctx, messaging.Target{Topic: "bad", Server: "s2"}, "echo", args{"value": 5}, &got); err != nil || got != 5 {
		t.Errorf("%d, %v", got, err)
	}
	for _, q := range queuesOf(t, shared, "server_fanout_s2_") {
		if q.Messages != 0 {
			t.Errorf("left in the queue: %+v", q)
		}
	}
}

// TestBlocked: while the broker takes no messages, casts wait; then they go out.
func TestBlocked(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 60*time.Second)
	c, log := open(t, shared, "client", "c1")
	if err := c.Cast(ctx, messaging.Target{Topic: "x"}, "m", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Ctl(ctx, "set_vm_memory_high_watermark", "0.0"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, _ = shared.Ctl(context.Background(), "set_vm_memory_high_watermark", "absolute", "512MB")
	}()
	// The broker notices a publisher by its first message.
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	_ = c.Cast(short, messaging.Target{Topic: "x"}, "m", nil)
	cancel()
	eventually(t, 10*time.Second, "blocked", func() bool { return count[messaging.Blocked](log) == 1 })
	short, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := c.Cast(short, messaging.Target{Topic: "x"}, "m", nil); !errors.Is(err, messaging.ErrTimeout) {
		t.Errorf("cast while blocked: %v", err)
	}
	done := make(chan error)
	go func() { done <- c.Cast(ctx, messaging.Target{Topic: "x"}, "m", nil) }()
	if _, err := shared.Ctl(ctx, "set_vm_memory_high_watermark", "absolute", "512MB"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("cast after the block: %v", err)
	}
	if count[messaging.Unblocked](log) != 1 || count[messaging.Disconnected](log) != 0 {
		t.Errorf("%+v", log.all())
	}
}

// TestSilentBroker: a connection on which nothing comes any more is given up after the heartbeat threshold.
func TestSilentBroker(t *testing.T) {
	noLeaks(t)
	p := newProxy(t, shared.Addr())
	c, log := open(t, shared, "client", "c1", p.through, func(cfg *messaging.Config) { cfg.Rabbit.HeartbeatThreshold = 2 * time.Second })
	if err := c.Ready(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if count[messaging.Disconnected](log) != 0 {
		t.Fatal("an idle connection was given up although heartbeats come")
	}
	p.hang(true)
	eventually(t, 4*time.Second, "silence noticed", func() bool { return count[messaging.Disconnected](log) == 1 })
	p.cut()
	p.hang(false)
	eventually(t, 10*time.Second, "reconnected", func() bool { return count[messaging.Connected](log) == 2 })
}

// TestSecretsStaySecret plants a password, provokes errors of every kind, and looks for it in whatever is said.
func TestSecretsStaySecret(t *testing.T) {
	noLeaks(t)
	const secret = "hunter2-hunter2"
	var mu sync.Mutex
	var said []string
	note := func(v any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf("%v|%+v|%#v|%s", v, v, v, v))
	}
	for _, url := range []string{
		"rabbit://u:" + secret, "rabbit://u:" + secret + "@h:x/", "rabbit://u:" + secret + "@[::1/", "u:" + secret + "@h", "amqp://u:" + secret + "@h/",
		"rabbit://u:p@" + secret + ":h/", "rabbit://u:" + secret + "@h/?nosuch=1", "rabbit://u:" + secret + "@h/?ssl=" + secret,
		"rabbit://u:" + secret + "@h/?ssl=1&ssl_ca_file=/nonexistent", "rabbit://u:" + secret + "@h/?rabbit_login_method=x",
	} {
		u, err := messaging.ParseURL(url)
		note(err)
		note(u.Hosts)
		if err == nil {
			cfg := messaging.Config{URL: u, Rabbit: messaging.DefaultRabbit(), Program: "p", Host: "h"}
			note(u)
			c, err := messaging.Open(cfg)
			note(err)
			if err == nil {
				note(c.Close(within(t, 5*time.Second)))
			}
		}
	}
	host := func(cfg *messaging.Config) *messaging.Host { return &cfg.URL.Hosts[0] }
	for name, change := range map[string]func(*messaging.Config){
		"wrong password":       func(cfg *messaging.Config) { host(cfg).Password = secret },
		"wrong password PLAIN": func(cfg *messaging.Config) { host(cfg).Password = secret; cfg.Rabbit.LoginMethod = "PLAIN" },
		"wrong vhost":          func(cfg *messaging.Config) { cfg.URL.VirtualHost = "nosuch" },
		"nothing listens":      func(cfg *messaging.Config) { host(cfg).Password, host(cfg).Port = secret, 1 },
		"no such host":         func(cfg *messaging.Config) { host(cfg).Password, host(cfg).Name = secret, "nosuch.invalid" },
		"no TLS there":         func(cfg *messaging.Config) { host(cfg).Password, cfg.Rabbit.TLS = secret, true },
	} {
		t.Run(name, func(t *testing.T) {
			c, log := open(t, shared, "client", "c1", change)
			eventually(t, 15*time.Second, "failure", func() bool { return count[messaging.ConnectFailed](log)+count[messaging.Refused](log) > 0 })
			ctx := within(t, 300*time.Millisecond)
			err := c.Call(ctx, messaging.Target{Topic: "t"}, "m", nil, nil)
			note(err)
			var te *messaging.TimeoutError
			if !errors.As(err, &te) || te.Last == nil {
				t.Errorf("a call does not say why it failed: %v", err)
			}
			note(c.Serve(ctx, messaging.Service{Topics: []string{"t"}, Handler: echo}))
			note(c.Ready(ctx))
			note(c.Cast(ctx, messaging.Target{Topic: "t"}, "m", nil))
			for _, e := range log.all() {
				note(e)
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	for _, s := range said {
		if strings.Contains(s, secret) || strings.Contains(s, "patchbay:patchbay") {
			t.Errorf("said: %s", s)
		}
	}
	t.Logf("%d texts searched", len(said))
}

// TestSetupRefused: a topic that cannot be served is reported and tried again at a decent pace; calls work meanwhile, and
// serving begins when the obstacle is gone.
func TestSetupRefused(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 30*time.Second)
	ch := raw(t, shared)
	if err := ch.ExchangeDeclare("odd_fanout", "direct", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	server, _ := open(t, shared, "server", "s1")
	serve(t, server, messaging.Service{Topics: []string{"fine"}, Shared: true, Handler: echo})
	c, log := open(t, shared, "client", "c1")
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := c.Serve(short, messaging.Service{Topics: []string{"odd"}, Handler: echo})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "odd_fanout") {
		t.Errorf("Serve does not say what is wrong: %v", err)
	}
	var got int
	if err := c.Call(ctx, messaging.Target{Topic: "fine"}, "echo", args{"value": 5}, &got); err != nil || got != 5 {
		t.Errorf("a call meanwhile: %d, %v", got, err)
	}
	if n := count[messaging.Refused](log); n < 1 || n > 12 {
		t.Errorf("reported %d times", n)
	}
	if err := ch.ExchangeDelete("odd_fanout", false, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "served", func() bool {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return server.Call(short, messaging.Target{Topic: "odd", Server: "c1"}, "echo", args{"value": 6}, &got) == nil && got == 6
	})
	if count[messaging.Disconnected](log) != 0 || count[messaging.Gap](log) != 0 {
		t.Errorf("%+v", log.all())
	}
}

// TestServeWhileConnecting: a set of topics that comes at any moment of the setup is not overlooked.
func TestServeWhileConnecting(t *testing.T) {
	noLeaks(t)
	for i := range 40 {
		c, _ := open(t, shared, "client", "c1")
		time.Sleep(time.Duration(i) * time.Millisecond / 2)
		serve(t, c, messaging.Service{Topics: []string{"when-a"}, Handler: echo})
		var wg sync.WaitGroup
		wg.Go(func() {
			var got int
			if err := c.Call(within(t, 5*time.Second), messaging.Target{Topic: "when-a", Server: "c1"}, "echo", args{"value": i}, &got); err != nil || got != i {
				t.Errorf("%d: %d, %v", i, got, err)
			}
		})
		serve(t, c, messaging.Service{Topics: []string{"when-a", "when-b"}, Handler: echo})
		wg.Wait()
		if err := c.Close(within(t, 5*time.Second)); err != nil {
			t.Error(err)
		}
	}
}
