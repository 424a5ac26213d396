// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// node is what the broker under test is.
type node struct {
	version string
	minor   int  // 3.8 is 308
	denied  bool // queues that are neither durable nor exclusive
}

func theNode(t *testing.T, b *broker.Broker) node {
	t.Helper()
	conn, err := amqp.Dial("amqp://patchbay:patchbay@" + b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	n := node{denied: strings.Contains(os.Getenv(confEnv), "transient_nonexcl_queues = false")}
	n.version, _ = conn.Properties["version"].(string)
	var major, minor int
	if _, err := fmt.Sscanf(n.version, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("version %q: %v", n.version, err)
	}
	n.minor = 100*major + minor
	return n
}

// tell says what came of a set of options; `make matrix` reads it.
func (n node) tell(t *testing.T, options, what string) {
	t.Helper()
	t.Logf("RabbitMQ %s, denied %t, %s: %s", n.version, n.denied, options, what)
}

// TestEveryRelease: under each set of options a client calls, is called, gets directed messages and those to all, also those of
// an outage, and leaves nothing behind. What a release does not have is refused with the option that helps. It runs on the
// machine's broker; PATCHBAY_BROKER_ROOT and PATCHBAY_BROKER_CONF give others.
func TestEveryRelease(t *testing.T) {
	on := theNode(t, shared)
	const quorum = "rabbit_quorum_queue=true"
	for _, tt := range []struct {
		name, query string
		since       int    // the release that has it
		help        string // before
		sharedWorks bool   // also where queues that are not durable are denied
		oneStream   bool   // for what is sent to all; who cannot have it goes on without it
		tls         bool
	}{
		{name: "default"},
		{name: "tls", tls: true},
		{name: "durable", query: "amqp_durable_queues=true", sharedWorks: true},
		{name: "quorum", query: quorum, sharedWorks: true},
		{name: "transient-quorum", query: quorum + "&rabbit_transient_quorum_queue=true", since: 310, help: "rabbit_transient_quorum_queue = false", sharedWorks: true},
		{name: "stream", query: quorum + "&rabbit_transient_quorum_queue=true&rabbit_stream_fanout=true&rabbit_qos_prefetch_count=10", since: 310, help: "rabbit_transient_quorum_queue = false", sharedWorks: true},
		{name: "one-stream", oneStream: true},
		{name: "one-stream-quorum", query: quorum + "&rabbit_transient_quorum_queue=true", since: 310, help: "rabbit_transient_quorum_queue = false", sharedWorks: true, oneStream: true},
		{name: "manager", query: "use_queue_manager=true"},
		{
			name: "kolla", since: 310, help: "rabbit_transient_quorum_queue = false", sharedWorks: true,
			query: quorum + "&rabbit_transient_quorum_queue=true&rabbit_stream_fanout=true&rabbit_qos_prefetch_count=1&use_queue_manager=true",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeaks(t)
			query := withQuery(t, "rel-"+tt.name, tt.query)
			options := func(cfg *messaging.Config) {
				query(cfg)
				cfg.Hub, cfg.HubStream = "hub-"+tt.name, tt.oneStream
				if tt.tls {
					overTLS(t, cfg)
					cfg.URL.Hosts[0].Name, cfg.Rabbit.TLSCAFile = "localhost", filepath.Join(certificates, "ca.pem")
				}
			}
			if on.minor < tt.since {
				on.tell(t, tt.name, fmt.Sprintf("refused; %v", wantRefused(t, tt.help, options, false)))
				return
			}
			share := !on.denied || tt.sharedWorks
			if !share {
				t.Log(wantRefused(t, "set amqp_durable_queues", options, true))
			}
			log := tryRelease(t, on, tt.name, options, share, tt.oneStream)
			for _, e := range log.all() {
				if e, ok := e.(messaging.Connected); ok && (e.TLS == "verified") != tt.tls {
					t.Errorf("connected with TLS %q", e.TLS)
				}
			}
		})
	}
}

