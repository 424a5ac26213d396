// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/tape"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Broker is what the agent uses of *messaging.Client.
type Broker interface {
	runner.Broker
	Close(ctx context.Context) error
}

// Switch is what the agent uses of *ovsdb.Client.
type Switch interface {
	runner.Switch
	Changes() <-chan *ovsdb.Batch
}

// Config is what the agent needs besides its connections.
type Config struct {
	Host string
	// Configurations is the state report as far as it is known before the switch has spoken.
	Configurations neutron.Configurations
	// ReportInterval separates state reports, and is the time in which one has to be answered. 0: none are sent.
	ReportInterval time.Duration
	// PortsPerReport bounds how many ports one report of statuses names.
	PortsPerReport int
	// World and Settings are what wiring needs of the options.
	World    world.Config
	Settings pipeline.Settings
	// Link keeps a connection to a bridge, given by its name, until ctx ends; then it closes the channel. PacketLink keeps one that only packets of flows of
	// extensions come by; nil: there is none.
	Link, PacketLink func(ctx context.Context, bridge string) <-chan Link
	// Statistics reads the counters of interfaces, by the interface's name and theirs, for people who ask; nil: nobody can.
	Statistics func(ctx context.Context) (map[string]map[string]int, error)
	// Conntrack is told which connections are not allowed any more; nil when nothing is filtered.
	Conntrack Conntrack
	// ConntrackLimit is how many tracked connections a network may have; 0: as many as the switch. Limits sets it; nil: nobody
	// does. DropFragments: it has the switch drop fragments as well.
	ConntrackLimit uint32
	Limits         Limits
	DropFragments  bool
	// Rules reads and writes rules of iptables, as RulesConfig says, Forwarding forwarding tables of devices; nil: nobody does.
	Rules       Rules
	RulesConfig *iptables.Config
	Forwarding  Forwarding
	// Metadata is the metadata proxy; nil: no extension has one.
	Metadata Metadata
	// Resolver asks resolvers; nil: no extension does.
	Resolver Resolver
	// Extensions are made over the agent's world, in this order. Records writes lines of their logs, one call at a time; lost is how many could
	// not be kept before these. Nil: nobody does.
	Extensions []extension.New
	Records    func(lines Records, lost uint64)
	// ExtensionsMade is how Extensions are made again, for the tape.
	ExtensionsMade json.RawMessage
	// Snapshot is the file in which the last world in sync is kept; empty: none is.
	Snapshot string
	// Version is this program's, for people.
	Version string
	// Memory is what an earlier run wrote down, where the caller has read it and Snapshot is empty.
	Memory *world.Memory
	// FDBGrace is how long after the first reports forwarding entries may take to come; 0: half a minute.
	FDBGrace time.Duration
	// Progress, if set, is called by the loop after every event, and must not wait.
	Progress func(Progress)
	// Ping answers oslo.messaging's ping method.
	Ping     bool
	Log      *slog.Logger
	Notifier *observe.Notifier

	// Tape gets the inputs of the decisions; nil: nobody does.
	Tape Tape

	probe *probe // nil but in tests
}

// probe is for tests: f is called at the beginning and the end of what a panic cannot leave, by any goroutine.
type probe struct{ f func(what string) }

func (p *probe) call(what string) {
	if p.f != nil {
		p.f(what)
	}
}

// closeTime bounds how long a stop waits for the broker to take our queues away; they expire if it does not.
const closeTime = 800 * time.Millisecond

// Agent is one agent on one host. Make it with [New] and run it once.
type Agent struct {
	cfg    Config
	log    *slog.Logger
	broker Broker
	sw     Switch
	core   *core.Core
	runner *runner.Runner

	inbox    *mailbox[effect.Event]
	pushes   *pushbox
	recorder *core.Recorder
	turns    turns
	asked    chan func(core.View) // see ask
	ended    chan struct{}        // closed when the loop is over
}

