// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Round is one round of changes, and after [Round.Run] what became of it.
type Round struct {
	Rows   []*ovsdb.Tx
	Owners []world.Object // of Rows
	Limits *Limits
	Flush  []uint16 // zones of connection tracking
	// flushFirst are zones of ports that may have no flows until the zone is empty.
	flushFirst map[world.Object]uint16
	Bundles    []Bundle
	resets     []resetBy
	// Placed are objects all of which has turned out to be in place. They are no part of the round.
	Placed []world.Object

	Seq       uint64 // the batch that will show the rows
	RowErrs   []error
	LimitsErr error
	Limited   int // zones whose limit was changed
	FlushErrs []error
	Took      time.Duration
	Err       error // nobody knows what became of it
}

// Limits gives each zone of connection tracking its limit, and with Prune takes those of other local VLANs away.
type Limits struct {
	Want  map[uint16]uint32
	Prune bool
}

// Bundle is what changes on one bridge.
type Bundle struct {
	Bridge              string
	Conn                Conn
	Changes             []delta.Change
	MetersIn, MetersOut []delta.MeterChange // before the flows, and after them
	Zones               map[uint16]bool     // the caller's: in which filters may change
	// Withheld: changes had to wait.
	Withheld bool
	bare     map[world.Object]bool // objects of which the bridge has no flow, see bridge.bare
	// MetersDone are the changes of meters that were made; MeterErr says why others were not.
	MetersDone []delta.MeterChange
	MeterErr   error
	Err        error
}

// Empty returns whether there is nothing to change.
func (r *Round) Empty() bool { return len(r.Rows)+len(r.Bundles)+len(r.Flush) == 0 && r.Limits == nil }

// Input is what a round depends on besides what is wanted and what is there.
type Input struct {
	View *ovsdb.View
	// Connected: the database is, and View is what it has.
	Connected bool
	// RowsFirst is a bridge whose flows have to wait until rows are written; empty: none.
	RowsFirst string
	Limits    *Limits
	Flush     []uint16
	// Unflushed returns the zone of connection tracking in which an object may have no flows yet.
	Unflushed func(o world.Object) (zone uint16, ok bool)
}

// Next takes the round that is due: everything that is not as wanted, but for objects that failed a moment ago. It is nil while one is
// in flight; an empty one is not.
func (d *Dataplane) Next(in Input, now time.Time) *Round {
	if d.inFlight {
		return nil
	}
	r := &Round{Limits: in.Limits, Flush: in.Flush, flushFirst: map[world.Object]uint16{}}
	held := d.addRows(r, &in, now)
	for _, name := range slices.Sorted(maps.Keys(d.bridges)) {
		b := d.bridges[name]
		if b.conn == nil || b.monitor.reading || name == in.RowsFirst {
			continue // what is read must not cross what it is compared with
		}
		b.monitor.repairAt = time.Time{}
		changes := b.departed(name, in.View, b.flows.Changes(), d.Wants, now)
		if next := d.bundle(r, &in, b, changes, held, now); len(next.Changes)+len(next.MetersIn)+len(next.MetersOut) > 0 {
			next.Bridge = name
			r.Bundles = append(r.Bundles, next)
		}
	}
	if d.inFlight = !r.Empty(); d.inFlight {
		d.expectResets(in.View, r, now)
	}
	return r
}

// addRows adds the rows that are not as wanted. It returns the ports whose rows have to come first, and are not part of this round.
func (d *Dataplane) addRows(r *Round, in *Input, now time.Time) (held map[world.Object]bool) {
	current := in.Connected && in.View.Seq() >= d.seq
	held = map[world.Object]bool{}
	for _, o := range d.RowsPending() {
		tx, ok := d.rowsOf(in.View, o)
		if !ok {
			d.retries.Fail(o, now)
		}
		switch {
		case tx.Len() > 0 && (!current || d.retries.Waiting(o, now)):
			_, held[o] = world.PortID(o)
		case tx.Len() > 0:
			tx.Owner = o.String()
			r.Rows, r.Owners = append(r.Rows, tx), append(r.Owners, o)
		case current && !d.Pending(o):
			d.rows.Done(o)
			r.Placed = append(r.Placed, o)
		}
	}
	return held
}

// rowsOf returns the transaction that an object still needs, or an empty one and false if that cannot be found out.
func (d *Dataplane) rowsOf(view *ovsdb.View, o world.Object) (tx *ovsdb.Tx, ok bool) {
	tx = ovsdb.NewTx(view)
	work := func() { tx = d.rows.Diff(view, o, !d.Pending(o)) }
	if d.Contain == nil {
		work()
		return tx, true
	}
	ok = d.Contain(o, work) // which sets tx: in one statement it might be read before
	return tx, ok
}

// bundle returns those changes that can be made on a bridge.
func (d *Dataplane) bundle(r *Round, in *Input, b *bridge, changes []delta.Change, held map[world.Object]bool, now time.Time) Bundle {
	next := Bundle{Conn: b.conn, bare: b.bare(d.rows, in.View, changes, slices.AppendSeq(slices.Clone(r.Owners), maps.Keys(held)))}
	for _, c := range changes {
		if held[c.Owner] && !next.bare[c.Owner] || b.waits(c, d.retries, next.bare, now) {
			continue
		}
		if zone, ok := in.Unflushed(c.Owner); ok {
			if !slices.Contains(r.Flush, zone) {
				continue
			}
			r.flushFirst[c.Owner] = zone
		}
		next.Changes = append(next.Changes, c)
	}
	next.MetersIn, next.MetersOut = b.meters.Changes()
	b.flows.Sent()
	b.meters.Sent()
	next.MetersIn = slices.DeleteFunc(next.MetersIn, func(c delta.MeterChange) bool { return d.retries.Waiting(c.Owner, now) })
	if next.Withheld = len(next.Changes) < len(changes); next.Withheld {
		next.MetersOut = nil // a flow that is still there may use one of them
	}
	return next
}

