// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
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
	// DropFragments: whoever sets limits has the switch drop fragments, where it could let them out to others.
	DropFragments bool
	// Rules are what rules of iptables depend on; nil: there are none. Without World.Hybrid those of an earlier driver are cleared away.
	Rules *iptables.Config
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

// room is what every part of the core is given: the options, the step that is being taken, the log, and the world. A part has its own state
// beside it, and knows no part that is not handed to it.
type room struct {
	cfg *Config
	*turn
	log   *journal
	world *world.World
}

func newRoom(cfg *Config, now time.Time) room {
	r := room{cfg: cfg, turn: &turn{at: now}, world: world.New(cfg.World)}
	r.log = &journal{Logger: cfg.Log, turn: r.turn, recorder: cfg.Recorder, every: repeatEvery, last: map[string]map[string]time.Time{}}
	return r
}
