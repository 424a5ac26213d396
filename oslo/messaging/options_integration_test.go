// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// withQuery gives a client the same options that the Python peer takes from the query of its URL.
func withQuery(t *testing.T, exchange, query string) func(*messaging.Config) {
	t.Helper()
	return func(cfg *messaging.Config) {
		u, err := messaging.ParseURL(shared.URL() + "?" + query)
		if err != nil {
			t.Fatal(err)
		}
		cfg.URL, cfg.Exchange = u, exchange
	}
}

// TestQueueOptionsWithPython: under each option a Go and a Python server serve the same topic, so that every exchange and
// shared queue is declared by both; a difference in any flag would be refused by the broker.
func TestQueueOptionsWithPython(t *testing.T) {
	for _, tt := range []struct{ name, query string }{
		{"durable", "amqp_durable_queues=true"},
		{"autodelete", "amqp_auto_delete=true"},
		{"quorum", "rabbit_quorum_queue=true&rabbit_quorum_delivery_limit=7&rabbit_quroum_max_memory_length=100&rabbit_quroum_max_memory_bytes=1000000"},
		{"mirrored", "rabbit_ha_queues=true&enable_cancel_on_failover=true&rabbit_qos_prefetch_count=10"},
		// bz2 cannot be had from this peer: its own library does not know the name.
		{"gzip", "kombu_compression=gzip&rabbit_login_method=PLAIN&rabbit_transient_queues_ttl=60"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeaks(t)
			topic, exchange := "opt-"+tt.name, "exchange-"+tt.name
			var mu sync.Mutex
			notes := 0
			server, slog := open(t, shared, "server", "gohost", withQuery(t, exchange, tt.query))
			serve(t, server, messaging.Service{Topics: []string{topic}, Shared: true, Handler: func(ctx context.Context, m *messaging.Message) (any, error) {
				if m.Method == "note" {
					mu.Lock()
					defer mu.Unlock()
					notes++
					return nil, nil
				}
				return echo(ctx, m)
			}})
			py := startPythonOn(t, exchange, "both", shared.URL()+"?"+tt.query, topic, "pyhost").ready()
			client, clog := open(t, shared, "client", "c1", withQuery(t, exchange, tt.query))
			ctx := within(t, 20*time.Second)

			var got string
			big := strings.Repeat("größer ", 5000)
			if err := client.Call(ctx, messaging.Target{Topic: topic, Server: "pyhost"}, "echo", args{"value": big}, &got); err != nil || got != big {
				t.Errorf("Go calls Python: %d bytes, %v", len(got), err)
			}
			if o := py.do(args{"op": "call", "topic": topic, "server": "gohost", "method": "echo", "args": args{"value": big}}); o.Result != big {
				t.Errorf("Python calls Go: %s %s", o.Error, o.Text)
			}
			if err := client.Call(ctx, messaging.Target{Topic: topic}, "echo", args{"value": "any"}, &got); err != nil || got != "any" {
				t.Errorf("either server: %q, %v", got, err)
			}
			if o := py.do(args{"op": "cast", "topic": topic, "fanout": true, "method": "note", "args": args{"text": "py"}}); o.Error != "" {
				t.Errorf("Python casts: %s %s", o.Error, o.Text)
			}
			if err := client.Cast(ctx, messaging.Target{Topic: topic, Fanout: true}, "note", args{"text": "go"}); err != nil {
				t.Error(err)
			}
			eventually(t, 5*time.Second, "both fanouts at both servers", func() bool {
				var there []string
				if err := client.Call(ctx, messaging.Target{Topic: topic, Server: "pyhost"}, "read_notes", nil, &there); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				defer mu.Unlock()
				return len(there) == 2 && notes == 2
			})
			for _, l := range []*eventLog{slog, clog} {
				if n := count[messaging.Disconnected](l) + count[messaging.SetupFailed](l) + count[messaging.Fallback](l); n != 0 {
					t.Errorf("trouble: %+v", l.all())
				}
			}
		})
	}
}

