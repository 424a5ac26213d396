// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// foundMeters are the meters that a bridge had when it was connected, and that nothing wanted.
type foundMeters struct {
	ids   []uint32
	until time.Time // when they have had long enough to be used
}

// meterGrace is how long a meter that was found may be without a flow. Whoever makes a meter has a flow for it in mind; an agent
// that dies between the two leaves one that nobody will use.
const meterGrace = time.Minute

// Pruned returns whether what nothing wants has been removed since bridges were connected and since [Dataplane.PruneAgain].
func (d *Dataplane) Pruned() bool { return d.pruned }

// PruneAgain has the next Prune look for flows again that nothing wants.
func (d *Dataplane) PruneAgain() { d.pruned = false }

// Prune releases the flows and meters that earlier runs and other agents left on the bridges. The caller calls it when everything that
// could still want them is known. Nothing is released while a bridge is out of reach. More says that there are changes to make.
//
// Tables of which nothing is wanted, as those of another firewall driver, are emptied last, when no packet has been there for long enough. Until the
// switch has looked at its datapath again it sends packets there that flows of earlier tables led to, and a packet that finds its table empty is lost.
// Afterwards its datapath keeps what it knows of the table: it would go on to drop for a moment, should the table be used again.
func (d *Dataplane) Prune(now time.Time) (out Outcome, more bool) {
	for _, b := range d.bridges {
		if !b.ready() {
			return out, false
		}
	}
	if now.Before(d.unreached) {
		return out, false
	}
	if d.unreached.IsZero() {
		out, more = d.pruneLeads(now)
	}
	if d.unreached.After(now) {
		return out, more
	}
	for _, name := range slices.Sorted(maps.Keys(d.bridges)) {
		b := d.bridges[name]
		b.meters.Sweep(b.abandonedMeters())
		if n := b.flows.Sweep(StaleAgentFlow); n > 0 {
			more = true
			out.pruning(name, n)
		}
	}
	d.pruned, d.unreached = true, time.Time{}
	return out, more
}

// idle is how long the switch keeps in its datapath what no packet uses: max-idle, 10 s unless it is told otherwise, and the time to look for it.
const idle = 12 * time.Second

// pruneLeads releases what flows may lead to tables of which nothing is wanted, if those have flows to release.
func (d *Dataplane) pruneLeads(now time.Time) (out Outcome, more bool) {
	for _, name := range slices.Sorted(maps.Keys(d.bridges)) {
		b := d.bridges[name]
		wanted := b.flows.Tables()
		if !b.flows.HasStale(func(e openflow.Entry) bool { return !wanted[e.Table()] && StaleAgentFlow(e) }) {
			continue
		}
		if n := b.flows.Release(func(e openflow.Entry) bool { return wanted[e.Table()] && StaleAgentFlow(e) }); n > 0 {
			more, d.unreached = true, now.Add(idle)
			out.pruning(name, n)
		}
	}
	return out, more
}

func (o *Outcome) pruning(bridge string, flows int) {
	o.log(slog.LevelInfo, false, "pruning stale flows", "bridge", bridge, "flows", flows)
}

// StaleAgentFlow returns whether a flow that nothing wants is an agent's. Agents set a cookie; a flow without one was made by a person
// or another program and stays. Learned flows expire by themselves.
func StaleAgentFlow(e openflow.Entry) bool {
	f, err := e.Flow()
	return err == nil && f.Cookie != 0 && f.HardTimeout == 0 && f.IdleTimeout == 0
}

// PruneMeters releases the meters that were found and that no flow has used for long enough. It returns whether there were any.
func (d *Dataplane) PruneMeters(now time.Time) (more bool) {
	for _, b := range d.bridges {
		if len(b.found.ids) == 0 || !d.pruned || !b.ready() || now.Before(b.found.until) {
			continue
		}
		users := b.meterUsers()
		b.meters.Sweep(slices.DeleteFunc(b.foundMeters(), func(id uint32) bool {
			_, used := users[id]
			return used
		}))
		b.found.ids = nil
		more = true
	}
	return more
}

func (b *bridge) foundMeters() []uint32 {
	return slices.DeleteFunc(b.meters.Stale(), func(id uint32) bool { return !slices.Contains(b.found.ids, id) })
}

// abandonedMeters returns the meters that nothing wants and only flows of agents use.
func (b *bridge) abandonedMeters() []uint32 {
	stale := b.meters.Stale()
	if len(stale) == 0 {
		return nil
	}
	agents := b.meterUsers()
	return slices.DeleteFunc(stale, func(id uint32) bool { return !agents[id] })
}

// meterUsers returns the meters that flows use, and whether all of these flows are agents'.
func (b *bridge) meterUsers() map[uint32]bool {
	agents := map[uint32]bool{}
	for known := range b.flows.All() {
		f, err := known.Have.Flow()
		if err != nil {
			continue
		}
		for _, action := range f.Actions {
			if m, ok := action.(openflow.Meter); ok {
				was, seen := agents[uint32(m)]
				agents[uint32(m)] = StaleAgentFlow(known.Have) && (was || !seen)
			}
		}
	}
	return agents
}