// bare returns the objects of which a bridge has no flow at all, as after ovs-vswitchd has started anew, and whose rows let them stay in their
// network, or in none, until it has. Whatever else their rows need, the flows of others would let packets reach them without filters.
func (b *bridge) bare(rows *delta.Rows, view *ovsdb.View, changes []delta.Change, owners []world.Object) map[world.Object]bool {
	missing, bare := map[world.Object]int{}, map[world.Object]bool{}
	for _, c := range changes {
		if !c.Entry.IsZero() {
			missing[c.Owner]++
		}
	}
	for _, o := range owners {
		want, _ := rows.Wanted(o)
		bare[o] = missing[o] > 0 && missing[o] == b.flows.Owned(o) && len(want.Until) > 0 && ovsdb.DiffRows(view, want.Until...).Len() == 0
	}
	return bare
}

// waits returns whether a change has to wait because one like it failed a moment ago. What an object that is gone leaves behind
// does not: its port number may be given to another, see departed. Nor does a bare port whose rows failed.
func (b *bridge) waits(c delta.Change, retries pace.Backoff[world.Object], bare map[world.Object]bool, now time.Time) bool {
	if at := b.monitor.contested[c.Key].At; at.After(now) {
		b.monitor.wake(at)
		return true
	}
	gone := c.Entry.IsZero() && b.flows.Owned(c.Owner) == 0
	return !gone && retries.Waiting(c.Owner, now) && (b.refused[c.Owner] || !bare[c.Owner])
}

// Landed takes that no round is in flight any more, whatever became of it.
func (d *Dataplane) Landed() { d.inFlight = false }

// Done takes what became of a round.
func (d *Dataplane) Done(r *Round, now time.Time) (out Outcome) {
	d.seq = max(d.seq, r.Seq)
	d.resetsCommitted(r, now)
	for i, err := range r.RowErrs {
		if err == nil {
			d.retries.Forget(r.Owners[i])
			continue
		}
		wait := d.retries.Fail(r.Owners[i], now)
		// Conflicts are in the nature of things: somebody else was faster, and the news of it is on its way.
		if !errors.Is(err, ovsdb.ErrConflict) && !errors.Is(err, ovsdb.ErrDisconnected) {
			out.log(slog.LevelWarn, true, "OVSDB transaction failed, retrying", "object", r.Owners[i].String(), "err", err, "after", wait)
		}
	}
	for _, next := range r.Bundles {
		b := d.bridges[next.Bridge]
		b.meters.Done(next.MetersDone)
		d.metersFailed(&out, b, next, now)
		if next.Err == nil {
			b.flows.Done(next.Changes)
			b.changed += uint64(len(next.Changes))
		} else {
			d.bundleFailed(&out, b, next, now)
		}
	}
	return out
}

// metersFailed has those wait whose meters were refused, and has the meters read.
func (d *Dataplane) metersFailed(out *Outcome, b *bridge, sent Bundle, now time.Time) {
	var refused *openflow.SendError
	if !errors.As(sent.MeterErr, &refused) {
		return // or the connection broke: what is read over the next one tells what is there
	}
	b.monitor.eventsLost = true
	for _, c := range sent.MetersIn {
		if !slices.ContainsFunc(sent.MetersDone, func(done delta.MeterChange) bool { return done.Meter.ID == c.Meter.ID }) {
			wait := d.retries.Fail(c.Owner, now)
			b.refused[c.Owner] = true
			out.log(slog.LevelError, true, "meter rejected by the switch, retrying", "bridge", sent.Bridge, "object", world.NameOf(c.Owner), "err", sent.MeterErr, "after", wait)
		}
	}
}

func (d *Dataplane) bundleFailed(out *Outcome, b *bridge, sent Bundle, now time.Time) {
	var refused *openflow.BundleError
	if !errors.As(sent.Err, &refused) {
		// The connection broke, or the switch took too long to answer; what is read over the next one tells what is there. It may
		// be in already.
		if b.conn == sent.Conn {
			b.flows.Lost()
			out.Close = append(out.Close, sent.Conn)
		}
		return
	}
	if len(refused.Failures) == 0 {
		for _, c := range sent.Changes {
			d.retries.Fail(c.Owner, now)
			b.refused[c.Owner] = true
		}
		out.log(slog.LevelError, true, "flows rejected by the switch, retrying", "bridge", sent.Bridge, "err", sent.Err)
		return
	}
	if len(b.meters.All()) > 0 {
		b.monitor.eventsLost = true // whoever takes a meter away takes the flows with it that use it
	}
	// The owner of the bad flow waits; the others are sent again at once, without it.
	for _, f := range refused.Failures {
		o := sent.Changes[f.Index].Owner
		wait := d.retries.Fail(o, now)
		b.refused[o] = true
		out.log(slog.LevelError, true, "flow rejected by the switch, retrying", "bridge", sent.Bridge, "object", world.NameOf(o), "err", sent.Err, "after", wait)
	}
}

// Abandoned takes that nobody knows what became of a round: its bridges are read again.
func (d *Dataplane) Abandoned(r *Round) (out Outcome) {
	d.seq = max(d.seq, r.Seq)
	for _, o := range r.Owners {
		d.RetryRows(o)
	}
	for _, sent := range r.Bundles {
		if b := d.bridges[sent.Bridge]; b.conn == sent.Conn {
			b.flows.Lost()
			b.meters.Lost()
			out.Close = append(out.Close, sent.Conn)
		}
	}
	return out
}
