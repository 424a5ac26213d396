// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// fakeBroker is a broker with a server of release 21 behind it, that can be made to fail.
type fakeBroker struct {
	mu      sync.Mutex
	onEvent func(messaging.Event)
	service messaging.Service
	closed  bool

	alive   func() (bool, error)
	report  func(neutron.AgentState) (any, error)
	reports []neutron.AgentState

	region *sim.Region // what else the server knows; nothing when it is nil
	link   *sim.Link
}

func (b *fakeBroker) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if b.region == nil {
		b.region = sim.New(sim.Config{})
	}
	switch method {
	case "has_alive_neutron_server":
		if t.Version != "1.2" {
			break
		}
		ok, err := b.alive()
		return answer(ok, err, result)
	case "report_state":
		var wire struct {
			AgentState struct {
				AgentState neutron.AgentState `json:"agent_state"`
			} `json:"agent_state"`
		}
		encoded, err := json.Marshal(args)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(encoded, &wire); err != nil {
			return err
		}
		b.reports = append(b.reports, wire.AgentState.AgentState)
		status, err := b.report(wire.AgentState.AgentState)
		return answer(status, err, result)
	}
	if b.link == nil {
		b.link = b.region.Join("hv1", nil)
	}
	return b.link.Call(ctx, t, method, args, result)
}

func answer(v any, err error, result any) error {
	if err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

func (b *fakeBroker) Serve(_ context.Context, s messaging.Service) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.service = s
	return nil
}

func (b *fakeBroker) RemoveLeftovers(context.Context, []string, string) ([]string, error) {
	return nil, nil
}

func (b *fakeBroker) Close(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

func (b *fakeBroker) sent() []neutron.AgentState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.reports)
}

// fakeSwitch hands on batches that a test makes, at the moment that the test says, and takes no rows. It has nothing behind it: where
// rows and flows matter there is fakeOVS.
type fakeSwitch struct{ changes chan *ovsdb.Batch }

func (s *fakeSwitch) Run(ctx context.Context) { <-ctx.Done() }
func (s *fakeSwitch) CommitAll(_ context.Context, txs []*ovsdb.Tx) (ovsdb.Result, []error) {
	errs := make([]error, len(txs))
	for i := range errs {
		errs[i] = ovsdb.ErrDisconnected
	}
	return ovsdb.Result{}, errs
}

func (s *fakeSwitch) Changes() <-chan *ovsdb.Batch { return s.changes }

// logBuffer may be read while the agent writes.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBuffer) Len() int { return len(l.String()) }

// rig is an agent between its fakes, in a bubble of fake time.
type rig struct {
	broker *fakeBroker
	sw     *fakeSwitch
	log    *logBuffer
	agent  *Agent
	stop   func() error
}

// start runs an agent for the rest of the test. It must be called inside a synctest bubble.
func start(t *testing.T, change func(*Config, *fakeBroker)) *rig {
	t.Helper()
	return startWith(t, change, nil)
}

// startConnected runs an agent whose switch has been read.
func startConnected(t *testing.T) *rig {
	t.Helper()
	r := start(t, nil)
	r.sw.changes <- fake.Connected()
	wait(time.Second)
	return r
}

