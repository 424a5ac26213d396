// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
)

// Config is what decisions depend on besides events.
type Config struct {
	Host string
	// Configurations is the state report as far as it is known before the switch has spoken.
	Configurations neutron.Configurations
	// ReportInterval is the time in which a state report has to be answered. 0: none are sent.
	ReportInterval time.Duration
	// PortsPerReport bounds how many ports one report of statuses names.
	PortsPerReport int
	// World and Settings are what wiring needs of the options.
	World    world.Config
	Settings pipeline.Settings
	// Extensions are made over the core's world, in this order.
	Extensions []extension.New
	// FDBGrace is how long after the first reports forwarding entries may take to come; 0: half a minute.
	FDBGrace time.Duration
	// Conntrack: connection tracking is told which connections are not allowed any more.
	Conntrack bool
	// ConntrackLimit is how many tracked connections a network may have; 0: as many as the switch. Limits: somebody sets it.
	ConntrackLimit uint32
	Limits         bool
	// Snapshot: the last world in sync is kept.
	Snapshot bool
	// Progress: every step says how far the agent is.
	Progress bool
	// Version is this program's, for people.
	Version string
	// Seed is of what is random.
	Seed uint64
	Log  *slog.Logger
	// Recorder gets the inputs and decisions. Lines of the log are put into it by the handler of Log.
	Recorder *Recorder
	// Probe is for tests: it is called at the beginning and the end of what a panic cannot leave.
	Probe func(what string)
}

// Saved is what an earlier run wrote down.
type Saved struct {
	Memory  *world.Memory
	Written time.Time // zero: it is of no file
}

// Core makes the agent's decisions. It has one owner. Make it with [New].
type Core struct {
	cfg          Config
	log          *journal
	turn         turn
	rnd          *rand.Rand
	world        *world.World
	started      bool // the switch has been seen
	switchUp     bool // the world's view of it is current
	versions     neutron.Versions
	registration registration
	report       reporting
	dataplane    *dataplane.Dataplane
	pulls        *pull.Ledger
	zones        *zones.Zones
	listErr      error // of the listing whose connections are being released
	limits       *zones.Limits
	reports      *report.Reporter
	timelines    timelines
	extensions   extensions
	memory       memory
	resyncing    resyncing
	database     pace.Breaker           // of the server
	links        map[string]effect.Conn // by bridge, of those that are dialled; nil while there is none
	syncedAt     time.Time              // when everything had been asked and told for the first time; zero before
	seen         seen
	contained    containment
}

// New returns a core that begins at a time, with what an earlier run wrote down, or nothing.
func New(cfg Config, saved *Saved, now time.Time) *Core {
	cfg.FDBGrace = cmp.Or(cfg.FDBGrace, fdbGrace)
	a := &Core{
		cfg: cfg, turn: turn{at: now}, rnd: rand.New(rand.NewPCG(cfg.Seed, 0)), world: world.New(cfg.World), //nolint:gosec // no secret
		seen: newSeen(now), contained: newContainment(cfg.Probe), report: reporting{start: true}, links: map[string]effect.Conn{},
		zones: zones.New(), limits: zones.NewLimits(cfg.ConntrackLimit), timelines: timelines{of: map[string]*timeline{}},
	}
	a.log = &journal{Logger: cfg.Log, turn: &a.turn, recorder: cfg.Recorder, every: repeatEvery}
	a.pulls = pull.New(pullRules(), &a.resyncing.bucket)
	a.reports = report.New(cfg.PortsPerReport, &a.resyncing.bucket)
	a.world.Time, a.world.Contain = now, a.inWorld
	a.dataplane = dataplane.New(a.world.Bridges())
	a.dataplane.Contain = a.inRows
	a.extensions = newExtensions(extension.Make(a.world, cfg.Extensions))
	for i, e := range a.extensions.Set {
		a.extensions.Set[i] = a.guard(e)
	}
	if saved != nil {
		a.contain(culprit{name: "recalling"}, func() { a.load(saved) })
	}
	return a
}

// Step takes events, and the consequences of everything that has happened. Many events have their consequences once.
func (a *Core) Step(now time.Time, events ...effect.Event) effect.Effects {
	a.Take(now, events...)
	a.contain(culprit{name: "registering"}, a.register)
	a.converge()
	out := effect.Effects{Do: a.turn.take(), Progress: a.turn.progress, Wake: a.turn.wakeAt}
	a.turn.progress = nil
	return out
}

// Take takes events whose consequences wait for the next Step: of a flood of messages as many are taken as there is time for.
func (a *Core) Take(now time.Time, events ...effect.Event) {
	a.turn.begin(now)
	a.world.Time = now
	for _, e := range events {
		a.receive(e)
	}
}

// Last returns what is worth writing down when the agent stops, or nil.
func (a *Core) Last(now time.Time) (out *effect.Save) {
	a.turn.begin(now)
	a.contain(culprit{name: "remembering"}, func() { out = a.last() })
	return out
}
