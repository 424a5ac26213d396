// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// plan is one round of changes, and after run what became of it.
type plan struct {
	txs     []*ovsdb.Tx
	owners  []world.Object // of the transactions
	bundles []bundle
	flush   []uint16 // zones of connection tracking
	tracker Conntrack
	// zones of ports that may have no flows until the zone is empty.
	zones  map[world.Object]uint16
	limits *limitRound

	seq       uint64
	rowErrs   []error
	flushErrs []error
	took      time.Duration
	broken    error // nobody knows what became of it
}

type bundle struct {
	name    string
	conn    Conn
	changes []delta.Change
	in, out []delta.MeterChange // meters before the flows, and after them
	zones   map[uint16]bool     // in which filters may change
	// withheld: changes had to wait; zones are looked at again when they come.
	withheld bool
	// done are the changes of meters that were made; meterErr says why others were not.
	done     []delta.MeterChange
	meterErr error
	err      error
}

// apply starts a round of changes if there is anything to change and none is on its way.
func (a *Agent) apply(ctx context.Context) {
	if a.wiring.applying {
		return
	}
	p := a.plan()
	if len(p.txs)+len(p.bundles)+len(p.flush) == 0 && p.limits == nil {
		return
	}
	a.wiring.applying = true
	a.work.Go(func() {
		p.broken = a.aside("changing the switch", func() error { p.run(ctx, a.sw); return nil })
		a.inbox.put(p)
	})
}

// plan collects what is not as wanted. Nothing is sent for an object that failed a moment ago.
func (a *Agent) plan() *plan {
	now := time.Now()
	p := &plan{flush: a.zonesToFlush(now), tracker: a.cfg.Conntrack, zones: map[world.Object]uint16{}, limits: a.limitsToSet(now)}
	current := a.switchUp && a.world.View.Seq() >= a.wiring.seq
	held := map[world.Object]bool{} // ports whose rows have to come first, and are not part of this round
	for o := range a.wiring.unsettled {
		tx := a.rows(o)
		switch {
		case tx.Len() > 0 && (!current || a.wiring.retries.waiting(o, now)):
			held[o] = o.Kind == world.KindPort
		case tx.Len() > 0:
			tx.Owner = o.String()
			p.txs, p.owners = append(p.txs, tx), append(p.owners, o)
		case current && !a.pending(o):
			delete(a.wiring.unsettled, o)
			a.placed(o, now)
		}
	}
	exposed := a.world.Exposed()
	for name, b := range a.wiring.bridges {
		if b.conn == nil || b.watch.dumping {
			continue // a dump must not cross what it is compared with
		}
		if exposed && name == a.cfg.World.IntegrationBridge {
			continue // first the rows
		}
		var ready []delta.Change
		changes := b.tracker.Changes()
		for _, c := range changes {
			if held[c.Owner] || a.waits(b, c, now) {
				continue
			}
			if zone, ok := a.unflushedZone(c.Owner); ok {
				if !slices.Contains(p.flush, zone) {
					continue
				}
				p.zones[c.Owner] = zone // which is flushed first in this round
			}
			ready = append(ready, c)
		}
		in, out := b.meters.Changes()
		in = slices.DeleteFunc(in, func(c delta.MeterChange) bool { return a.wiring.retries.waiting(c.Owner, now) })
		if len(ready) < len(changes) {
			out = nil // a flow that is still there may use one of them
		}
		if len(ready)+len(in)+len(out) > 0 {
			next := bundle{name: name, conn: b.conn, changes: ready, in: in, out: out, withheld: len(ready) < len(changes)}
			if name == a.cfg.World.IntegrationBridge && len(ready) > 0 {
				next.zones, a.tracking.due = a.tracking.due, map[uint16]bool{}
			}
			p.bundles = append(p.bundles, next)
		}
	}
	return p
}

// waits says whether a change has to wait because one like it failed a moment ago. What an object that is gone leaves behind
// goes at once: its port number may be given to another.
func (a *Agent) waits(b *bridge, c delta.Change, now time.Time) bool {
	gone := c.Entry.IsZero() && b.tracker.Owned(c.Owner) == 0
	return !gone && a.wiring.retries.waiting(c.Owner, now) || b.watch.fights.waiting(c.Key, now)
}

