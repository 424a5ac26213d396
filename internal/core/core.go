// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
)

// Core makes the agent's decisions: it hands events to its parts, and has each of them take its consequences in turn. It has one owner. Make it
// with [New].
type Core struct {
	room
	dataplane  *dataplane.Dataplane
	contained  containment
	resyncing  resyncing
	server     server
	bridges    bridges
	extensions extensions
	pulls      pulls
	reports    reports
	zones      tracking
	memory     memory
	seen       seen
}

// New returns a core that begins at a time, with what an earlier run wrote down, or nothing.
func New(cfg Config, saved *Saved, now time.Time) *Core {
	cfg.FDBGrace = cmp.Or(cfg.FDBGrace, fdbGrace)
	r := room{cfg: &cfg, turn: &turn{at: now}, world: world.New(cfg.World)}
	r.log = &journal{Logger: cfg.Log, turn: r.turn, recorder: cfg.Recorder, every: repeatEvery}
	rnd := rand.New(rand.NewPCG(cfg.Seed, 0)) //nolint:gosec // no secret
	c := &Core{
		room: r, dataplane: dataplane.New(r.world.Bridges()), contained: newContainment(r), seen: newSeen(r), memory: memory{room: r},
		resyncing: resyncing{room: r, rnd: rnd, losses: pace.Backoff[struct{}]{}}, server: server{room: r, rnd: rnd, report: reporting{start: true}},
		zones: tracking{room: r, Zones: zones.New(), limits: zones.NewLimits(cfg.ConntrackLimit)},
	}
	c.world.Time, c.world.Contain = now, c.contained.inWorld
	c.dataplane.Contain = c.inRows
	c.bridges = bridges{room: r, dataplane: c.dataplane, links: map[string]effect.Conn{}}
	c.extensions = newExtensions(&c.contained, &c.resyncing)
	c.reports = reports{room: r, Reporter: report.New(cfg.PortsPerReport, &c.resyncing.bucket), lines: newTimelines(r)}
	c.pulls = pulls{room: r, Ledger: pull.New(pullRules(), &c.resyncing.bucket), contained: &c.contained, lines: &c.reports.lines}
	if saved != nil {
		c.contained.contain(culprit{name: "recalling"}, func() {
			c.world.Recall(saved.Memory)
			c.extensions.load(saved.Memory)
			if m := saved.Memory; !saved.Written.IsZero() {
				c.log.Info("snapshot loaded", "ports", len(m.Ports), "groups", len(m.Groups), "written", saved.Written)
			}
		})
	}
	return c
}

// inRows contains finding out which rows of an object have to change. A port whose rows are found out again may be reported.
func (c *Core) inRows(o world.Object, work func()) bool {
	done, mended := c.contained.inRows(o, work)
	if mended && o.Kind == world.KindPort {
		c.reports.Changed(o.ID)
	}
	return done
}

// open returns whether nothing blocks a scope now.
func (c *Core) open(s gate.Scope) bool { return gate.Open(gate.Blockers(c.facts(c.now(), s)), s) }

// facts collects what can block the scopes. It writes nothing. The loop asks for Complete and Prune after every event: once it is clear
// that they are blocked, nothing more is collected for them.
func (c *Core) facts(now time.Time, s gate.Scope) gate.Facts {
	reports := c.reports.Stats()
	f := gate.Facts{
		SwitchUp: c.bridges.inSight(), Registered: c.server.known(), RoundRunning: c.dataplane.InFlight(), Reports: reports.Due,
		Calls:     c.pulls.InFlight() + reports.InFlight + len(c.extensions.running),
		ResyncDue: c.resyncing.pending(), Refresh: reports.Networks, Known: !c.reports.firstSync.IsZero(),
	}
	for _, t := range c.cfg.World.TunnelTypes {
		if !c.world.Tunnels.Listed(t) {
			f.TunnelTypes = append(f.TunnelTypes, t)
		}
	}
	onlyLoop := s&^(gate.Complete|gate.Prune) == 0
	if onlyLoop && !gate.Open(gate.Blockers(f), s) {
		return f
	}
	f.Ports, f.Groups = c.world.Unspoken()
	f.Unrequested, f.Entries = c.reports.missingEntries(now)
	for _, e := range c.extensions.Set {
		g, ok := e.Extension.(*guarded)
		f.Extensions = append(f.Extensions, gate.Extension{Name: e.Name(), Waits: waiting(e), Failed: ok && g.owes})
	}
	f.HeldBlind = c.contained.blind()
	if !onlyLoop {
		c.switchFacts(&f)
	}
	return f
}

// waiting counts what an extension wants pulled or called now.
func waiting(e extension.Member) int { return len(e.Missing()) + len(e.Calls()) }

// switchFacts adds what the loop does not need to decide: connections, and what the switch has to be changed by.
func (c *Core) switchFacts(f *gate.Facts) {
	f.Known = f.Known || c.world.Remembered() > 0
	f.SwitchError, f.ServerError = c.seen.sw.Error, c.seen.server.Error
	if !c.seen.broker.Up {
		f.BrokerError = c.seen.broker.Error
	}
	f.StateReportFailed = c.server.report.failed > 0
	f.Unresolved, f.ViewBehind = c.world.Unsettled(), c.dataplane.Behind(c.world.View)
	f.RowsUnchecked, f.Rows = len(c.dataplane.RowsPending()), c.dataplane.RowsToWrite(c.world.View, c.contained.rows)
	f.ZonesDue, f.ZonesFailed = c.zones.Pending(), c.zones.Failed()
	for i, o := range c.dataplane.Failures() {
		if i < maxRejected {
			f.Rejected = append(f.Rejected, gate.Rejected{Object: o.Object.String(), Times: o.Failed})
		}
	}
	for _, h := range c.contained.quarantined() {
		f.Held = append(f.Held, gate.Held{Object: h.Object, Effect: h.Effect})
	}
	for _, name := range c.world.Bridges() {
		b := c.dataplane.Bridge(name)
		f.Bridges = append(f.Bridges, gate.Bridge{
			Name: name, Exists: c.world.View.BridgeByName(name) != nil, Connected: b.Connected, Error: errorText(b.Err),
			Read: b.Known, Reading: b.Reading, Flows: b.Counts.Pending, Meters: b.Meters,
		})
	}
}

// maxRejected bounds how many objects are named that the switch rejects again and again.
const maxRejected = 5
