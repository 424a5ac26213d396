// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Broker is what the agent uses of *messaging.Client.
type Broker interface {
	neutron.Caller
	Serve(ctx context.Context, s messaging.Service) error
	RemoveLeftovers(ctx context.Context, topics []string, server string) ([]string, error)
	Close(ctx context.Context) error
}

// Switch is what the agent uses of *ovsdb.Client.
type Switch interface {
	dataplane.Committer
	Run(ctx context.Context)
	Changes() <-chan *ovsdb.Batch
}

// Conn is what the agent uses of *openflow.Conn.
type Conn = dataplane.Conn

// Link is the state of a connection to a bridge: a new one, or why there is none.
type Link struct {
	Conn Conn
	Err  error
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
	// Link keeps a connection to a bridge, given by its name, until ctx ends; then it closes the channel.
	Link func(ctx context.Context, bridge string) <-chan Link
	// Statistics reads the counters of interfaces, by the interface's name and theirs, for people who ask; nil: nobody can.
	Statistics func(ctx context.Context) (map[string]map[string]int, error)
	// Conntrack is told which connections are not allowed any more; nil when nothing is filtered.
	Conntrack Conntrack
	// ConntrackLimit is how many tracked connections a network may have; 0: as many as the switch. Limits sets it; nil: nobody
	// does.
	ConntrackLimit uint32
	Limits         Limits
	// Extensions are made over the agent's world, in this order.
	Extensions []extension.New
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
}

// Times that are not options.
const (
	// closeTime bounds how long a stop waits for the broker to take our queues away; they expire if it does not.
	closeTime = 800 * time.Millisecond
	// alivePause and aliveMax separate questions whether a server is alive, aliveTimeout bounds each.
	alivePause   = time.Second
	aliveMax     = 30 * time.Second
	aliveTimeout = 10 * time.Second
)

// kinds are the objects that the agent wants to hear of.
func kinds() []neutron.Kind {
	return []neutron.Kind{
		neutron.KindPort, neutron.KindNetwork, neutron.KindSubnet,
		neutron.KindSecurityGroup, neutron.KindSecurityGroupRule, neutron.KindAddressGroup,
	}
}

// Agent is one agent on one host. Make it with [New] and run it once.
type Agent struct {
	cfg    Config
	log    *slog.Logger
	server *neutron.Server
	broker Broker
	sw     Switch
	inbox  *mailbox[any]
	pushes *pushbox
	drops  drops
	work   sync.WaitGroup

	recorder recorder
	asked    chan func()   // see ask
	ended    chan struct{} // closed when the loop is over

	// Owned by the loop.
	world      *world.World
	started    bool // the switch has been seen
	switchUp   bool // the world's view of it is current
	versions   neutron.Versions
	report     reporting
	repeats    repeats
	dataplane  *dataplane.Dataplane
	pulls      *pull.Ledger
	zones      *zones.Zones
	limits     *zones.Limits
	reports    *report.Reporter
	timelines  timelines
	extensions extensions
	memory     memory
	resyncing  resyncing
	database   pace.Breaker    // of the server
	links      map[string]bool // bridges with a supervised connection
	syncedAt   time.Time       // when everything had been asked and told for the first time; zero before
	wake       *time.Timer
	wakeAt     time.Time
	seen       seen
	contained  containment
}

// New returns an agent. Open is called once to make the broker's client, with the function that wants to hear of its
// events.
func New(cfg Config, sw Switch, open func(onEvent func(messaging.Event)) (Broker, error)) (*Agent, error) {
	cfg.FDBGrace = cmp.Or(cfg.FDBGrace, fdbGrace)
	a := &Agent{
		cfg: cfg, sw: sw, inbox: newMailbox[any](), pushes: newPushbox(), world: world.New(cfg.World),
		asked: make(chan func()), ended: make(chan struct{}), seen: newSeen(), contained: newContainment(), wake: time.NewTimer(time.Hour),
		report: reporting{start: true}, repeats: repeats{every: repeatEvery}, links: map[string]bool{},
		zones: zones.New(), limits: zones.NewLimits(cfg.ConntrackLimit), timelines: timelines{of: map[string]*timeline{}},
	}
	a.pulls = pull.New(pullRules(), &a.resyncing.bucket)
	a.reports = report.New(cfg.PortsPerReport, &a.resyncing.bucket)
	a.log = slog.New(recording{cfg.Log.Handler(), &a.recorder})
	a.world.Contain = a.inWorld
	a.dataplane = dataplane.New(a.world.Bridges())
	a.dataplane.Contain = a.inRows
	a.extensions = newExtensions(extension.Make(a.world, cfg.Extensions))
	for i, e := range a.extensions.Set {
		a.extensions.Set[i] = a.guard(e)
	}
	broker, err := open(a.brokerEvents)
	if err != nil {
		return nil, err
	}
	a.broker, a.server = broker, neutron.NewServer(broker, cfg.Host)
	a.contain(culprit{name: "recalling"}, a.recall)
	return a, nil
}

