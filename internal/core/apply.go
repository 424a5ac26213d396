// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
)

// apply starts a round of changes if there is anything to change and none is on its way.
func (a *Core) apply() {
	now := a.turn.now()
	if r := a.nextRound(now); r != nil && !r.Empty() {
		a.turn.start(effect.Apply{Round: r})
	}
	a.turn.wakeUp(a.dataplane.Deadline(now))
}

// nextRound takes the round that is due, with what connection tracking needs. It is nil while one is on its way.
func (a *Core) nextRound(now time.Time) *dataplane.Round {
	if a.dataplane.InFlight() {
		return nil
	}
	in := dataplane.Input{
		View: a.world.View, Connected: a.switchUp, Flush: a.zonesToFlush(now), Limits: (*dataplane.Limits)(a.limitsToSet(now)), Unflushed: a.unflushedZone,
	}
	if a.world.TakeExposed() {
		in.RowsFirst = a.cfg.World.IntegrationBridge
	}
	r := a.dataplane.Next(in, now)
	for i, b := range r.Bundles {
		if b.Bridge == a.cfg.World.IntegrationBridge && len(b.Changes) > 0 {
			r.Bundles[i].Zones = a.zones.TakeChanged()
		}
	}
	for _, o := range r.Placed {
		a.markApplied(o, now)
	}
	return r
}

// applied takes the outcome of a round.
func (a *Core) applied(r *dataplane.Round) {
	now := a.turn.now()
	a.act(a.dataplane.Done(r, now))
	a.zonesFlushed(r.Flush, r.FlushErrs, now)
	a.limitsSet((*zones.LimitJob)(r.Limits), r.Limited, r.LimitsErr, now)
	for _, b := range r.Bundles {
		if b.Err == nil {
			a.zones.Committed(b.Zones, now)
		}
		if b.Err != nil || b.Withheld {
			a.zones.Withheld(b.Zones)
		}
	}
}

// abandonRound takes that nobody knows what became of a round of changes.
func (a *Core) abandonRound(r *dataplane.Round) {
	for _, b := range r.Bundles {
		a.zones.Withheld(b.Zones)
	}
	a.act(a.dataplane.Abandoned(r))
}

// pending says whether flows or meters of an object are not in place yet.
func (a *Core) pending(o world.Object) bool { return a.dataplane.Pending(o) }

// settled says whether an object is completely as wanted.
func (a *Core) settled(o world.Object) bool {
	return a.dataplane.Status(a.world.View, o) == dataplane.Applied
}

// prune removes what earlier runs and other agents left on our bridges, once everything that could still want it has
// spoken: every port is told about and reported, every tunnel type synchronised, and with l2population every tunnelled
// network has its entries, or has had long enough to get them.
func (a *Core) prune() {
	now, more := a.turn.now(), false
	if !a.dataplane.Pruned() && a.open(gate.Prune) {
		a.world.Confirmed()
		var out dataplane.Outcome
		out, more = a.dataplane.Prune()
		a.act(out)
	}
	if a.dataplane.PruneMeters(now) || more {
		a.turn.wakeUp(now)
	}
	a.turn.wakeUp(a.dataplane.Deadline(now))
}
