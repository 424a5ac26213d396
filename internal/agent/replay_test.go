// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
	"github.com/patchbay-sdn/patchbay/parity"
)

const recordings = "../../parity/testdata"

var updatePins = flag.Bool("update", false, "write the counts of accepted differences")

// TestReplay gives the inputs of every recorded scenario to a whole agent between a switch in memory and the recording's server, and
// compares everything: flows, meters, rows, and what the agent says to the server. It needs no lab. Accepted differences have to
// be as many as is pinned. Where ports are filtered it is played a second time without fail_closed, which makes no
// difference but that of the rule of this name.
func TestReplay(t *testing.T) {
	all, err := parity.LoadAll(recordings)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := parity.LoadAccepted("../../parity/accepted.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(recordings, parity.PinsFile)
	pins, err := parity.LoadPins(file)
	if err != nil {
		t.Fatal(err)
	}
	configs := map[string]*parity.Recording{}
	for _, r := range all {
		if r.IsConfig() {
			configs[r.Config] = r
		}
	}
	played := &played{pins: parity.NewPins()}
	played.pins.Totals["recordings"] = len(all)
	t.Run("each", func(t *testing.T) {
		for _, r := range all {
			t.Run(r.Name, func(t *testing.T) {
				t.Parallel()
				for _, host := range r.Hosts {
					for _, closed := range modes(t, r) {
						c := comparison{r, configs[r.Config], host, closed, accepted, pins, played}
						synctest.Test(t, c.run)
					}
				}
				if !t.Failed() {
					played.one()
				}
			})
		}
	})
	if played.recordings != len(all) {
		return // only some were chosen, or something is wrong already
	}
	if *updatePins {
		if err := played.pins.Save(file); err != nil {
			t.Error(err)
		}
		return
	}
	if diff := cmp.Diff(pins.Totals, played.pins.Totals); diff != "" {
		t.Errorf("recordings, or lines of them that are compared, are not as many as is pinned in %s:\n%s", file, diff)
	}
	for _, at := range pins.Places() {
		if played.pins.At(at) == nil {
			t.Errorf("%s is pinned in %s, and nothing is accepted there", at, file)
		}
	}
}

// modes are the values of fail_closed that a recording is played with.
func modes(t *testing.T, r *parity.Recording) []bool {
	cfg, err := r.World(r.Hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Filter && !cfg.Hybrid {
		return []bool{true, false}
	}
	return []bool{false}
}

// played is what came out of all recordings.
type played struct {
	mu         sync.Mutex
	recordings int
	pins       *parity.Pins
}

func (p *played) one() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recordings++
}

// add counts lines of the recording.
func (p *played) add(at parity.Place, counts map[string]parity.Count, want parity.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pins.Set(at, counts)
	for _, line := range want {
		p.pins.Totals[kindOf(line)]++
	}
}

// kindOf says what a line of a recording is about, and whether it is compared.
func kindOf(line string) string {
	switch words := strings.Fields(line); {
	case words[0] == "api":
		return "lines of the API, not compared since they are the server's"
	case words[1] == "call":
		return "lines of calls"
	case words[1] == "sysctl":
		return "lines of sysctls, not compared since no agent writes them"
	case words[1] == "iptables" || words[1] == "ip6tables" || words[1] == "ipset":
		return "lines of iptables rules and sets"
	case strings.HasPrefix(words[2], "table=") || strings.HasPrefix(words[2], "meter="):
		return "lines of flows and meters"
	}
	return "lines of rows"
}

// comparison is one host of a recording, with fail_closed or without.
type comparison struct {
	r, config *parity.Recording
	host      string
	closed    bool
	accepted  *parity.Accepted
	pins      *parity.Pins
	played    *played
}

// failClosed is the rule that explains what fail_closed makes different, askOnPlug the one that explains questions about ports
// that are plugged in.
const failClosed, askOnPlug = "fail-closed", "ask-on-plug"

func (c comparison) run(t *testing.T) {
	h := newReplay(t, c.r, c.host)
	defer h.end()
	h.closed = c.closed
	if !c.r.IsConfig() {
		for _, s := range c.config.Stages {
			h.play(s)
		}
	}
	filtered := len(modes(t, c.r)) > 1
	for _, s := range c.r.Stages {
		have := h.play(s)
		want := s.Want.Select(func(line string) bool { return strings.HasPrefix(line, c.host+" ") })
		d := parity.Compare(want.Select(compared), have.Select(compared), c.accepted.At(c.r.Name, s.Checkpoint))
		at, counts := parity.Place{Scenario: c.r.Name, Checkpoint: s.Checkpoint, Host: c.host}, d.Counts()
		var wrong []string
		for _, x := range d.Unexplained() {
			wrong = append(wrong, x.String())
		}
		for _, x := range d.Differences {
			if x.Accepted == askOnPlug && !h.plugged(s.Events, x.Line) {
				wrong = append(wrong, x.String()+": "+askOnPlug+", and nobody has plugged the port in")
			}
		}
		if c.closed || !filtered {
			if c.host == c.r.Hosts[0] {
				want = want.Plus(s.Want.Select(func(line string) bool { return strings.HasPrefix(line, "api ") }))
			}
			c.played.add(at, counts, want)
		} else if n := c.pins.At(at)[failClosed]; n.Added+n.Missing > 0 {
			counts[failClosed] = n // which is not expected now
			if got := d.Counts()[failClosed]; got != (parity.Count{}) {
				wrong = append(wrong, fmt.Sprintf("%s explains %v lines without fail_closed", failClosed, got))
			}
		}
		if !*updatePins {
			wrong = append(wrong, c.pins.Exactly(at, counts)...)
		}
		if len(wrong) > 0 {
			t.Errorf("%s at %q, fail_closed %t, after %q:\n%s", c.host, s.Checkpoint, c.closed, s.Steps, strings.Join(wrong, "\n"))
		}
	}
}

func compared(line string) bool { return !strings.Contains(kindOf(line), "not compared") }

// replay is one host of a recording.
type replay struct {
	t      *testing.T
	r      *parity.Recording
	host   string
	server *parity.Server
	ovs    *fakeOVS
	kernel *kernel
	noise  *regexp.Regexp
	trunks bool // there are some
	closed bool // fail_closed
	// snapshot is the agent's, for those that are started anew. Others need none, and writing it takes most of the time.
	snapshot string

	broker  *replayBroker
	session *ovsSession
	stop    func() error // nil: no agent has started yet
}

func newReplay(t *testing.T, r *parity.Recording, host string) *replay {
	h := &replay{t: t, r: r, host: host, server: parity.NewServer(), ovs: newFakeOVS(), kernel: newKernel()}
	if slices.ContainsFunc(r.Stages, func(s parity.Stage) bool { return s.Restarts(host) }) {
		h.snapshot = filepath.Join(t.TempDir(), "snapshot")
	}
	for _, name := range r.Names {
		h.trunks = h.trunks || strings.HasPrefix(name, "tbr-")
	}
	if r.Noise != "" {
		h.noise = regexp.MustCompile(r.Noise)
	}
	return h
}

// replayBroker is a broker with the server of a recording behind it.
type replayBroker struct {
	*parity.Server
	life    *life
	service messaging.Service
}

func (b *replayBroker) Serve(_ context.Context, s messaging.Service) error {
	b.service = s
	return nil
}

func (b *replayBroker) RemoveLeftovers(context.Context, []string, string) ([]string, error) {
	return nil, nil
}

func (b *replayBroker) Close(context.Context) error { return nil }

// start runs an agent as it is configured in the recording.
func (h *replay) start() {
	h.t.Helper()
	cfg, err := h.r.World(h.host)
	if err != nil {
		h.t.Fatal(err)
	}
	cfg.FailClosed = h.closed
	settings, err := h.r.Settings()
	if err != nil {
		h.t.Fatal(err)
	}
	var more []extension.New
	if h.r.Option("agent.enable_distributed_routing") == "true" {
		more = append(more, dvr.New)
	}
	more = append(more, trunk.New)
	for _, name := range h.r.Extensions() {
		more = append(more, map[string]extension.New{"qos": qos.New}[name])
	}
	h.broker = &replayBroker{Server: h.server, life: newLife(0, func() {})}
	h.session = h.ovs.session(h.broker.life)
	config := Config{
		Host: h.host, PortsPerReport: 20, World: cfg, Settings: settings, Extensions: more, Snapshot: h.snapshot,
		Log: slog.New(slog.DiscardHandler), Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
		Link: runner.Supervised(func(ctx context.Context, bridge string) (*openflow.Conn, error) {
			return h.ovs.dial(ctx, h.broker.life, bridge)
		}),
	}
	if cfg.Hybrid {
		config.Rules, config.RulesConfig = h.kernel, &iptables.Config{Protocols: debianProtocols(h.t)}
	}
	a, err := New(config, h.session, func(func(messaging.Event)) (Broker, error) { return h.broker, nil })
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	h.stop = func() error { cancel(); return <-done }
	wait(time.Second)
}

// debianProtocols are the words that the host of the recordings has for protocols.
func debianProtocols(t *testing.T) iptables.Protocols {
	t.Helper()
	text, err := os.ReadFile("../iptables/testdata/protocols")
	if err != nil {
		t.Fatal(err)
	}
	return iptables.ReadProtocols(text)
}

// end stops the agent.
func (h *replay) end() {
	if h.stop == nil {
		return
	}
	h.broker.life.crash()
	if err := h.stop(); err != nil {
		h.t.Errorf("the agent ended with %v", err)
	}
	h.ovs.leave(h.session)
	h.stop = nil
}

// Times of a replay: what an agent has to do about one event, and before a checkpoint.
const (
	eventTime      = 100 * time.Millisecond
	checkpointTime = 2 * time.Second
	trunkTime      = 7 * time.Second // more than the extension trunk waits for a VM to come back
)

// play plays one stage, and returns the lines at its end.
func (h *replay) play(s parity.Stage) parity.Snapshot {
	h.t.Helper()
	if err := h.server.Foresee(s.Events); err != nil {
		h.t.Fatal(err)
	}
	if s.Restarts(h.host) {
		h.end()
		for _, e := range s.Events { // what changed while no agent was there
			if strings.HasPrefix(e.Topic, "neutron-vo-SubPort-") {
				h.apply(e)
			}
		}
		h.start()
	}
	for i, e := range s.Events {
		e, err := h.server.Told(e, s.Events)
		if err != nil {
			h.t.Fatal(err)
		}
		h.apply(e)
		if !slices.Contains(e.Hosts, h.host) || e.Call != "" {
			continue
		}
		if len(e.Rows) > 0 {
			h.rows(e.Rows)
			if h.stop == nil {
				h.start() // with the first rows of its configuration
			}
		} else if _, err := h.broker.service.Handler(h.t.Context(), &messaging.Message{Topic: e.Topic, Method: e.Cast, Args: e.Args}); err != nil {
			h.t.Fatal(err)
		}
		wait(eventTime)
		if h.goneForGood(e, s.Events[i+1:]) {
			wait(trunkTime)
		}
	}
	wait(checkpointTime + s.Passed())
	return h.lines(s.Checkpoint)
}

func (h *replay) apply(e parity.Event) {
	h.t.Helper()
	if err := h.server.Apply(e); err != nil {
		h.t.Fatal(err)
	}
}

// plugged tells whether the port that a line ends with was plugged in, here and by one of the events.
func (h *replay) plugged(events []parity.Event, line string) bool {
	_, name, _ := strings.Cut(line, "=")
	for _, e := range events {
		for _, c := range e.Rows {
			if id := c.ExternalIDs["iface-id"]; slices.Contains(e.Hosts, h.host) && id != "" && h.r.Names[id] == name {
				return true
			}
		}
	}
	return false
}

// goneForGood tells events by which a VM with a trunk goes and does not come back soon. The server hears of it when the agent
// has waited for that; the recorded agent told it at once, and what the server said then comes next.
func (h *replay) goneForGood(e parity.Event, later []parity.Event) bool {
	gone := map[string]bool{}
	for _, c := range e.Rows {
		if name := h.r.Names[c.Name]; c.Deleted && (strings.HasPrefix(name, "tbr-") || strings.HasPrefix(name, "tap-") && h.trunks) {
			gone[c.Name] = true
		}
	}
	for _, other := range later {
		for _, c := range other.Rows {
			if !c.Deleted && slices.Contains(other.Hosts, h.host) {
				delete(gone, c.Name)
			}
		}
	}
	return len(gone) > 0
}

// lines are everything at a checkpoint, in the words of the recording.
func (h *replay) lines(checkpoint string) parity.Snapshot {
	h.t.Helper()
	view := h.ovs.view()
	names := h.r.NamesOf()
	names.Learn(view)
	lines := names.Rows(view)
	for _, call := range h.server.Calls() {
		lines = append(lines, names.Apply(call))
	}
	if h.r.Hybrid() {
		state, err := h.kernel.Read(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		lines = append(lines, names.Rules(&state)...)
	}
	lines = append(lines, names.Meters("br-int", h.ovs.allMeters("br-int"))...)
	flows := map[string][]openflow.Flow{}
	for k, e := range h.ovs.all() {
		f, err := e.Flow()
		if err != nil {
			h.t.Fatal(err)
		}
		flows[k.bridge] = append(flows[k.bridge], f)
	}
	for br := range view.Bridges() {
		if _, touched := flows[br.Name]; !touched { // as the switch makes it
			lines = append(lines, names.Apply(br.Name)+" table=0 priority=0 actions=NORMAL")
		}
	}
	for bridge, list := range flows {
		lines = append(lines, names.Flows(bridge, list)...)
	}
	for i := range lines {
		lines[i] = h.host + " " + lines[i]
	}
	return parity.NewSnapshot(lines).Select(func(line string) bool {
		return h.noise == nil || !h.noise.MatchString(checkpoint+" "+line)
	})
}
