// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// RabbitMQ of another release is given by the root directory of a Debian suite that has it, as lab/release makes them; and
// settings of rabbitmq.conf with semicolons between them.
const (
	rootEnv = "PATCHBAY_BROKER_ROOT"
	confEnv = "PATCHBAY_BROKER_CONF"
)

// release has a node run what was asked for.
func release(cfg *broker.Config) {
	cfg.Root, cfg.Conf = os.Getenv(rootEnv), strings.ReplaceAll(os.Getenv(confEnv), ";", "\n")
}

// shared is the node that most tests use; those that break it have their own.
var (
	shared       *broker.Broker
	certificates string // directory
)

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		crashHelper()
		return
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "messaging-broker-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	certificates = filepath.Join(dir, "node") // a node with another root directory sees its own files only
	if err := errors.Join(os.Mkdir(certificates, 0o700), writeCertificates(certificates)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	file := func(name string) string { return filepath.Join(certificates, name) }
	cfg := broker.Config{
		Dir: certificates, Plugins: []string{"rabbitmq_auth_mechanism_ssl"},
		TLS: &broker.TLSFiles{CA: file("ca.pem"), Cert: file("server.pem"), Key: file("server-key.pem")},
	}
	release(&cfg)
	if shared, err = broker.Start(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := shared.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return m.Run()
}

// noLeaks fails the test if it leaves goroutines behind. It must come before the clients it watches.
func noLeaks(t *testing.T) {
	t.Helper()
	opt := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, opt) })
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventLog collects events.
type eventLog struct {
	mu     sync.Mutex
	events []messaging.Event
}

func (l *eventLog) add(e messaging.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *eventLog) all() []messaging.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]messaging.Event(nil), l.events...)
}

func count[E messaging.Event](l *eventLog) int {
	n := 0
	for _, e := range l.all() {
		if _, ok := e.(E); ok {
			n++
		}
	}
	return n
}

func config(t *testing.T, b *broker.Broker, program, host string) messaging.Config {
	t.Helper()
	u, err := messaging.ParseURL(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	r := messaging.DefaultRabbit()
	r.ReconnectDelay = 100 * time.Millisecond
	r.RetryInterval, r.RetryBackoff = 200*time.Millisecond, 200*time.Millisecond
	return messaging.Config{URL: u, Exchange: "neutron", Rabbit: r, Program: program, Host: host}
}

// open gives a client that is closed when the test ends, and its events.
func open(t *testing.T, b *broker.Broker, program, host string, options ...func(*messaging.Config)) (*messaging.Client, *eventLog) {
	t.Helper()
	cfg := config(t, b, program, host)
	log := &eventLog{}
	cfg.OnEvent = log.add
	for _, o := range options {
		o(&cfg)
	}
	c, err := messaging.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil && !errors.Is(err, messaging.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
	})
	return c, log
}

func serve(t *testing.T, c *messaging.Client, svc messaging.Service) {
	t.Helper()
	if err := c.Serve(within(t, 20*time.Second), svc); err != nil {
		t.Fatal(err)
	}
}

// echo returns its arguments.
func echo(_ context.Context, m *messaging.Message) (any, error) {
	switch m.Method {
	case "echo":
		var args struct{ Value json.RawMessage }
		if err := json.Unmarshal(m.Args, &args); err != nil {
			return nil, err
		}
		return args.Value, nil
	case "where":
		return map[string]any{"fanout": m.Fanout, "directed": m.Directed, "topic": m.Topic, "version": m.Version}, nil
	case "fail":
		return nil, &messaging.RemoteError{Class: "ValueError", Module: "builtins", Message: "bad ☃"}
	}
	return nil, messaging.NewNoSuchMethod(m.Method)
}

func eventually(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %s: %s", d, what)
}

// queuesOf lists the queues whose name contains s.
func queuesOf(t *testing.T, b *broker.Broker, s string) []broker.Queue {
	t.Helper()
	all, err := b.Queues(within(t, 90*time.Second)) // on a busy machine rabbitmqctl takes half a minute
	if err != nil {
		t.Fatal(err)
	}
	var some []broker.Queue
	for _, q := range all {
		if strings.Contains(q.Name, s) {
			some = append(some, q)
		}
	}
	return some
}
