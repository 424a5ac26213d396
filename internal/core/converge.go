// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Step takes events, and the consequences of everything that has happened. Many events have their consequences once.
func (c *Core) Step(now time.Time, events ...effect.Event) effect.Effects {
	c.Take(now, events...)
	c.contained.contain(culprit{name: "registering"}, func() { c.server.register(c.extensions.Set) })
	c.converge()
	return c.take()
}

// Last returns what is worth writing down when the agent stops, or nil.
func (c *Core) Last(now time.Time) (out *effect.Save) {
	c.begin(now)
	c.contained.contain(culprit{name: "remembering"}, func() {
		if c.memory.worth() && c.open(gate.Complete) {
			out = c.save()
		}
	})
	return out
}

// converge takes the consequences of what has happened, as far as they can be taken now: it compiles what changed, asks
// for what is missing, brings the switch in line, and reports what is done. It is called after every event.
func (c *Core) converge() {
	if !c.bridges.started {
		return // the switch has not been seen yet; there is nothing to decide on
	}
	c.contained.round++
	for _, s := range []struct {
		name string
		take func()
	}{
		{"checking what is known", c.beginResync},
		{"working out what changed", c.resolve},
		{"connecting to bridges", c.bridges.dial},
		{"asking for the server's database", func() { c.server.askDatabase(c.reports.Stats().InFlight > 0) }},
		{"asking the server", func() {
			if c.server.known() && !c.server.introducing() {
				c.pulls.ask(c.extensions.Set, c.server.versions, c.server.database.Open())
			}
		}},
		{"tending extensions", func() { c.extensions.tend(c.server.known()) }},
		{"comparing flows", c.bridges.readAgain},
		{"changing the switch", c.apply},
		{"rows that could not be worked out", func() { c.contained.retryRows(c.dataplane.RetryRows) }},
		{"listing connections", c.zones.listConnections},
		{"reporting ports", c.reportPorts},
		{"noting that everything is known", c.noteSynced},
		// Once everything that could still want it has spoken: every port is told about and reported, every tunnel type synchronised, and with
		// l2population every tunnelled network has its entries, or has had long enough to get them.
		{"removing what is left over", func() { c.bridges.prune(!c.dataplane.Pruned() && c.open(gate.Prune)) }},
		{"filtering with iptables", func() { c.rules.startJob(c.dataplane, func() bool { return c.open(gate.Prune) }) }},
		{"keeping forwarding tables", func() { c.extensions.keepTables(func() bool { return c.open(gate.Prune) }) }},
		{"keeping services", c.extensions.keepServices},
		{"closing the bridge", c.shut},
		{"remembering", c.remember},
		{"progress", func() {
			if c.cfg.Progress {
				c.progress = c.Look(c.now()).AgentProgress()
			}
		}},
	} {
		if !c.contained.contain(culprit{name: s.name}, s.take) {
			c.pulls.Abandon() // it is not known what of it was asked
		}
	}
}

// beginResync begins the check of what is known that is due.
func (c *Core) beginResync() {
	if !c.resyncing.due() {
		return
	}
	c.world.Resync()
	c.extensions.resync()
	c.dataplane.PruneAgain() // what is not confirmed goes then
	c.reports.refreshNetworks()
}

// resolve compiles what changed.
func (c *Core) resolve() {
	c.contained.retryHeld()
	for _, owner := range c.extensions.repair() {
		c.pulls.Supersede(owner)
	}
	if c.extensions.onTime() {
		c.memory.changed()
	}
	todo := c.world.Resolve()
	for _, key := range c.world.Segments.TakeBegun() {
		// The report of a port that comes up has the server send its entries. A port that was up before, and is in its
		// network again because its filters are known now, is not reported by itself.
		c.reports.Refresh(key)
	}
	defer func() { // with nothing left, unless something failed
		for _, o := range todo {
			c.world.Again(o)
		}
	}()
	for todo = c.extensions.Resolve(todo); len(todo) > 0; todo = todo[1:] {
		c.memory.changed()
		o := todo[0]
		c.contained.contain(culprit{o, "taking what it wants"}, func() { c.compile(o) })
	}
}

// errUndecided is about a port whose details are new and whose wiring is not.
var errUndecided = errors.New("the decision about the port failed, an earlier line of the log says why; the agent decides again")