// rowsOf is the transaction that an object still needs: its rows, with those that count until its flows are in place, and once
// they are those that wait for them.
func (a *Agent) rowsOf(o world.Object) *ovsdb.Tx {
	tx := ovsdb.NewTx(a.world.View)
	want := a.wiring.wants[o]
	add := func(rows []pipeline.Row) {
		for _, r := range rows {
			r.Add(tx, a.world.View)
		}
	}
	add(want.Rows)
	if a.pending(o) {
		add(want.Until)
	} else if tx.Len() == 0 {
		add(want.After)
	}
	return tx
}

// pending says whether flows or meters of an object are not in place yet.
func (a *Agent) pending(o world.Object) bool {
	for _, b := range a.wiring.bridges {
		if b.tracker.Pending(o) || b.meters.Pending(o) {
			return true
		}
	}
	return false
}

// settled says whether an object is completely as wanted.
func (a *Agent) settled(o world.Object) bool {
	return !a.pending(o) && a.wiring.wants[o].Waiting == "" && (!a.wiring.unsettled[o] || a.rows(o).Len() == 0)
}

// Committer writes rows.
type Committer interface {
	CommitAll(ctx context.Context, txs []*ovsdb.Tx) (ovsdb.Result, []error)
}

// applyTimeout bounds one round; a switch that takes longer is treated as one that did not answer.
const applyTimeout = 30 * time.Second

// run makes the changes: meters, which flows refer to; rows, since flows refer to what they make; then one atomic bundle a
// bridge, and at last the meters go that no flow uses any more. Zones of connection tracking with a new owner are emptied
// before it has flows. The flows of a port whose rows or zone failed are left out: its guards must not go while its row still
// has it in a network, nor may it meet the connections of another network.
func (p *plan) run(ctx context.Context, db Committer) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	for i := range p.bundles {
		p.bundles[i].send(ctx, p.bundles[i].in)
	}
	if len(p.txs) > 0 {
		result, errs := db.CommitAll(ctx, p.txs)
		p.seq, p.rowErrs = result.Seq, errs
	}
	failed := map[world.Object]bool{}
	for i, err := range p.rowErrs {
		failed[p.owners[i]] = err != nil && p.owners[i].Kind == world.KindPort
	}
	p.limits.run(ctx)
	for _, zone := range p.flush {
		err := p.tracker.FlushZone(ctx, zone)
		p.flushErrs = append(p.flushErrs, err)
		for o, z := range p.zones {
			failed[o] = failed[o] || err != nil && z == zone
		}
	}
	for i := range p.bundles {
		b := &p.bundles[i]
		before := len(b.changes)
		b.changes = slices.DeleteFunc(b.changes, func(c delta.Change) bool { return failed[c.Owner] })
		if len(b.changes) < before {
			b.withheld = true
			b.out = nil // a flow that is still there may use one of these meters
		}
		msgs := make([]openflow.Message, len(b.changes))
		for j, c := range b.changes {
			msgs[j] = c.Message()
		}
		if b.err = b.conn.Commit(ctx, msgs); b.err == nil {
			b.send(ctx, b.out)
		}
	}
	p.took = time.Since(began)
}

// send changes meters, for which the switch has no bundles.
func (b *bundle) send(ctx context.Context, changes []delta.MeterChange) {
	msgs := make([]openflow.Message, len(changes))
	for i, c := range changes {
		msgs[i] = c.MeterMod
	}
	err := b.conn.Send(ctx, msgs)
	var refused *openflow.SendError
	switch {
	case err == nil:
		b.done = append(b.done, changes...)
	case errors.As(err, &refused):
		for i, c := range changes {
			if !slices.ContainsFunc(refused.Failures, func(f openflow.Failure) bool { return f.Index == i }) {
				b.done = append(b.done, c)
			}
		}
		b.meterErr = errors.Join(b.meterErr, err)
	default:
		b.meterErr = errors.Join(b.meterErr, err)
	}
}