// The outcome of work beside the loop, as events of it.
type (
	// notAlive: no server answered, or one that cannot reach its database. It is asked again.
	notAlive struct{ err error }
	// registered: a server is alive, and everything it sends from now on reaches us.
	registered struct {
		releases string
		versions neutron.Versions
		waited   time.Duration
		removed  []string // queues of an earlier agent
	}
	// reported: a state report came to its end.
	reported struct {
		status neutron.AgentStatus
		err    error
		took   time.Duration
	}
)

// Run runs the agent until ctx ends, then takes its queues off the broker. It returns an error only when something
// happened that running on cannot mend.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.work.Go(func() { a.sw.Run(ctx) })
	a.work.Go(func() { a.register(ctx) })
	err := a.loop(ctx)
	cancel()
	close(a.ended)
	a.contain(culprit{name: "remembering"}, a.rememberLast)
	a.notify(a.cfg.Notifier.Stopping())
	// The caller's context is over; what is left of the connection gets a short one of its own.
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer done()
	if closeErr := a.broker.Close(closing); closeErr != nil {
		a.log.Warn("queues not deleted, the broker expires them", "err", closeErr)
	}
	a.work.Wait()
	a.log.Info("agent stopped")
	return err
}

func (a *Agent) loop(ctx context.Context) error {
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
	defer a.wake.Stop()
	for {
		var began time.Time
		select {
		case <-ctx.Done():
			return nil
		case answer := <-a.asked:
			answer()
			continue // nothing has changed
		case b, ok := <-changes:
			if !ok {
				changes = nil // ends with ctx
				continue
			}
			began = time.Now()
			if !a.contain(culprit{name: "taking rows of the switch"}, func() { a.switchChanged(ctx, b) }) {
				a.rowsLost(b)
			}
		case <-a.inbox.ready:
			began = time.Now()
			for _, e := range a.inbox.take() {
				a.receive(ctx, e)
			}
		case <-a.pushes.ready:
			began = time.Now()
			a.takePushes(ctx)
		case <-a.wake.C:
			began, a.wakeAt = time.Now(), time.Time{}
		case <-reportTick:
			began = time.Now()
			a.contain(culprit{name: "reporting the agent's state"}, func() {
				a.world.Expire(time.Now())
				a.sendReport(ctx)
			})
		case <-watchdogTick:
			began = time.Now()
			a.notify(a.cfg.Notifier.Watchdog())
		}
		a.converge(ctx)
		a.seen.turned(time.Since(began))
	}
}

// wakeUp has the loop go round at a time, if that is not zero, or earlier.
func (a *Agent) wakeUp(at time.Time) {
	if at.IsZero() || !a.wakeAt.IsZero() && a.wakeAt.Before(at) {
		return
	}
	a.wakeAt = at
	a.wake.Reset(max(time.Until(at), 0))
}