// New returns an agent. Open is called once to make the broker's client, with the function that wants to hear of its
// events.
func New(cfg Config, sw Switch, open func(onEvent func(messaging.Event)) (Broker, error)) (*Agent, error) {
	a := &Agent{
		cfg: cfg, sw: sw, inbox: newMailbox[effect.Event](), pushes: newPushbox(), recorder: &core.Recorder{},
		asked: make(chan func(core.View)), ended: make(chan struct{}),
	}
	a.log = slog.New(a.recorder.Handler(cfg.Log.Handler()))
	var err error
	if a.broker, err = open(a.brokerEvents); err != nil {
		return nil, err
	}
	a.runner = runner.New(runner.Config{
		Host: cfg.Host, LocalIP: cfg.World.LocalIP, Broker: a.broker, Handler: a.take, Switch: sw, Link: cfg.Link, PacketLink: cfg.PacketLink, Conntrack: cfg.Conntrack,
		Limits: cfg.Limits, Rules: cfg.Rules, Forwarding: cfg.Forwarding, Metadata: cfg.Metadata, Resolver: cfg.Resolver, Records: cfg.Records, Snapshot: cfg.Snapshot, Notifier: cfg.Notifier,
	}, a.inbox.put)
	var probe func(string)
	if cfg.probe != nil {
		probe = cfg.probe.call
	}
	a.runner.Probe = probe
	decisions := core.Config{
		Host: cfg.Host, Configurations: cfg.Configurations, ReportInterval: cfg.ReportInterval, PortsPerReport: cfg.PortsPerReport,
		World: cfg.World, Settings: cfg.Settings, Extensions: cfg.Extensions, FDBGrace: cfg.FDBGrace, Conntrack: cfg.Conntrack != nil,
		ConntrackLimit: cfg.ConntrackLimit, Limits: cfg.Limits != nil, DropFragments: cfg.DropFragments, Snapshot: cfg.Snapshot != "", Progress: cfg.Progress != nil,
		Rules: cfg.RulesConfig, Version: cfg.Version, Seed: rand.Uint64(), Log: a.log, Recorder: a.recorder, Probe: probe,
	}
	saved := recall(cfg.Snapshot, cfg.Memory, a.log)
	a.turns.start = time.Now()
	begin(cfg.Tape, tape.HeaderOf(&decisions, saved, a.turns.start), cfg.ExtensionsMade)
	a.core = core.New(decisions, saved, a.turns.start)
	return a, nil
}

// Run runs the agent until ctx ends, then takes its queues off the broker. It returns an error only when something
// happened that running on cannot mend.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.runner.StartSwitch(ctx)
	a.loop(ctx)
	cancel()
	close(a.ended)
	if last := a.core.Last(time.Now()); last != nil {
		if err := a.runner.Save(*last); err != nil {
			a.log.Warn("snapshot not written", "err", err)
		}
	}
	if err := a.cfg.Notifier.Stopping(); err != nil {
		a.log.Warn("sd_notify failed", "err", err)
	}
	// The caller's context is over; what is left of the connection gets a short one of its own.
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer done()
	if closeErr := a.broker.Close(closing); closeErr != nil {
		a.log.Warn("queues not deleted, the broker expires them", "err", closeErr)
	}
	a.runner.Wait()
	a.log.Info("agent stopped")
	return nil
}

// loop takes what happens to the core, and what follows from it to the runner.
func (a *Agent) loop(ctx context.Context) {
	// A nil channel never fires: without an interval or a watchdog the loop does without.
	var reportTick, watchdogTick <-chan time.Time
	if a.cfg.ReportInterval > 0 {
		t := time.NewTicker(a.cfg.ReportInterval)
		defer t.Stop()
		reportTick = t.C
	}
	if d := a.cfg.Notifier.WatchdogInterval(); d > 0 {
		t := time.NewTicker(d)
		defer t.Stop()
		watchdogTick = t.C
	}
	changes := a.sw.Changes()
	wake := &alarm{timer: time.NewTimer(time.Hour)}
	defer wake.timer.Stop()
	a.step(ctx, wake)
	for {
		var began time.Time
		select {
		case <-ctx.Done():
			return
		case answer := <-a.asked:
			v := a.core.Look(time.Now())
			answer(v)
			wake.set(v.NextStep())
			continue // nothing has changed
		case b, ok := <-changes:
			if !ok {
				changes = nil // ends with ctx
				continue
			}
			began = time.Now()
			a.step(ctx, wake, effect.SwitchChanged{Batch: b})
		case <-a.inbox.ready:
			began = time.Now()
			a.step(ctx, wake, a.received()...)
		case <-a.pushes.ready:
			began = time.Now()
			a.takePushes()
			a.step(ctx, wake)
		case <-wake.timer.C:
			began, wake.at = time.Now(), time.Time{}
			a.step(ctx, wake)
		case <-reportTick:
			began = time.Now()
			a.step(ctx, wake, effect.ReportDue{})
		case <-watchdogTick:
			began = time.Now()
			a.step(ctx, wake, effect.WatchdogDue{})
		}
		a.turns.took(time.Since(began))
	}
}