// compile works out what an object wants now. If that fails it keeps what it wanted last, as long as that is about what it is now; a
// port that has become something else is shut.
func (c *Core) compile(o world.Object) {
	var want pipeline.Want
	who := culprit{object: o}
	err := c.contained.try(who, func() (err error) {
		if id, ok := world.PortID(o); ok && c.world.Port(id).Undecided() {
			return errUndecided
		}
		want, err = c.extensions.Compile(o, func() pipeline.Want { return pipeline.Compile(c.world, &c.cfg.Settings, o) })
		ovsdb.DiffRows(c.world.View, slices.Concat(want.Rows, want.Until, want.After)...) // if that fails, it does so before the flows have changed
		return errors.Join(want.Err, err)
	})
	at := placeOf(c.world, o)
	if err == nil {
		c.contained.letGo(who)
	} else {
		c.log.repeat(slog.LevelError, "object cannot be compiled", "object", o.String(), "err", err)
		want = c.contained.fallback(o, err, at, c.dataplane.Wants(o))
	}
	if want.Err == nil { // else what it has stays
		c.contained.compiled(o, at)
		c.dataplane.Set(o, want)
	}
	if id, ok := world.PortID(o); ok {
		c.reports.Changed(id)
		c.reports.decided(id)
	}
	c.contained.contain(culprit{name: "noting zones"}, func() { c.zones.noteZone(o) })
	c.contained.contain(culprit{name: "noting iptables rules"}, func() { c.rules.compiled(o) })
}

// apply starts a round of changes if there is anything to change and none is on its way.
func (c *Core) apply() {
	now := c.now()
	if r := c.nextRound(now); r != nil && !r.Empty() {
		c.start(effect.Apply{Round: r})
	}
	c.wakeUp(c.dataplane.Deadline(now))
}

// nextRound takes the round that is due, with what connection tracking needs. It is nil while one is on its way.
func (c *Core) nextRound(now time.Time) *dataplane.Round {
	if c.dataplane.InFlight() {
		return nil
	}
	in := dataplane.Input{
		View: c.world.View, Connected: c.bridges.up, Flush: c.zones.zonesToFlush(now),
		Limits: (*dataplane.Limits)(c.zones.limitsToSet(c.dataplane.Pruned(), now)), Unflushed: c.zones.unflushedZone,
	}
	if c.world.TakeExposed() {
		in.RowsFirst = c.cfg.World.IntegrationBridge
	}
	r := c.dataplane.Next(in, now)
	for i, b := range r.Bundles {
		if b.Bridge == c.cfg.World.IntegrationBridge && len(b.Changes) > 0 {
			r.Bundles[i].Zones = c.zones.TakeChanged()
		}
	}
	for _, o := range r.Placed {
		c.reports.placed(o, now)
	}
	return r
}

// reportPorts sends the reports of port statuses that are due.
func (c *Core) reportPorts() {
	if c.server.canReport() && c.reports.send(c.dataplane, c.contained.holds) {
		c.server.reportBegins()
	}
}

// noteSynced notes the first moment at which everything has been pulled and reported since the agent started or lost messages. From
// then on it waits for forwarding entries for a limited time.
func (c *Core) noteSynced() {
	if c.dataplane.Pruned() && !c.reports.syncedAt.IsZero() && !c.bridges.mustShut() {
		return // nothing waits for it
	}
	fdb := false
	for _, b := range gate.Blockers(c.Look(c.now()).Facts(gate.Complete)) {
		if b.Blocks&gate.Complete != 0 && b.Code != gate.FDB {
			return
		}
		fdb = fdb || b.Code == gate.FDB
	}
	c.reports.synced(fdb)
}

// shut closes the integration bridge once everything that has to pass has been let in.
func (c *Core) shut() {
	if c.bridges.mustShut() && c.open(gate.Complete) {
		c.bridges.shut()
	}
}

// remember writes the world down once it has changed and is in sync.
func (c *Core) remember() {
	if c.memory.due() && c.memory.keep(c.open(gate.Complete)) {
		c.start(*c.save())
	}
}

// save is everything that is worth keeping.
func (c *Core) save() *effect.Save {
	m := c.world.Memory()
	c.extensions.save(m)
	return &effect.Save{Memory: m, At: c.now()}
}