func (a *Agent) event(ctx context.Context, e any) {
	switch e := e.(type) {
	case *messaging.Message:
		a.message(e)
	case messaging.Event:
		a.brokerEvent(e)
	case droppedMessages:
		a.messagesDropped(a.drops.take())
	case notAlive:
		a.repeats.log(a.log, slog.LevelWarn, "neutron-server does not answer, retrying", "err", e.err)
	case registered:
		a.repeats.forget("neutron-server does not answer, retrying")
		a.versions, a.report.unheard = e.versions, neutron.PushesWhenTold(e.releases)
		a.world.NewerTunnelNames = e.versions.Since(25)
		a.log.Info("neutron-server answered", "release", e.releases, "waited", e.waited)
		if len(e.removed) > 0 {
			a.log.Info("queues of an earlier agent deleted", "queues", len(e.removed))
		}
		if a.cfg.ReportInterval == 0 {
			a.notify(a.cfg.Notifier.Ready("listening, without state reports"))
		}
		a.sendReport(ctx)
	case reported:
		a.reportEnded(e)
	case linked:
		a.bridgeLinked(ctx, e)
	case dataplane.Reading:
		a.bridgeRead(e)
	case observed:
		a.flowsObserved(e)
	case *dataplane.Round:
		a.applied(e)
	case pulled:
		a.pullEnded(e)
	case portsReported:
		a.takePortsReported(e)
	case saved:
		a.memorySaved(e)
	case connectionsListed:
		a.releaseConnections(ctx, e)
	case connectionsReleased:
		a.released(e)
	case databaseAsked:
		a.heard(e.err)
	case called:
		a.callDone(e)
	case packetIn:
		a.packetCame(ctx, e)
	case failedAside: // counted when it landed
	default:
		panic(fmt.Sprintf("event %T has no place in the loop", e))
	}
}

// switchChanged moves the view on.
func (a *Agent) switchChanged(ctx context.Context, b *ovsdb.Batch) {
	a.noteSwitch(b)
	if b.Kind == ovsdb.Disconnected {
		a.switchUp = false
		a.repeats.log(a.log, slog.LevelWarn, "connection to ovsdb-server failed, retrying", "err", b.Err)
		return
	}
	a.world.Switch(b)
	a.notePlugged(b)
	a.extensions.OnRows(b)
	if !a.started {
		a.started = true
		a.world.Rebuild() // everything is compiled
	}
	if a.switchUp {
		return
	}
	a.switchUp = true
	a.repeats.forget("connection to ovsdb-server failed, retrying")
	a.log.Info("connected to ovsdb-server", "ports", len(a.world.PortIDs()))
	a.warnOfSwitch()
	a.sendReport(ctx)
}

// message takes what the server told us to the world.
func (a *Agent) message(m *messaging.Message) {
	decoded, err := neutron.DecodeMessage(m.Topic, m.Method, m.Args)
	if err != nil {
		a.repeats.log(a.log, slog.LevelWarn, "RPC message cannot be decoded", "topic", m.Topic, "err", err)
		a.missed() // whatever it was
		return
	}
	a.log.Debug("message", "topic", m.Topic, "method", m.Method, "known", decoded != nil)
	if push, ok := decoded.(*neutron.Push); ok {
		err = errors.Join(a.world.Push(push, time.Now()), a.extensions.OnPush(push))
		if err != nil && slices.ContainsFunc(push.Objects, func(o neutron.Primitive) bool { return o.ID() == "" }) {
			a.missed() // it may have been about anything
		}
	} else {
		err = a.extensions.OnCast(m.Method, m.Args)
	}
	if err != nil {
		a.unreadable("message of topic "+m.Topic, err)
		a.repeats.log(a.log, slog.LevelWarn, "RPC message cannot be decoded", "topic", m.Topic, "err", err)
	}
	switch d := decoded.(type) {
	case *neutron.TunnelUpdate:
		a.world.Tunnels.Up(world.Endpoint{Type: d.Type, IP: d.IP})
	case *neutron.TunnelDelete:
		a.world.Tunnels.Gone(world.Endpoint{Type: d.Type, IP: d.IP})
	case *neutron.FDBAdd:
		a.world.Tunnels.FDBAdd(d)
	case *neutron.FDBRemove:
		a.world.Tunnels.FDBRemove(d)
	case *neutron.FDBChange:
		a.world.Tunnels.FDBChange(d)
	}
	a.noteMessage(decoded)
}

// notify logs what telling the service manager led to.
func (a *Agent) notify(err error) {
	if err != nil {
		a.repeats.log(a.log, slog.LevelWarn, "sd_notify failed", "err", err)
	}
}