// startWith has another server stand before the broker's own, if it is not nil.
func startWith(t *testing.T, change func(*Config, *fakeBroker), before func(*fakeBroker) Broker) *rig {
	t.Helper()
	r := &rig{
		broker: &fakeBroker{
			alive:  func() (bool, error) { return true, nil },
			report: func(neutron.AgentState) (any, error) { return "alive", nil },
		},
		sw: &fakeSwitch{changes: make(chan *ovsdb.Batch)}, log: &logBuffer{},
	}
	cfg := Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, World: world.Config{Host: "hv1", IntegrationBridge: "br-int"}, Log: observe.NewLogger(r.log, slog.LevelInfo),
		Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
	}
	if change != nil {
		change(&cfg, r.broker)
	}
	a, err := New(cfg, r.sw, func(onEvent func(messaging.Event)) (Broker, error) {
		r.broker.onEvent = onEvent
		if before != nil {
			return before(r.broker), nil
		}
		return r.broker, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.agent = a
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	r.stop = func() error { cancel(); return <-done }
	return r
}

// wait lets fake time pass and everything settle.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) lines(part string) int { return strings.Count(r.log.String(), part) }

func TestReportsOnceBothSidesAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		wait(time.Second)
		if n := len(r.broker.sent()); n != 0 {
			t.Errorf("%d reports before the switch was seen", n)
		}
		r.sw.changes <- fake.Connected()
		wait(time.Second)
		sent := r.broker.sent()
		if len(sent) != 1 {
			t.Fatalf("%d reports after the switch came up, want 1 at once", len(sent))
		}
		first := sent[0]
		if !first.StartFlag || first.ResourceVersions[neutron.KindPort] != "1.7" || first.UUID == "" ||
			!slices.Equal(first.Configurations.OVSCapabilities.IfaceTypes, []string{"vxlan"}) {
			t.Errorf("first report %+v", first)
		}
		before := r.log.Len()
		wait(10 * time.Minute)
		sent = r.broker.sent()
		if n := len(sent); n < 20 || n > 22 {
			t.Errorf("%d reports in ten minutes, want one each 30 s", n)
		}
		if later := sent[5]; later.StartFlag || later.ResourceVersions != nil || later.UUID == first.UUID {
			t.Errorf("later report %+v", later)
		}
		if r.log.Len() != before {
			t.Errorf("an idle agent logged: %s", r.log.String()[before:])
		}
		if err := r.stop(); err != nil || !r.broker.closed {
			t.Errorf("stop: %v, queues removed: %v", err, r.broker.closed)
		}
	})
}

func TestWaitsForAServerThatReachesItsDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := start(t, func(_ *Config, b *fakeBroker) {
			b.alive = func() (bool, error) {
				switch asked++; {
				case asked <= 3:
					return false, messaging.ErrTimeout
				case asked <= 40:
					return false, nil
				}
				return true, nil
			}
		})
		r.sw.changes <- fake.Connected()
		wait(5 * time.Minute)
		if asked > 20 {
			t.Errorf("asked %d times in five minutes: pauses do not grow", asked)
		}
		if len(r.broker.sent()) != 0 {
			t.Error("reported to a server that is not alive")
		}
		if n := r.lines("neutron-server does not answer, retrying"); n != 2 {
			t.Errorf("%d lines about a server that is away for two reasons, want 2:\n%s", n, r.log)
		}
		wait(30 * time.Minute)
		if len(r.broker.sent()) == 0 || r.lines("neutron-server answered") != 1 {
			t.Errorf("did not notice that the server came:\n%s", r.log)
		}
		_ = r.stop()
	})
}

func TestSilentWhileTheSwitchIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startConnected(t)
		r.sw.changes <- &ovsdb.Batch{Seq: 2, Kind: ovsdb.Disconnected, Err: errors.New("gone")}
		before := len(r.broker.sent())
		wait(5 * time.Minute)
		if n := len(r.broker.sent()) - before; n != 0 {
			t.Errorf("%d reports while the switch could not be reached", n)
		}
		r.sw.changes <- &ovsdb.Batch{Seq: 3, Kind: ovsdb.Reconnected}
		wait(time.Second)
		if n := len(r.broker.sent()) - before; n != 1 {
			t.Errorf("%d reports when it was back, want 1 at once", n)
		}
		_ = r.stop()
	})
}

func TestFailedReportsAreToldOnceAndResent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := true
		r := start(t, func(_ *Config, b *fakeBroker) {
			b.report = func(neutron.AgentState) (any, error) {
				if fail {
					return nil, messaging.ErrTimeout
				}
				return "revived", nil
			}
		})
		r.sw.changes <- fake.Connected()
		wait(5 * time.Minute)
		if n := r.lines("report_state failed, retrying"); n != 1 {
			t.Errorf("%d lines about failing reports, want 1:\n%s", n, r.log)
		}
		r.broker.mu.Lock()
		fail = false
		r.broker.mu.Unlock()
		wait(time.Minute)
		sent := r.broker.sent()
		if got := sent[len(sent)-2]; got.ResourceVersions == nil || !got.StartFlag {
			t.Error("what the server never got was not sent again")
		}
		if r.lines("report_state succeeds again") != 1 {
			t.Errorf("log:\n%s", r.log)
		}
		_ = r.stop()
	})
}

func TestListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(cfg *Config, _ *fakeBroker) { cfg.Configurations.L2Population, cfg.Ping = true, true })
		r.sw.changes <- fake.Connected()
		wait(time.Second)
		r.broker.mu.Lock()
		s := r.broker.service
		r.broker.mu.Unlock()
		for _, topic := range []string{"q-agent-notifier-tunnel-delete", "q-agent-notifier-l2population-update", "neutron-vo-Port-1.7"} {
			if !slices.Contains(s.Topics, topic) {
				t.Errorf("does not listen to %s", topic)
			}
		}
		// With l2population endpoints that are announced to all change nothing.
		if want := []string{"q-agent-notifier-tunnel-update"}; !slices.Equal(s.Directed, want) || slices.Contains(s.Topics, want[0]) {
			t.Errorf("listens to %q and, directed, to %q", s.Topics, s.Directed)
		}
		if v, err := s.Handler(t.Context(), &messaging.Message{Call: true, Method: "oslo_rpc_server_ping"}); v != "pong" || err != nil {
			t.Errorf("ping: %v, %v", v, err)
		}
		if _, err := s.Handler(t.Context(), &messaging.Message{Call: true, Method: "x"}); !errors.Is(err, messaging.NoSuchMethod) {
			t.Errorf("unknown call: %v", err)
		}
		bad := &messaging.Message{Topic: "neutron-vo-Port-1.7", Method: "push", Args: []byte(`{"resource_list":[]}`)}
		for range 3 {
			if _, err := s.Handler(t.Context(), bad); err != nil {
				t.Error(err)
			}
		}
		wait(time.Second)
		if n := r.lines("RPC message cannot be decoded"); n != 1 {
			t.Errorf("%d lines about the same unreadable message, want 1:\n%s", n, r.log)
		}
		_ = r.stop()
	})
}

func TestBrokerOutageIsTwoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startConnected(t)
		before := r.log.Len()
		r.broker.onEvent(messaging.Disconnected{Addr: "a:5672", Err: errors.New("EOF")})
		for range 20 { // two brokers in turn
			r.broker.onEvent(messaging.ConnectFailed{Addr: "a:5672", Err: errors.New("refused")})
			r.broker.onEvent(messaging.ConnectFailed{Addr: "b:5672", Err: errors.New("refused")})
		}
		r.broker.onEvent(messaging.Connected{Addr: "b:5672"})
		r.broker.onEvent(messaging.Gap{Queue: "q", Reason: "it had expired"})
		wait(time.Second)
		text := r.log.String()[before:]
		if n := strings.Count(text, "\n"); n != 5 || !strings.Contains(text, "RPC messages may have been lost, resyncing") {
			t.Errorf("%d lines, want lost, two refusals, connected, gap:\n%s", n, text)
		}
		_ = r.stop()
	})
}

// brokerRefuses is what the core logs.
const brokerRefuses = "the broker rejected the login or an operation, retrying"

// TestRefusalByTheBroker: one line at error level while it lasts, and a reason in the status that says what to do.
func TestRefusalByTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startConnected(t)
		before := r.log.Len()
		refused := messaging.Refused{Addr: "a:5672", Err: &messaging.RefusedError{Queue: "q", Do: "set this", Err: errors.New("406")}}
		for range 5 {
			r.broker.onEvent(refused)
			wait(time.Minute)
		}
		text := r.log.String()[before:]
		if n := strings.Count(text, brokerRefuses); n != 1 || !strings.Contains(text, "ERROR") || !strings.Contains(text, `do="set this"`) {
			t.Errorf("%d lines:\n%s", n, text)
		}
		s, err := r.agent.Status(t.Context())
		if err != nil || s.Broker.Up || s.InSync || !slices.Contains(s.Reasons, "the broker cannot be reached: refused by the broker: 406: set this") {
			t.Errorf("%+v, %q, %v", s.Broker, s.Reasons, err)
		}
		r.broker.onEvent(messaging.Connected{Addr: "a:5672"})
		r.broker.onEvent(refused)
		wait(time.Second)
		if n := strings.Count(r.log.String()[before:], brokerRefuses); n != 2 {
			t.Errorf("said %d times, although it came up again", n)
		}
		_ = r.stop()
	})
}

func TestAClockBehindTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(_ *Config, b *fakeBroker) {
			b.report = func(neutron.AgentState) (any, error) { return nil, nil }
		})
		r.sw.changes <- fake.Connected()
		wait(2 * time.Minute)
		if r.lines("clock is behind") != 1 || r.lines("registered with neutron-server") != 0 {
			t.Errorf("log:\n%s", r.log)
		}
		_ = r.stop()
	})
}
