// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// bridge is one bridge that the agent programs.
type bridge struct {
	flows  *delta.Tracker
	meters *delta.Meters
	// maxMeters is how many it can have; 0 also before it was read.
	maxMeters uint32
	found     foundMeters
	conn      Conn      // nil while it cannot be reached
	lostAt    time.Time // since when
	err       error     // why
	monitor   monitor
	reset     reset
	refused   map[world.Object]bool      // of which it refused a flow or a meter since it was connected
	left      map[world.Object]time.Time // ports that went, and until when flows of theirs stay
	// For people: flows that others changed and we repaired, and flows that we changed.
	repaired, changed uint64
}

// ready returns whether the bridge can be programmed: it is connected, and what it has is known.
func (b *bridge) ready() bool { return b.conn != nil && b.flows.Known() }

// lostGrace is how long a bridge may be out of reach before it is worth a line: it is for a moment whenever it is made or
// its protocols change.
const lostGrace = 2 * time.Second

// State is how a bridge is.
type State struct {
	Connected         bool
	Known             bool // its flows have been read
	Reading           bool // they are being read
	Meters            int  // to change
	FoundMeters       int  // that it had when it was connected, that nothing wants and that have not been pruned yet
	Err               error
	Counts            delta.Counts
	Repaired, Changed uint64
}

// Bridge returns how a bridge is.
func (d *Dataplane) Bridge(name string) State {
	b := d.bridges[name]
	if b == nil {
		return State{}
	}
	in, out := b.meters.Changes()
	return State{
		Connected: b.conn != nil, Known: b.flows.Known(), Reading: b.monitor.reading, Meters: len(in) + len(out), FoundMeters: len(b.foundMeters()),
		Err: b.err, Counts: b.flows.Counts(), Repaired: b.repaired, Changed: b.changed,
	}
}

// Unreachable returns whether a bridge has been out of reach for longer than is usual, and why.
func (d *Dataplane) Unreachable(name string, now time.Time) (lost bool, why error) {
	b := d.bridges[name]
	return b.conn == nil && !b.lostAt.IsZero() && now.Sub(b.lostAt) >= lostGrace, b.err
}

// Linked takes that there is another connection to a bridge, which the caller reads next, or why there is none.
func (d *Dataplane) Linked(name string, conn Conn, err error, now time.Time) (out Outcome) {
	b := d.bridges[name]
	b.connEnded(&out, name, err, now)
	b.conn = conn
	b.flows.Lost()
	b.meters.Lost()
	if conn == nil {
		b.lostAt, b.err = now, err
	} else {
		d.retries.RetryNow(now) // a port whose rows were refused is not to wait without its flows while the others have theirs
		b.monitor, b.refused = monitor{contested: pace.Backoff[openflow.Key]{}, reading: true}, map[world.Object]bool{}
	}
	return out
}

// Reading is what was read of a bridge.
type Reading struct {
	Bridge      string
	Conn        Conn
	Flows       []openflow.Entry
	Meters      []openflow.MeterDesc
	MaxMeters   uint32
	Err         error
	Unmonitored error // why the switch does not report changes; nil when it does
}

// Read takes what was read of a bridge. First says that it is the first of the connection.
func (d *Dataplane) Read(r Reading, now time.Time) (out Outcome, first bool) {
	b := d.bridges[r.Bridge]
	if b.conn != r.Conn {
		return out, false // of a connection that is gone
	}
	if r.Err != nil {
		b.readFailed(&out, r.Bridge, r.Err, now)
		out.Close = []Conn{b.conn}
		return out, false
	}
	first = !b.flows.Known()
	b.flows.Have(r.Flows)
	b.meters.Have(r.Meters)
	b.observe(&out, r.Bridge, b.monitor.buffered, now)
	b.monitor.reading, b.monitor.buffered = false, nil
	if r.Unmonitored != nil {
		out.log(slog.LevelInfo, true, "ovs-vswitchd has no flow monitor, comparing flows instead", "every", compareEvery, "err", r.Unmonitored)
	}
	if r.Unmonitored != nil || !b.monitor.next.IsZero() {
		b.monitor.next = now.Add(compareEvery)
	}
	if !first {
		d.compared(&out, r.Bridge, b)
		return out, false
	}
	b.maxMeters = r.MaxMeters
	b.found = foundMeters{b.meters.Stale(), now.Add(meterGrace)}
	d.pruned = false
	return out, true
}