// TestTransientQuorumAndStreams: options newer than the Python peer at hand, against the broker.
func TestTransientQuorumAndStreams(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 60*time.Second)
	p := newProxy(t, shared.Addr())
	query := "rabbit_transient_quorum_queue=true&rabbit_stream_fanout=true&rabbit_qos_prefetch_count=5&rabbit_quorum_queue=true"
	var got listener
	agent, log := open(t, shared, "streamer", "hv1", withQuery(t, "exchange-stream", query), p.through)
	serve(t, agent, messaging.Service{Topics: []string{"st"}, Handler: got.handle})
	sender, _ := open(t, shared, "sender", "s1", withQuery(t, "exchange-stream", query))
	cast := func(method string, to messaging.Target) {
		t.Helper()
		if err := sender.Cast(ctx, to, method, nil); err != nil {
			t.Fatal(err)
		}
	}
	all := messaging.Target{Topic: "st", Fanout: true}
	for i := range 12 {
		cast(fmt.Sprint(i), all)
	}
	cast("directed", messaging.Target{Topic: "st", Server: "hv1"})
	eventually(t, 10*time.Second, "stream and directed", func() bool { return len(strings.Fields(got.String())) == 13 })

	var kinds []string
	for _, q := range queuesOf(t, shared, "st") {
		if q.Name == "st_fanout" || strings.HasPrefix(q.Name, "streamer_fanout_") {
			kinds = append(kinds, fmt.Sprintf("%s durable=%t age=%v", q.Arguments["x-queue-type"], q.Durable, q.Arguments["x-max-age"]))
		}
	}
	if len(kinds) != 2 || !strings.Contains(strings.Join(kinds, ","), "stream durable=true age=1800s") || !strings.Contains(strings.Join(kinds, ","), "quorum durable=true") {
		t.Errorf("queues %q", kinds)
	}

	// Cut, cast meanwhile: reading goes on where it stopped.
	p.refuse(true)
	p.cut()
	eventually(t, 5*time.Second, "disconnect noticed", func() bool { return count[messaging.Disconnected](log) == 1 })
	cast("while-away", all)
	p.refuse(false)
	eventually(t, 10*time.Second, "message from the outage", func() bool { return strings.HasSuffix(got.String(), "while-away") })
	if n := len(strings.Fields(got.String())); n != 14 {
		t.Errorf("%d messages, want 14: %s", n, got.String())
	}
	if count[messaging.Gap](log) != 0 {
		t.Error("a gap was reported where there was none")
	}
	if _, err := shared.Ctl(ctx, "delete_queue", "st_fanout"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "gap after deletion of the stream", func() bool { return count[messaging.Gap](log) == 1 })
	cast("after", all)
	eventually(t, 10*time.Second, "message from the new stream", func() bool { return strings.HasSuffix(got.String(), "after") })
}

// TestStreamsBeginNow: who begins to serve does not get what was sent before, and gets what is sent while its connection is away, although nothing has come before.
func TestStreamsBeginNow(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 60*time.Second)
	p := newProxy(t, shared.Addr())
	query := withQuery(t, "exchange-now", "rabbit_transient_quorum_queue=true&rabbit_stream_fanout=true&rabbit_qos_prefetch_count=5&rabbit_quorum_queue=true")
	var first, second listener
	before, _ := open(t, shared, "streamer", "hv1", query)
	serve(t, before, messaging.Service{Topics: []string{"now"}, Handler: first.handle})
	sender, _ := open(t, shared, "sender", "s1", query)
	cast := func(method string) {
		t.Helper()
		if err := sender.Cast(ctx, messaging.Target{Topic: "now", Fanout: true}, method, nil); err != nil {
			t.Fatal(err)
		}
	}
	cast("old")
	eventually(t, 10*time.Second, "message", func() bool { return first.String() != "" })
	agent, log := open(t, shared, "streamer", "hv2", query, p.through)
	serve(t, agent, messaging.Service{Topics: []string{"now"}, Handler: second.handle})
	time.Sleep(time.Second)
	if got := second.String(); got != "" {
		t.Errorf("what was sent before has come: %q", got)
	}
	p.refuse(true)
	p.cut()
	eventually(t, 5*time.Second, "disconnect noticed", func() bool { return count[messaging.Disconnected](log) == 1 })
	cast("while-away")
	p.refuse(false)
	eventually(t, 10*time.Second, "message from the outage", func() bool { return strings.HasSuffix(second.String(), "while-away") })
}

// TestQueueManagerNames: stable names, also over a leftover of the same name with other arguments.
func TestQueueManagerNames(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 30*time.Second)
	ch := raw(t, shared)
	if _, err := ch.QueueDeclare("reply_node7:agent:1", false, false, false, false, amqp.Table{"x-expires": int64(1_800_000)}); err != nil {
		t.Fatal(err)
	}
	agent, _ := open(t, shared, "agent", "hv7", withQuery(t, "neutron", "use_queue_manager=true&hostname=node7"))
	serve(t, agent, messaging.Service{Topics: []string{"qm"}, Shared: true, Handler: echo})
	var got int
	if err := agent.Call(ctx, messaging.Target{Topic: "qm"}, "echo", args{"value": 7}, &got); err != nil || got != 7 {
		t.Errorf("%d, %v", got, err)
	}
	var names []string
	for _, q := range queuesOf(t, shared, "node7") {
		names = append(names, q.Name)
	}
	if want := "agent_fanout_node7:agent:1 reply_node7:agent:1"; strings.Join(names, " ") != want && strings.Join(names, " ") != "reply_node7:agent:1 agent_fanout_node7:agent:1" {
		t.Errorf("queues %q, want %s", names, want)
	}
}

// TestDurabilityFallback: an exchange that exists with the other durability is used as it is, and that is reported.
func TestDurabilityFallback(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 30*time.Second)
	first, _ := open(t, shared, "server", "gohost", withQuery(t, "exchange-fallback", "amqp_durable_queues=true"))
	serve(t, first, messaging.Service{Topics: []string{"fb"}, Handler: echo})
	client, log := open(t, shared, "client", "c1", withQuery(t, "exchange-fallback", "amqp_durable_queues=false"))
	var got int
	if err := client.Call(ctx, messaging.Target{Topic: "fb", Server: "gohost"}, "echo", args{"value": 7}, &got); err != nil || got != 7 {
		t.Errorf("%d, %v", got, err)
	}
	if count[messaging.Fallback](log) == 0 {
		t.Errorf("not reported: %+v", log.all())
	}
}