// received takes the events out of the inbox.
func (a *Agent) received() []effect.Event {
	events := a.inbox.take()
	for i, e := range events {
		if _, ok := e.(effect.Dropped); ok {
			events[i] = a.pushes.drops.take()
		}
	}
	return events
}

// step has the core decide, and begins what it decides on.
func (a *Agent) step(ctx context.Context, wake *alarm, events ...effect.Event) {
	now := a.turns.now()
	out := a.core.Step(now, events...)
	if a.cfg.Tape != nil { // before effects are carried out: a round notes in itself what became of it
		a.cfg.Tape.Put(tape.Stepped(now, events, out))
	}
	a.runner.Start(ctx, out.Do)
	if out.Progress != nil {
		a.cfg.Progress(*out.Progress)
	}
	wake.set(out.Wake)
}

// alarm has the loop go round at a time.
type alarm struct {
	timer *time.Timer
	at    time.Time
}

// set sets the time; zero: none.
func (w *alarm) set(at time.Time) {
	if at.Equal(w.at) {
		return
	}
	if w.at = at; at.IsZero() {
		w.timer.Stop()
		return
	}
	w.timer.Reset(max(time.Until(at), 0))
}

// turns counts the turns of the loop, and has their time.
type turns struct {
	start         time.Time // of the agent
	n             uint64
	busy, longest time.Duration
}

// now is the time of a decision: that of the start and what has passed since, as the tape has it. The length of pauses depends on the nanosecond, and
// time.Now reads the two clocks one after the other, so that their differences are not the same. A wall clock that was set is followed.
func (t *turns) now() time.Time {
	now := time.Now()
	told := t.start.Add(now.Sub(t.start))
	if now.Round(0).Sub(told.Round(0)).Abs() > time.Second {
		return now
	}
	return told
}

func (t *turns) took(d time.Duration) {
	t.n++
	t.busy += d
	t.longest = max(t.longest, d)
}

// add adds the turns to the totals.
func (t *turns) add(to *inspect.Totals) {
	to.Steps, to.BusySeconds, to.LongestSeconds = t.n, t.busy.Seconds(), t.longest.Seconds()
}

// take is where messages arrive. It hands them to the loop; from then on they are ours, and the broker may forget them. While
// the loop has enough of them it waits, and the broker with it.
func (a *Agent) take(ctx context.Context, m *messaging.Message) (any, error) {
	if m.Call {
		// Nobody calls an agent, except to see whether it is there.
		if a.cfg.Ping && m.Method == "oslo_rpc_server_ping" {
			return "pong", nil
		}
		return nil, messaging.NewNoSuchMethod(m.Method)
	}
	return nil, a.pushes.put(ctx, m)
}

// Why tells who wants a flow of a bridge, and why. It is for when [Agent.Run] has returned.
func (a *Agent) Why(bridge string, k openflow.Key) (owner world.Object, reason string, ok bool) {
	return a.core.Look(time.Now()).Dataplane.Owner(bridge, k)
}

// takePushes takes waiting messages, but not for longer than pushSlice.
func (a *Agent) takePushes() {
	now := a.turns.now()
	for until := now.Add(pushSlice); now.Before(until); now = a.turns.now() {
		m := a.pushes.next()
		if m == nil {
			break
		}
		e := effect.Message{Message: m}
		passed := a.core.Take(now, e)
		if a.cfg.Tape != nil {
			a.cfg.Tape.Put(tape.Took(now, e, passed))
		}
	}
	rest := pushRest
	if now.Sub(a.core.Look(now).LastPlug()) < plugWindow && a.pushes.len() >= floodFrom {
		rest = pushRestPlug
	}
	a.pushes.rest(rest)
}

// brokerEvents is what the broker's client reports to.
func (a *Agent) brokerEvents(e messaging.Event) {
	if d, ok := e.(messaging.Dropped); ok {
		if a.pushes.drops.put(d) {
			a.inbox.put(effect.Dropped{})
		}
		return
	}
	a.inbox.put(effect.Broker{Event: e})
}
