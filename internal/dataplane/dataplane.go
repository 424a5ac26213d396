// SPDX-License-Identifier: Apache-2.0

// Package dataplane brings the switch in line with what objects want: the flows and meters of bridges, and rows.
//
// Its inputs are what each object wants ([Dataplane.Set]), connections to bridges ([Dataplane.Linked]), what was read of them
// ([Dataplane.Read]), what others change ([Dataplane.Observe]) and what became of a round ([Dataplane.Done]). Its outputs are one
// [Round] of changes at a time ([Dataplane.Next]), bridges to read ([Dataplane.ToRead]) and the status of objects. Nothing but
// [Round.Run] waits, and nothing reads the clock.
package dataplane

import (
	"iter"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Dataplane compares what is wanted of the switch with what is there. It has one owner.
type Dataplane struct {
	// Contain, if set, runs the work that finds out which rows of an object have to change, and returns whether it came to its end.
	Contain func(o world.Object, work func()) bool

	bridges  map[string]*bridge
	rows     *delta.Rows
	retries  pace.Backoff[world.Object]
	inFlight bool // a round is
	// seq is the batch that will show what was committed last. Until then the view is old: comparing with it would write the same
	// rows again.
	seq    uint64
	pruned bool
	// unreached is when the datapath has forgotten tables of which nothing is wanted; zero: flows may lead there.
	unreached time.Time
}

// New returns the dataplane of bridges about which nothing is known.
func New(bridges []string) *Dataplane {
	d := &Dataplane{
		bridges: map[string]*bridge{}, rows: delta.NewRows(), retries: pace.Backoff[world.Object]{},
	}
	for _, name := range bridges {
		d.bridges[name] = &bridge{flows: delta.New(), meters: delta.NewMeters()}
	}
	return d
}

// Log is a line for the log. A repeated one is not written each time.
type Log struct {
	Level    slog.Level
	Repeated bool
	Message  string
	Args     []any
}

// Outcome is what follows from an input: lines for the log, and connections to close, in place of which there will be new ones.
type Outcome struct {
	Logs  []Log
	Close []Conn
}

func (o *Outcome) log(level slog.Level, repeated bool, message string, args ...any) {
	o.Logs = append(o.Logs, Log{level, repeated, message, args})
}

// Set replaces everything that an object wants.
func (d *Dataplane) Set(o world.Object, want pipeline.Want) {
	flows, meters := map[string][]delta.Flow{}, map[string][]delta.Meter{}
	for _, f := range want.Flows {
		flows[f.Bridge] = append(flows[f.Bridge], delta.Flow{Entry: f.Entry, Reason: f.Reason})
	}
	for _, m := range want.Meters {
		meters[m.Bridge] = append(meters[m.Bridge], delta.Meter{MeterDesc: m.MeterDesc, Reason: m.Reason})
	}
	for name, b := range d.bridges {
		b.flows.Want(o, flows[name])
		b.meters.Want(o, meters[name])
	}
	d.rows.Want(o, delta.WantedRows{Always: want.Rows, Until: want.Until, After: want.After, Waiting: want.Waiting})
}

// RetryRows has the rows of an object compared again. It returns whether it wants any.
func (d *Dataplane) RetryRows(o world.Object) bool { return d.rows.Retry(o) }

// Wants returns whether an object wants anything.
func (d *Dataplane) Wants(o world.Object) bool {
	_, rows := d.rows.Wanted(o)
	return rows || d.Flows(o) > 0
}

// Flows returns how many flows an object wants.
func (d *Dataplane) Flows(o world.Object) (n int) {
	for _, b := range d.bridges {
		n += b.flows.Owned(o)
	}
	return n
}

// Pending returns whether flows or meters of an object are not in place yet.
func (d *Dataplane) Pending(o world.Object) bool {
	for _, b := range d.bridges {
		if b.flows.Pending(o) || b.meters.Pending(o) {
			return true
		}
	}
	return false
}

// Status is how far an object is.
type Status int

// Values of [Status].
const (
	Pending Status = iota
	Applied        // completely as wanted
)

// Status returns how far an object is.
func (d *Dataplane) Status(view *ovsdb.View, o world.Object) Status {
	if want, _ := d.rows.Wanted(o); d.Pending(o) || want.Waiting != "" {
		return Pending
	}
	if !d.rows.Pending(o) {
		return Applied
	}
	if tx, ok := d.rowsOf(view, o); ok && tx.Len() > 0 {
		return Pending
	}
	return Applied
}

// RowsPending returns the objects whose rows may not be as wanted yet, sorted.
func (d *Dataplane) RowsPending() []world.Object { return d.rows.Owners() }

// RowsToWrite returns how many objects have rows that are not as wanted, but for those of which that cannot be found out.
func (d *Dataplane) RowsToWrite(view *ovsdb.View, broken map[world.Object]bool) (n int) {
	for _, o := range d.RowsPending() {
		if !broken[o] && d.rows.Diff(view, o, !d.Pending(o)).Len() > 0 {
			n++
		}
	}
	return n
}

// Failure is an object that the switch has refused.
type Failure struct {
	Object world.Object
	Failed int // times in a row
}

// Failures returns the objects that the switch has refused and that are not as wanted yet, sorted.
func (d *Dataplane) Failures() (out []Failure) {
	for _, o := range world.SortedObjects(d.retries) {
		if d.rows.Pending(o) || d.Pending(o) {
			out = append(out, Failure{o, d.retries[o].Failed})
		}
	}
	return out
}

// InFlight returns whether a round is.
func (d *Dataplane) InFlight() bool { return d.inFlight }

// Behind returns whether a view does not show yet what the last rounds wrote.
func (d *Dataplane) Behind(view *ovsdb.View) bool { return view.Seq() < d.seq }

// Owner returns who wants a flow of a bridge, and why.
func (d *Dataplane) Owner(bridge string, k openflow.Key) (owner world.Object, reason string, ok bool) {
	if b := d.bridges[bridge]; b != nil {
		return b.flows.Owner(k)
	}
	return nil, "", false
}

// Known ranges over the flows of a bridge that are wanted or there, see [delta.Tracker.All].
func (d *Dataplane) Known(bridge string) iter.Seq[delta.Known] {
	if b := d.bridges[bridge]; b != nil {
		return b.flows.All()
	}
	return func(func(delta.Known) bool) {}
}

// Deadline returns the next time after now at which there may be something to do, or zero.
func (d *Dataplane) Deadline(now time.Time) time.Time {
	var first time.Time
	earlier := func(at time.Time) {
		if at.After(now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for _, r := range d.retries {
		earlier(r.At)
	}
	earlier(d.unreached)
	for _, b := range d.bridges {
		if b.conn == nil && !b.lostAt.IsZero() {
			earlier(b.lostAt.Add(lostGrace))
		}
		earlier(b.monitor.next)
		earlier(b.monitor.repairAt)
		if len(b.found.ids) > 0 && d.pruned && b.ready() {
			earlier(b.found.until)
		}
	}
	return first
}