// tryRelease returns what the agent's client reported.
func tryRelease(t *testing.T, on node, name string, options func(*messaging.Config), share, oneStream bool) *eventLog {
	t.Helper()
	ctx := within(t, 5*time.Minute)
	earlier := map[string]bool{} // queues of other tests that wait for their end
	for _, q := range queuesOf(t, shared, "_") {
		earlier[q.Name] = true
	}
	server, slog := open(t, shared, "server", "s1", options)
	serve(t, server, messaging.Service{Topics: []string{name + "-plugin"}, Shared: share, Handler: echo})
	var p *proxy
	agent, log := open(t, shared, "agent", "hv1", options, func(cfg *messaging.Config) {
		name := cfg.URL.Hosts[0].Name
		p = newProxy(t, cfg.URL.Hosts[0].Addr())
		p.through(cfg)
		cfg.URL.Hosts[0].Name = name // which the certificate has
	})
	var got listener
	var topics []string
	for i := range 13 {
		topics = append(topics, fmt.Sprintf("%s-%d", name, i))
	}
	serve(t, agent, messaging.Service{Topics: topics, Handler: got.handle})
	call := func() {
		t.Helper()
		to := messaging.Target{Topic: name + "-plugin"}
		if !share {
			to.Server = "s1"
		}
		var n int
		if err := agent.Call(ctx, to, "echo", args{"value": 7}, &n); err != nil || n != 7 {
			t.Errorf("call: %d, %v", n, err)
		}
	}
	cast := func(method string, to messaging.Target) {
		t.Helper()
		to.Topic = topics[12]
		if err := server.Cast(ctx, to, method, nil); err != nil {
			t.Fatalf("cast %s: %v", method, err)
		}
	}
	call()
	cast("all", messaging.Target{Fanout: true})
	eventually(t, 20*time.Second, "a message to all", func() bool { return got.has("all") })
	cast("one", messaging.Target{Server: "hv1"})
	eventually(t, 20*time.Second, "a directed message", func() bool { return got.has("all", "one") })

	p.refuse(true)
	p.cut()
	eventually(t, 20*time.Second, "disconnect noticed", func() bool { return !connected(log) })
	cast("away", messaging.Target{Fanout: true})
	p.refuse(false)
	eventually(t, 30*time.Second, "the message of the outage", func() bool { return got.has("all", "one", "away") })
	call()
	eventually(t, 20*time.Second, "connected", func() bool { return connected(log) })
	for _, l := range []*eventLog{log, slog} {
		if n := count[messaging.Gap](l) + count[messaging.Refused](l) + count[messaging.SetupFailed](l) + count[messaging.Fallback](l); n != 0 {
			t.Errorf("%+v", l.all())
		}
	}
	if n, want := count[messaging.NoStream](log), oneStream && on.minor < 309; n > 0 != want {
		t.Errorf("RabbitMQ %s has no stream: %d times", on.version, n)
	}
	for _, q := range queuesOf(t, shared, "agent_fanout_hv1") {
		n := 0
		bindings, err := shared.Bindings(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bindings {
			if b.Destination == q.Name && b.Source != "" {
				n++
			}
		}
		if n > 3 { // the hub, what is directed to the host, and the witness of a queue that outlives its exchanges
			t.Errorf("%d bindings: %+v", n, bindings)
		}
		what := "ok"
		if !share {
			what = "agent only"
		}
		switch {
		case q.Type == "quorum":
			what += ", quorum"
		case q.Durable:
			what += ", durable"
		}
		on.tell(t, name, fmt.Sprintf("%s; %d bindings for 13 topics", what, n))
	}
	if err := agent.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := server.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	exchanges, err := shared.Exchanges(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range exchanges {
		if strings.HasPrefix(e.Name, "hub-"+name+"_") && !oneStream { // the stream keeps its exchanges
			t.Errorf("left behind: %+v", e)
		}
	}
	for _, q := range queuesOf(t, shared, "_") {
		if earlier[q.Name] {
			continue
		}
		if strings.HasPrefix(q.Name, "agent_fanout_hv1") || strings.HasPrefix(q.Name, "server_fanout_s1") || strings.HasPrefix(q.Name, "reply_") {
			t.Errorf("left behind: %+v", q)
		}
	}
	return log
}

// wantRefused: serving does not work, and the error, which it returns, says what helps. The exchange has a name of its own: a client that ends
// between two connections leaves its queue and its exchange to the broker, until they expire.
func wantRefused(t *testing.T, help string, options func(*messaging.Config), share bool) error {
	t.Helper()
	c, log := open(t, shared, "agent", "refused", options, func(cfg *messaging.Config) { cfg.Hub = "hub-refused" })
	err := c.Serve(within(t, 15*time.Second), messaging.Service{
		Topics: []string{"refused"}, Shared: share, Handler: func(context.Context, *messaging.Message) (any, error) { return nil, nil },
	})
	var r *messaging.RefusedError
	if !errors.As(err, &r) || !strings.Contains(r.Do, help) || count[messaging.Refused](log) == 0 {
		t.Errorf("%v", err)
	}
	if err := c.Close(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
	return err
}