// TestServeAnotherSet: Serve takes the whole set of topics, also while serving.
func TestServeAnotherSet(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 30*time.Second)
	var got listener
	agent, log := open(t, shared, "agent", "hv3")
	serve(t, agent, messaging.Service{Topics: []string{"set-a", "set-b"}, Handler: got.handle})
	serve(t, agent, messaging.Service{Topics: []string{"set-b", "set-c"}, Handler: got.handle})
	sender, _ := open(t, shared, "sender", "s1")
	for _, topic := range []string{"set-a", "set-b", "set-c"} {
		for _, to := range []messaging.Target{{Topic: topic, Fanout: true}, {Topic: topic, Server: "hv3"}} {
			if err := sender.Cast(ctx, to, topic, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, 5*time.Second, "casts", func() bool { return got.has("set-b", "set-b", "set-c", "set-c") })
	bindings, err := shared.Bindings(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings {
		if strings.HasPrefix(b.Destination, "agent_fanout_hv3_") && strings.HasPrefix(b.RoutingKey, "set-a") {
			t.Errorf("still bound: %+v", b)
		}
	}
	if count[messaging.Gap](log) != 0 {
		t.Error("a gap was reported where there was none")
	}
}

// overTLS has a client connect to the port for TLS.
func overTLS(t *testing.T, cfg *messaging.Config) {
	t.Helper()
	_, port, _ := strings.Cut(shared.TLSAddr(), ":")
	if _, err := fmt.Sscan(port, &cfg.URL.Hosts[0].Port); err != nil {
		t.Fatal(err)
	}
	cfg.Rabbit.TLS = true
}

func TestTLS(t *testing.T) {
	noLeaks(t)
	ctx := within(t, 30*time.Second)
	if _, err := shared.Ctl(ctx, "add_user", "bycert", "unused-password"); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Ctl(ctx, "set_permissions", "bycert", ".*", ".*", ".*"); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(certificates, name) }
	for _, tt := range []struct {
		name, host string
		set        func(*messaging.Rabbit)
		want       string // how far verified; "" if refused
	}{
		{"verified", "localhost", func(r *messaging.Rabbit) { r.TLSCAFile = file("ca.pem") }, "verified"},
		{"wrong host name", "127.0.0.1", func(r *messaging.Rabbit) { r.TLSCAFile = file("ca.pem") }, ""},
		{"wrong host name allowed", "127.0.0.1", func(r *messaging.Rabbit) { r.TLSCAFile, r.TLSVerifyHostname = file("ca.pem"), false }, "chain"},
		{"wrong authority", "localhost", func(r *messaging.Rabbit) { r.TLSCAFile = file("other-ca.pem") }, ""},
		{"wrong authority, name not verified", "localhost", func(r *messaging.Rabbit) { r.TLSCAFile, r.TLSVerifyHostname = file("other-ca.pem"), false }, ""},
		{"no authority", "127.0.0.1", func(*messaging.Rabbit) {}, "unverified"},
		{"TLS 1.2", "localhost", func(r *messaging.Rabbit) { r.TLSCAFile, r.TLSVersion = file("ca.pem"), "TLSv1_2" }, "verified"},
		{"login by certificate", "localhost", func(r *messaging.Rabbit) {
			r.TLSCAFile, r.TLSCertFile, r.TLSKeyFile, r.LoginMethod = file("ca.pem"), file("client.pem"), file("client-key.pem"), "EXTERNAL"
		}, "verified"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, log := open(t, shared, "tls", "h", func(cfg *messaging.Config) {
				overTLS(t, cfg)
				cfg.URL.Hosts[0].Name = tt.host
				tt.set(&cfg.Rabbit)
			})
			short, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if tt.want == "" {
				eventually(t, 5*time.Second, "refusal", func() bool { return count[messaging.ConnectFailed](log) > 0 })
				if count[messaging.Connected](log) != 0 {
					t.Error("connected")
				}
				return
			}
			if err := c.Ready(short); err != nil {
				t.Fatal(err)
			}
			eventually(t, 5*time.Second, "connected", func() bool { return count[messaging.Connected](log) == 1 })
			for _, e := range log.all() {
				if e, ok := e.(messaging.Connected); ok && e.TLS != tt.want {
					t.Errorf("connected %q, want %q", e.TLS, tt.want)
				}
			}
			if tt.name == "login by certificate" {
				conns, err := shared.Connections(ctx)
				if err != nil || len(conns) != 1 || conns[0].User != "bycert" || conns[0].Mechanism != "EXTERNAL" || !conns[0].SSL {
					t.Errorf("%+v, %v", conns, err)
				}
			}
		})
	}
}