// ReadAbandoned takes that what was read of a bridge is lost.
func (d *Dataplane) ReadAbandoned(r Reading) (out Outcome) {
	if b := d.bridges[r.Bridge]; r.Conn != nil && b.conn == r.Conn {
		b.monitor.reading = false
		b.flows.Lost()
		out.Close = []Conn{r.Conn}
	}
	return out
}

// Release has flows go that are there and that nothing ever wanted, before they are pruned. It returns how many.
func (d *Dataplane) Release(name string, which func(openflow.Entry) bool) int {
	return d.bridges[name].flows.Release(which)
}

// reset is a break of a bridge's connection that the agent causes itself. ovs-vswitchd closes the OpenFlow connections of a bridge
// when its row gets other protocols, so that the other side can negotiate anew. On the first start the agent adds the protocols that
// it needs, often while it reads the flows for the first time. One connection is expected to break then.
type reset struct {
	until time.Time // zero: none is expected
	of    Conn      // the connection that broke; nil before
}

// resetTime is how long after the commit ovs-vswitchd may take to apply the row: a busy one takes seconds.
const resetTime = 10 * time.Second

// takes returns whether the break of a connection is the expected one, and takes it for that.
func (r *reset) takes(conn Conn, why error, now time.Time) bool {
	if !now.Before(r.until) || r.of != nil && r.of != conn || errors.Is(why, openflow.ErrMalformed) || errors.Is(why, openflow.ErrClosed) {
		return false
	}
	r.of = conn
	return true
}

// resetBy is the transaction of a round that breaks a bridge's connections.
type resetBy struct {
	bridge string
	tx     int
}

// expectResets notes the bridges whose connections break because of the rows that a round changes.
func (d *Dataplane) expectResets(view *ovsdb.View, r *Round, now time.Time) {
	for name, b := range d.bridges {
		row := view.BridgeByName(name)
		for i, tx := range r.Rows {
			if row != nil && tx.Disconnects(row.UUID) {
				b.reset = reset{until: now.Add(applyTimeout)}
				r.resets = append(r.resets, resetBy{name, i})
			}
		}
	}
}

// resetsCommitted limits the time for which breaks are expected, now that the outcome of the round is known.
func (d *Dataplane) resetsCommitted(r *Round, now time.Time) {
	for _, by := range r.resets {
		b := d.bridges[by.bridge]
		if r.RowErrs[by.tx] != nil {
			b.reset = reset{}
		} else {
			b.reset.until = now.Add(resetTime)
		}
	}
}

// connEnded takes that the connection to a bridge is over, before there is another one. The supervisor does not say why if it has
// a new one already.
func (b *bridge) connEnded(out *Outcome, name string, why error, now time.Time) {
	if b.conn == nil {
		return
	}
	expected := b.reset.takes(b.conn, why, now)
	if b.monitor.reading && !b.monitor.failed {
		unread(out, name, expected, cmp.Or(why, errLost))
	}
}

var errLost = errors.New("the connection was lost")

// readFailed takes that the flows of a bridge could not be read. The end of the connection may be known before or after that.
func (b *bridge) readFailed(out *Outcome, name string, err error, now time.Time) {
	var lost *openflow.ConnError
	b.monitor.failed = true
	unread(out, name, errors.As(err, &lost) && b.reset.takes(b.conn, err, now), err)
}

func unread(out *Outcome, name string, expected bool, err error) {
	if expected {
		out.log(slog.LevelDebug, false, "ovs-vswitchd closed the connection after a change of the bridge's protocols, reconnecting", "bridge", name)
	} else {
		out.log(slog.LevelWarn, true, "flow dump failed, retrying", "bridge", name, "err", err)
	}
}
