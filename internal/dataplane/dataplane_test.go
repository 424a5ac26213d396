// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

var start = time.Unix(1_700_000_000, 0)

func port(id string) world.Object { return world.PortObject(id) }

// conn is a connection that answers as it is told, and writes down what it is sent.
type conn struct {
	Conn
	commitErr, sendErr error
	log                *[]string
}

func (c *conn) say(format string, args ...any) {
	if c.log != nil {
		*c.log = append(*c.log, fmt.Sprintf(format, args...))
	}
}

func (c *conn) Commit(_ context.Context, msgs []openflow.Message) error {
	if c.say("bundle of %d", len(msgs)); slices.Contains(msgs, nil) {
		c.say("a change that is none")
	}
	return c.commitErr
}

func (c *conn) Send(_ context.Context, msgs []openflow.Message) error {
	if len(msgs) > 0 {
		c.say("meters: %d", len(msgs))
	}
	if slices.Contains(msgs, nil) {
		c.say("a meter that is none")
	}
	return c.sendErr
}

// emptyView is that of a database with one bridge.
func emptyView() *ovsdb.View {
	w := world.New(world.Config{IntegrationBridge: "br-int"})
	w.Switch(&ovsdb.Batch{Kind: ovsdb.Initial, Seq: 1, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "br", Name: "br-int"}}}})
	return w.View
}

// connected is a dataplane whose one bridge has flows and meters.
func connected(c Conn, flows []openflow.Entry, meters ...openflow.MeterDesc) *Dataplane {
	d := New([]string{"br-int"})
	d.Linked("br-int", c, nil, start)
	d.Read(Reading{Bridge: "br-int", Conn: c, Flows: flows, Meters: meters, MaxMeters: 9}, start)
	return d
}

func input(view *ovsdb.View) Input {
	return Input{View: view, Connected: true, Unflushed: func(world.Object) (uint16, bool) { return 0, false }}
}

// planned is the next round, which is not run.
func planned(d *Dataplane, in Input, now time.Time) *Round {
	r := d.Next(in, now)
	d.Landed()
	return r
}

func flow(t *testing.T, n int) openflow.Entry {
	t.Helper()
	return openflowtest.Entry(t, fmt.Sprintf("table=0,priority=1,cookie=%#x,in_port=%d,actions=drop", uint64(pipeline.Cookie), n))
}

func flows(entries ...openflow.Entry) (w pipeline.Want) {
	for _, e := range entries {
		w.Flows = append(w.Flows, pipeline.Flow{Bridge: "br-int", Entry: e, Reason: "test"})
	}
	return w
}

func meter(id uint32) pipeline.Want {
	return pipeline.Want{Meters: []pipeline.Meter{{Bridge: "br-int", MeterDesc: openflow.MeterDesc{ID: id}}}}
}

// rows has the bridge have another protocol, or bad: comparing it panics.
func rows(version string) pipeline.Want {
	if version == "bad" {
		return pipeline.Want{Rows: []ovsdb.Spec{nil}}
	}
	return pipeline.Want{Rows: []ovsdb.Spec{ovsdb.BridgeSpec{Name: "br-int", Protocols: []string{version}}}}
}

type database struct {
	err error
	log *[]string
}

func (b database) CommitAll(_ context.Context, txs []*ovsdb.Tx) (ovsdb.Result, []error) {
	*b.log = append(*b.log, fmt.Sprintf("rows: %d", len(txs)))
	return ovsdb.Result{Seq: 7}, slices.Repeat([]error{b.err}, len(txs))
}

func (b database) FlushZone(_ context.Context, zone uint16) error {
	*b.log = append(*b.log, fmt.Sprintf("flush %d", zone))
	return b.err
}

func (b database) SetLimits(_ context.Context, want map[uint16]uint32, _ bool) (int, error) {
	*b.log = append(*b.log, fmt.Sprintf("limits %v", want))
	return len(want), b.err
}

// TestOrderOfARound: meters, rows, limits, zones, flows, and meters that nobody uses any more. What fails keeps its own flows back.
func TestOrderOfARound(t *testing.T) {
	for _, refused := range []error{nil, errors.New("no")} {
		var log []string
		c := &conn{log: &log}
		d := connected(c, nil, openflow.MeterDesc{ID: 5})
		d.Set(port("gone"), meter(5))
		d.Set(port("gone"), pipeline.Want{})
		want := rows("OpenFlow14")
		want.Flows, want.Meters = flows(flow(t, 1)).Flows, meter(2).Meters
		d.Set(port("a"), want)
		d.Set(port("b"), flows(flow(t, 2)))
		in := input(emptyView())
		in.Limits, in.Flush = &Limits{Want: map[uint16]uint32{1: 9}}, []uint16{3}
		r := d.Next(in, start)
		if d.Next(in, start) != nil || !d.InFlight() || d.ToRead(start.Add(time.Hour)) != nil {
			t.Fatal("a second round beside the first")
		}
		db := database{refused, &log}
		r.Run(t.Context(), Switch{db, db, db})
		order := []string{"meters: 1", "rows: 1", "limits map[1:9]", "flush 3", "bundle of 2", "meters: 1"}
		if refused != nil {
			order = []string{"meters: 1", "rows: 1", "limits map[1:9]", "flush 3", "bundle of 1"}
		}
		if !slices.Equal(log, order) || r.Bundles[0].Withheld != (refused != nil) {
			t.Errorf("refused %v: %q, want %q", refused, log, order)
		}
		d.Landed()
		d.Done(r, start)
		if d.Pending(port("a")) != (refused != nil) || d.Pending(port("b")) || d.Bridge("br-int").Changed != uint64(len(r.Bundles[0].Changes)) || d.seq != 7 {
			t.Errorf("refused %v: %+v", refused, d.Bridge("br-int"))
		}
	}
}

// TestMetersThatAreRefused: those that were taken count, the owners of the others wait, and the bridge is read again.
func TestMetersThatAreRefused(t *testing.T) {
	refusal := &openflow.SendError{Failures: []openflow.Failure{{Index: 1}}}
	for _, c := range []struct {
		err   error
		done  int
		waits []bool // a and b
		reads bool
	}{{nil, 2, []bool{false, false}, false}, {refusal, 1, []bool{false, true}, true}, {io.EOF, 0, []bool{false, false}, false}} {
		d := connected(&conn{sendErr: c.err}, nil)
		d.Set(port("a"), meter(1))
		d.Set(port("b"), meter(2))
		r := d.Next(input(emptyView()), start)
		r.Run(t.Context(), Switch{})
		if len(r.Bundles[0].MetersDone) != c.done || (r.Bundles[0].MeterErr != nil) != (c.err != nil) {
			t.Errorf("%v: %+v", c.err, r.Bundles[0])
		}
		d.Landed()
		d.Done(r, start)
		got := []bool{d.retries.Waiting(port("a"), start), d.retries.Waiting(port("b"), start)}
		if !slices.Equal(got, c.waits) || len(d.ToRead(start)) > 0 != c.reads {
			t.Errorf("%v: waiting %v, want %v", c.err, got, c.waits)
		}
	}
}

// TestFlowsThatAreRefused: the owner of a bad flow waits; where nobody knows whose it is, all do.
func TestFlowsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		err    error
		meters bool
		waits  []bool
		reads  bool
	}{
		{&openflow.BundleError{Failures: []openflow.Failure{{Index: 1}}}, false, []bool{false, true}, false},
		{&openflow.BundleError{Failures: []openflow.Failure{{Index: 1}}}, true, []bool{false, true}, true},
		{&openflow.BundleError{}, true, []bool{true, true}, false},
	} {
		d := connected(&conn{commitErr: c.err}, nil)
		if c.meters {
			d.Set(port("m"), meter(1))
		}
		d.Set(port("a"), flows(flow(t, 1)))
		d.Set(port("b"), flows(flow(t, 2)))
		r := d.Next(input(emptyView()), start)
		r.Run(t.Context(), Switch{})
		d.Landed()
		out := d.Done(r, start)
		got := []bool{d.retries.Waiting(port("a"), start), d.retries.Waiting(port("b"), start)}
		if !slices.Equal(got, c.waits) || len(out.Logs) != 1 || !d.Deadline(start).After(start) || len(d.ToRead(start)) > 0 != c.reads {
			t.Errorf("%v: waiting %v, %+v", c.err, got, out)
		}
		if n := len(d.Failures()); n != len(slices.DeleteFunc(got, func(waits bool) bool { return !waits })) {
			t.Errorf("%v: %d failures", c.err, n)
		}
	}
}

// TestDeletionThatIsRefused: a flow that nothing ever wanted has no owner, and the switch may refuse to delete it.
func TestDeletionThatIsRefused(t *testing.T) {
	d := connected(&conn{commitErr: &openflow.BundleError{Failures: []openflow.Failure{{Index: 0}}}}, []openflow.Entry{flow(t, 1)})
	d.Prune(start)
	r := d.Next(input(emptyView()), start)
	r.Run(t.Context(), Switch{})
	d.Landed()
	if out := d.Done(r, start); len(out.Logs) != 1 || !strings.Contains(fmt.Sprint(out.Logs[0]), " object none ") || !d.retries.Waiting(nil, start) {
		t.Errorf("%+v", out)
	}
	d.bridges["br-int"].flows.Lost()
	if f := d.Failures(); len(f) != 1 || f[0].Object != nil {
		t.Errorf("%+v", f)
	}
}

// TestBarePorts: a port that is in its network already, and of which the switch has no flow, gets its flows whatever becomes of its other rows.
func TestBarePorts(t *testing.T) {
	for name, c := range map[string]struct {
		tag   int
		until bool
		there int // how many of its two flows the switch has
		sent  bool
	}{
		"in its network":                 {5, true, 0, true},
		"in another network":             {6, true, 0, false},
		"guarded by some of its flows":   {5, true, 1, false},
		"nothing says where it may stay": {5, false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			view := emptyView()
			view.Apply(&ovsdb.Batch{Seq: 2, Ports: []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{UUID: "p", Name: "tap", Tag: &c.tag}}}})
			all := []openflow.Entry{flow(t, 1), flow(t, 2)}
			for _, rowsAre := range []string{"refused", "on their way", "refused before the bridge was connected", "refused while the bridge is read"} {
				d := New([]string{"br-int"})
				want := rows("OpenFlow14")
				want.Flows = flows(all...).Flows
				if c.until {
					want.Until = []ovsdb.Spec{ovsdb.IsolationSpec{Port: "p", VLAN: world.DeadVLAN, Keep: 5}}
				}
				d.Set(port("a"), want)
				d.Set(port("other"), flows(flow(t, 3)))
				db := database{errors.New("no"), new([]string)}
				switch rowsAre {
				case "on their way":
					d.seq, db.err = view.Seq()+1, nil
				case "refused before the bridge was connected":
					r := planned(d, input(view), start)
					r.Run(t.Context(), Switch{Rows: db})
					d.Done(r, start)
				}
				sw := &conn{}
				d.Linked("br-int", sw, nil, start)
				if rowsAre == "refused while the bridge is read" {
					r := planned(d, input(view), start)
					r.Run(t.Context(), Switch{Rows: db})
					d.Done(r, start)
				}
				d.Read(Reading{Bridge: "br-int", Conn: sw, Flows: all[:c.there]}, start)
				r := d.Next(input(view), start)
				r.Run(t.Context(), Switch{Rows: db})
				if sent := slices.ContainsFunc(r.Bundles[0].Changes, func(c delta.Change) bool { return c.Owner == port("a") }); sent != c.sent {
					t.Errorf("rows %s: sent %v, want %v", rowsAre, sent, c.sent)
				}
			}
		})
	}
}

// TestABarePortWhoseFlowIsRefused waits, and does not keep the switch busy.
func TestABarePortWhoseFlowIsRefused(t *testing.T) {
	tag, view := 5, emptyView()
	view.Apply(&ovsdb.Batch{Seq: 2, Ports: []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{UUID: "p", Name: "tap", Tag: &tag}}}})
	d := connected(&conn{commitErr: &openflow.BundleError{Failures: []openflow.Failure{{Index: 0}}}}, nil)
	want := rows("OpenFlow14")
	want.Flows, want.Until = flows(flow(t, 1)).Flows, []ovsdb.Spec{ovsdb.IsolationSpec{Port: "p", VLAN: world.DeadVLAN, Keep: 5}}
	d.Set(port("a"), want)
	for _, sends := range []bool{true, false} {
		r := d.Next(input(view), start)
		r.Run(t.Context(), Switch{Rows: database{errors.New("no"), new([]string)}})
		d.Landed()
		d.Done(r, start)
		if len(r.Bundles) > 0 != sends {
			t.Errorf("%d bundles, want one: %v", len(r.Bundles), sends)
		}
	}
}

// TestRowsOfARound: those that were written count, and those that were not wait. What is written shows in the view that follows.
func TestRowsOfARound(t *testing.T) {
	d, view := New(nil), emptyView()
	d.Set(port("a"), rows("OpenFlow14"))
	d.Set(port("b"), rows("OpenFlow15"))
	r := d.Next(input(view), start)
	r.Seq, r.RowErrs = 1, []error{nil, errors.New("no")}
	d.Landed()
	if out := d.Done(r, start); len(out.Logs) != 1 || out.Logs[0].Message != "OVSDB transaction failed, retrying" {
		t.Errorf("%+v", out)
	}
	r = planned(d, input(view), start)
	if !slices.Equal(r.Owners, []world.Object{port("a")}) || d.Status(view, port("b")) != Pending || d.RowsToWrite(view, nil) != 2 {
		t.Errorf("%v", r.Owners)
	}
	d.Done(&Round{Seq: 2}, start)
	d.Set(port("c"), pipeline.Want{Waiting: "for rows that are there"})
	if r = planned(d, input(view), start.Add(time.Hour)); !r.Empty() || len(r.Placed) > 0 || len(d.RowsPending()) != 3 {
		t.Errorf("rows are compared with an old view: %v, %v", r.Owners, r.Placed)
	}
	in := input(view)
	if in.Connected = false; !planned(d, in, start.Add(time.Hour)).Empty() {
		t.Error("rows are compared with a view that is not current")
	}
	d.Done(&Round{Owners: []world.Object{port("a")}, RowErrs: []error{ovsdb.ErrConflict}}, start)
	if out := d.Done(&Round{Owners: []world.Object{port("a")}, RowErrs: []error{ovsdb.ErrConflict}}, start); len(out.Logs) != 0 || !d.retries.Waiting(port("a"), start) {
		t.Errorf("%+v", out)
	}
}

// TestRowsThatCannotBeWorkedOut are no part of a round, and the object waits.
func TestRowsThatCannotBeWorkedOut(t *testing.T) {
	d, view := New(nil), emptyView()
	d.Contain = func(_ world.Object, work func()) (ok bool) {
		defer func() { ok = recover() == nil }()
		work()
		return true
	}
	d.Set(port("a"), rows("bad"))
	if d.Status(view, port("a")) != Applied || len(d.retries) != 0 { // the caller knows that it failed
		t.Error("a query wrote")
	}
	if r := planned(d, input(view), start); !r.Empty() || d.retries[port("a")].Failed != 1 || len(d.RowsPending()) != 0 {
		t.Errorf("%+v", r)
	}
	if !d.RetryRows(port("a")) || d.RetryRows(port("b")) || !slices.Equal(d.RowsPending(), []world.Object{port("a")}) {
		t.Errorf("%v", d.RowsPending())
	}
}

// TestRoundsWait: meters and flows of what failed a moment ago are not part of a round; a flow that waits keeps the meters that go.
func TestRoundsWait(t *testing.T) {
	d, in := connected(&conn{}, nil, openflow.MeterDesc{ID: 2}), input(emptyView())
	d.Set(port("a"), meter(1))
	d.Set(port("b"), meter(3))
	d.Done(&Round{Owners: []world.Object{port("a")}, RowErrs: []error{errors.New("no")}}, start)
	r := planned(d, in, start)
	if len(r.Bundles) != 1 || len(r.Bundles[0].MetersIn) != 1 || r.Bundles[0].MetersIn[0].Owner != port("b") || r.Bundles[0].Withheld {
		t.Errorf("%+v", r.Bundles)
	}
	d.Set(port("b"), meter(2))
	d.Set(port("b"), pipeline.Want{})
	d.Set(port("a"), flows(flow(t, 1)))
	if r = planned(d, in, start); len(r.Bundles) != 0 {
		t.Errorf("%+v", r.Bundles)
	}
	if r = planned(d, in, start.Add(time.Minute)); len(r.Bundles) != 1 || len(r.Bundles[0].MetersOut) != 1 || r.Bundles[0].Withheld {
		t.Errorf("%+v", r.Bundles)
	}
	// What a port that is gone leaves behind does not wait when its number was given to another.
	in.View = numbered(1)
	d = connected(&conn{}, []openflow.Entry{flow(t, 1)})
	d.Set(port("a"), flows(flow(t, 1)))
	d.Done(&Round{Owners: []world.Object{port("a")}, RowErrs: []error{errors.New("no")}}, start)
	d.Set(port("a"), pipeline.Want{})
	if r = planned(d, in, start); len(r.Bundles) != 1 {
		t.Errorf("%+v", r)
	}
	// One that stays has its flows go when the others may be sent.
	d = connected(&conn{}, []openflow.Entry{flow(t, 1), flow(t, 2)})
	d.Set(port("a"), flows(flow(t, 1), flow(t, 2)))
	d.Done(&Round{Owners: []world.Object{port("a")}, RowErrs: []error{errors.New("no")}}, start)
	d.Set(port("a"), flows(flow(t, 1)))
	if r = planned(d, in, start); len(r.Bundles) != 0 {
		t.Errorf("%+v", r)
	}
	if r = planned(d, in, start.Add(time.Minute)); len(r.Bundles) != 1 || len(r.Bundles[0].Changes) != 1 {
		t.Errorf("%+v", r)
	}
	in.RowsFirst = "br-int"
	if r = planned(d, in, start.Add(time.Minute)); !r.Empty() {
		t.Errorf("flows before rows: %+v", r)
	}
}

// TestFlowsWaitForTheirZone, or are sent in the round that flushes it.
func TestFlowsWaitForTheirZone(t *testing.T) {
	d, in := connected(&conn{}, nil), input(emptyView())
	d.Set(port("a"), flows(flow(t, 1)))
	in.Unflushed = func(o world.Object) (uint16, bool) { return 3, o == port("a") }
	if r := planned(d, in, start); !r.Empty() {
		t.Errorf("%+v", r)
	}
	in.Flush = []uint16{3}
	r := planned(d, in, start)
	var log []string
	if r.Run(t.Context(), Switch{Zones: database{errors.New("busy"), &log}}); len(r.Bundles) != 1 || len(r.Bundles[0].Changes) != 0 || !r.Bundles[0].Withheld {
		t.Errorf("%+v", r.Bundles)
	}
	if r = planned(d, in, start); len(r.Bundles[0].Changes) != 1 {
		t.Errorf("%+v", r.Bundles)
	}
}

// A bundle that failed with its connection says nothing about the next connection, which may have been read by then.
func TestABundleOfALostConnection(t *testing.T) {
	before, after := &conn{}, &conn{}
	for _, end := range []func(*Dataplane, *Round) Outcome{
		func(d *Dataplane, r *Round) Outcome { return d.Done(r, start) }, (*Dataplane).Abandoned,
	} {
		d := connected(after, nil)
		if out := end(d, &Round{Bundles: []Bundle{{Bridge: "br-int", Conn: before, Err: io.EOF}}}); len(out.Close) > 0 || !d.Bridge("br-int").Known {
			t.Error("what is known over the new connection is forgotten, and nobody reads it again")
		}
		if out := end(d, &Round{Bundles: []Bundle{{Bridge: "br-int", Conn: after, Err: context.DeadlineExceeded}}}); len(out.Close) != 1 || d.Bridge("br-int").Known {
			t.Error("a connection without an answer is kept, and what the switch has is not known")
		}
	}
	d := New(nil)
	d.Set(port("a"), rows("OpenFlow14"))
	d.rows.Done(port("a"))
	d.Abandoned(&Round{Seq: 9, Owners: []world.Object{port("a"), port("gone")}})
	if d.seq != 9 || !slices.Equal(d.RowsPending(), []world.Object{port("a")}) {
		t.Errorf("%d, %v", d.seq, d.RowsPending())
	}
}

func TestReadings(t *testing.T) {
	c, other := &conn{}, &conn{}
	d := New([]string{"br-int"})
	d.Linked("br-int", nil, io.EOF, start)
	if lost, why := d.Unreachable("br-int", start.Add(lostGrace)); !lost || !errors.Is(why, io.EOF) || !d.Deadline(start).Equal(start.Add(lostGrace)) {
		t.Errorf("%v, %v", lost, why)
	}
	d.Linked("br-int", c, nil, start)
	if lost, _ := d.Unreachable("br-int", start.Add(lostGrace)); lost || !d.Bridge("br-int").Connected {
		t.Error("not connected")
	}
	if _, first := d.Read(Reading{Bridge: "br-int", Conn: other}, start); first || d.Bridge("br-int").Known {
		t.Error("a reading of another connection counts")
	}
	if out := d.ReadAbandoned(Reading{Bridge: "br-int", Conn: other}); len(out.Close) > 0 {
		t.Error("the connection of another reading is closed")
	}
	// What is reported before it was read is taken afterwards.
	d.Set(port("a"), flows(flow(t, 1)))
	d.Observe("br-int", c, []openflow.FlowUpdate{{Event: openflow.FlowAdded, Entry: flow(t, 1)}}, false, start)
	if _, first := d.Read(Reading{Bridge: "br-int", Conn: c, Unmonitored: io.EOF}, start); !first || d.Pending(port("a")) {
		t.Error("what was reported before is lost")
	}
	if got := d.ToRead(start); len(got) != 0 || !d.Deadline(start).Equal(start.Add(compareEvery)) {
		t.Errorf("%v", got)
	}
	if got := d.ToRead(start.Add(compareEvery)); len(got) != 1 || got[0].Conn != c || got[0].Bridge != "br-int" || d.ToRead(start.Add(compareEvery)) != nil {
		t.Errorf("%v", got)
	}
	if r := planned(d, input(emptyView()), start); !r.Empty() {
		t.Errorf("a round while a bridge is read: %+v", r)
	}
	out, first := d.Read(Reading{Bridge: "br-int", Conn: c}, start.Add(compareEvery))
	if first || len(out.Logs) != 1 || d.Bridge("br-int").Repaired != 1 || !d.Deadline(start.Add(compareEvery)).Equal(start.Add(2*compareEvery)) {
		t.Errorf("%+v", out)
	}
	d.EventsLost("br-int")
	if got := d.ToRead(start); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if out := d.ReadAbandoned(Reading{Bridge: "br-int", Conn: c}); len(out.Close) != 1 || d.Bridge("br-int").Known || d.Bridge("br-int").Reading {
		t.Error("the bridge is taken as known, or as being read")
	}
	if out := d.Linked("br-int", nil, io.EOF, start); len(out.Logs) != 0 {
		t.Errorf("a reading that was given up is told once more: %+v", out.Logs)
	}
}

// TestContestedFlows: the first repair is made at once, later ones ever more slowly, until somebody has left the flow alone for long.
func TestContestedFlows(t *testing.T) {
	c, in := &conn{}, input(emptyView())
	d := connected(c, []openflow.Entry{flow(t, 1)})
	d.Set(port("a"), flows(flow(t, 1)))
	now := start
	deleted := func() (waits bool) {
		planned(d, in, now) // what is as wanted is known to be
		d.Observe("br-int", c, []openflow.FlowUpdate{{Event: openflow.FlowDeleted, Entry: flow(t, 1)}}, false, now)
		r := planned(d, in, now)
		if waits = r.Empty(); waits {
			now = d.Deadline(now)
			r = planned(d, in, now)
		}
		d.Done(r, now)
		return waits
	}
	if deleted() || !deleted() || !deleted() {
		t.Error("which repairs wait")
	}
	if now = now.Add(2 * contestTime); deleted() {
		t.Error("contested for ever")
	}
	if n := d.Bridge("br-int").Repaired; n != 4 {
		t.Errorf("%d repairs", n)
	}
}

// TestMeterUsers: a meter is an agent's if all flows that use it are.
func TestMeterUsers(t *testing.T) {
	flow := func(inPort int, cookie uint64, meter uint32) openflow.Entry {
		f, err := flow(t, inPort).Flow()
		if err != nil {
			t.Fatal(err)
		}
		if f.Cookie, f.Actions = cookie, []openflow.Action{openflow.Output(1)}; meter > 0 {
			f.Actions = []openflow.Action{openflow.Meter(meter), openflow.Output(1)}
		}
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for range 20 { // the order of flows is chance
		d := connected(&conn{}, []openflow.Entry{flow(1, 7, 1), flow(2, 7, 1), flow(3, 7, 2), flow(4, 0, 2), flow(5, 0, 3), flow(6, 7, 0)},
			openflow.MeterDesc{ID: 1}, openflow.MeterDesc{ID: 2}, openflow.MeterDesc{ID: 3}, openflow.MeterDesc{ID: 4})
		b := d.bridges["br-int"]
		if users := b.meterUsers(); len(users) != 3 || !users[1] || users[2] || users[3] {
			t.Fatalf("%v", users)
		}
		if got := b.abandonedMeters(); !slices.Equal(got, []uint32{1}) {
			t.Fatalf("abandoned %v", got)
		}
		d.Prune(start)
		if in, out := b.meters.Changes(); len(in) != 0 || len(out) != 1 || out[0].Meter.ID != 1 {
			t.Fatalf("pruned with the flows that use it: %v", out)
		}
	}
}

// TestPrune: flows of agents that nothing wants go when all bridges are known; found meters go when no flow has used them for long enough.
func TestPrune(t *testing.T) {
	foreign := openflowtest.Entry(t, "table=0,priority=1,in_port=9,actions=drop")
	d := connected(&conn{}, []openflow.Entry{flow(t, 1), flow(t, 2), foreign}, openflow.MeterDesc{ID: 1}, openflow.MeterDesc{ID: 2})
	want := flows(flow(t, 1))
	want.Meters = meter(2).Meters
	d.Set(port("a"), want)
	in := input(emptyView())
	d.bridges["br-tun"] = &bridge{flows: delta.New(), meters: delta.NewMeters()}
	if _, more := d.Prune(start); more || d.Pruned() || !planned(d, in, start).Empty() {
		t.Error("pruned before all bridges are known")
	}
	delete(d.bridges, "br-tun")
	out, more := d.Prune(start)
	if r := planned(d, in, start); !more || !d.Pruned() || len(out.Logs) != 1 || len(r.Bundles[0].Changes) != 1 || r.Bundles[0].Changes[0].Key != flow(t, 2).Key() {
		t.Errorf("%v, %+v", more, r)
	}
	if d.PruneMeters(start) || !d.Deadline(start).Equal(start.Add(meterGrace)) {
		t.Error("meters go before their time")
	}
	if r := planned(d, in, start); !d.PruneMeters(start.Add(meterGrace)) || len(r.Bundles[0].MetersOut) != 0 {
		t.Errorf("%+v", r)
	}
	if r := planned(d, in, start); len(r.Bundles[0].MetersOut) != 1 || r.Bundles[0].MetersOut[0].Meter.ID != 1 || d.PruneMeters(start.Add(time.Hour)) {
		t.Errorf("%+v", r)
	}
	if d.PruneAgain(); d.Pruned() {
		t.Error("not pruned again")
	}
}

// TestPruneOfTablesThatNothingWants: what leads to them goes first, and they are emptied when its datapath has forgotten them.
func TestPruneOfTablesThatNothingWants(t *testing.T) {
	entry := func(text string) openflow.Entry { return openflowtest.Entry(t, "cookie=0x1,"+text) }
	wanted, lead, led := entry("table=60,priority=3,actions=NORMAL"), entry("table=60,priority=100,in_port=1,actions=resubmit(,71)"), entry("table=71,priority=0,actions=drop")
	in := input(emptyView())
	changes := func(d *Dataplane, now time.Time) (keys []openflow.Key) {
		for _, b := range planned(d, in, now).Bundles {
			for _, c := range b.Changes {
				keys = append(keys, c.Key)
			}
			d.bridges[b.Bridge].flows.Done(b.Changes)
		}
		return keys
	}
	d := connected(&conn{}, []openflow.Entry{wanted, lead, led})
	d.Set(port("a"), flows(wanted))
	later := start.Add(idle)
	if _, more := d.Prune(start); !more || d.Pruned() || !slices.Equal(changes(d, start), []openflow.Key{lead.Key()}) || !d.Deadline(start).Equal(later) {
		t.Error("what leads there does not go first")
	}
	if _, more := d.Prune(later.Add(-1)); more || d.Pruned() || changes(d, start) != nil {
		t.Error("emptied too soon")
	}
	if _, more := d.Prune(later); !more || !d.Pruned() || !slices.Equal(changes(d, later), []openflow.Key{led.Key()}) {
		t.Error("not emptied")
	}

	// Nothing leads there, or something is wanted of the table: all goes at once.
	for _, want := range [][]openflow.Entry{{wanted, lead}, {wanted, entry("table=71,priority=1,actions=drop")}} {
		d := connected(&conn{}, []openflow.Entry{wanted, lead, led})
		d.Set(port("a"), flows(want...))
		if _, more := d.Prune(start); !more || !d.Pruned() {
			t.Errorf("%v: not at once", want)
		}
	}
}

// TestFacts: what is to be done shows in one of the facts that the gate is given.
func TestFacts(t *testing.T) {
	view := emptyView()
	idle := func(d *Dataplane) bool {
		b := d.Bridge("br-int")
		return !d.InFlight() && !d.Behind(view) && len(d.RowsPending()) == 0 && b.Connected && b.Known && !b.Reading && b.Counts.Pending+b.Meters == 0
	}
	for name, change := range map[string]func(d *Dataplane){
		"":              func(d *Dataplane) { d.bridges["br-none"] = &bridge{flows: delta.New(), meters: delta.NewMeters()} },
		"not connected": func(d *Dataplane) { d.Linked("br-int", nil, io.EOF, start) },
		"not read":      func(d *Dataplane) { d.bridges["br-int"].flows.Lost() },
		"being read":    func(d *Dataplane) { d.EventsLost("br-int"); d.ToRead(start) },
		"flows":         func(d *Dataplane) { d.Set(port("a"), flows(flow(t, 1))) },
		"meters":        func(d *Dataplane) { d.Set(port("a"), meter(1)) },
		"rows":          func(d *Dataplane) { d.Set(port("a"), rows("OpenFlow14")) },
		"an old view":   func(d *Dataplane) { d.Done(&Round{Seq: 9}, start) },
		"a round in flight": func(d *Dataplane) {
			d.Set(port("a"), rows("OpenFlow14"))
			d.Next(input(view), start)
			d.Set(port("a"), pipeline.Want{})
		},
		"a waiting object":   func(d *Dataplane) { d.Set(port("a"), pipeline.Want{Waiting: "x"}) },
		"another connection": func(d *Dataplane) { d.Linked("br-int", &conn{}, nil, start) },
	} {
		d := connected(&conn{}, nil)
		if change(d); idle(d) != (name == "") {
			t.Errorf("%q: idle is %v", name, idle(d))
		}
	}
}

// TestQueriesDoNotWrite asks everything and compares.
func TestQueriesDoNotWrite(t *testing.T) {
	view := emptyView()
	d := connected(&conn{}, []openflow.Entry{flow(t, 1), flow(t, 2)}, openflow.MeterDesc{ID: 1})
	want := rows("OpenFlow14")
	want.Flows, want.Meters = flows(flow(t, 1), flow(t, 3)).Flows, meter(1).Meters
	d.Set(port("a"), want)
	d.Set(port("b"), meter(7))
	d.Set(port("b"), pipeline.Want{})
	d.Done(&Round{Owners: []world.Object{port("a")}, RowErrs: []error{errors.New("no")}}, start)
	text := func() string {
		return fmt.Sprintf("%+v\n%+v\n%+v", d, d.bridges["br-int"].flows, d.bridges["br-int"].meters)
	}
	before := text()
	d.Bridge("br-int")
	d.Bridge("br-none")
	d.Wants(port("a"))
	d.Flows(port("a"))
	d.Pending(port("a"))
	d.Status(view, port("a"))
	d.RowsPending()
	d.RowsToWrite(view, nil)
	d.Failures()
	d.Behind(view)
	d.Owner("br-int", flow(t, 1).Key())
	d.Owner("br-none", flow(t, 1).Key())
	d.Deadline(start)
	for range d.Known("br-int") {
		continue
	}
	for range d.Known("br-none") {
		t.Error("flows of a bridge that is not there")
	}
	d.bridges["br-int"].flows.Changes()
	d.bridges["br-int"].meters.Changes()
	if after := text(); !reflect.DeepEqual(before, after) {
		t.Errorf("before:\n%q\nafter:\n%q", before, after)
	}
}

// The break that follows from our own change of a bridge's protocols is no news. Every other one is a line in the log, one and no more.
func TestResetsOfBridges(t *testing.T) {
	gone := &openflow.ConnError{Err: io.EOF}
	type host struct {
		*Dataplane
		r    *Round
		now  time.Time
		logs []Log
	}
	starts := func(h *host) Conn {
		c := &conn{}
		h.logs = append(h.logs, h.Linked("br-int", c, nil, h.now).Logs...)
		return c
	}
	fails := func(h *host, c Conn, err error, endFirst bool) {
		end := func() { h.logs = append(h.logs, h.Linked("br-int", nil, errors.Unwrap(err), h.now).Logs...) }
		if endFirst {
			end()
		}
		out, _ := h.Read(Reading{Bridge: "br-int", Conn: c, Err: err}, h.now)
		if h.logs = append(h.logs, out.Logs...); !endFirst {
			end()
		}
	}
	for _, tt := range []struct {
		name  string
		warns int
		do    func(h *host, endFirst bool)
	}{
		{"before the commit is answered", 0, func(h *host, endFirst bool) { fails(h, starts(h), gone, endFirst) }},
		{"after it", 0, func(h *host, endFirst bool) {
			c := starts(h)
			h.Done(h.r, h.now)
			h.now = h.now.Add(resetTime - time.Second)
			fails(h, c, gone, endFirst)
		}},
		{"long after it", 1, func(h *host, endFirst bool) {
			h.Done(h.r, h.now)
			h.now = h.now.Add(resetTime)
			fails(h, starts(h), gone, endFirst)
		}},
		{"the rows were refused", 1, func(h *host, endFirst bool) {
			h.r.RowErrs[0] = ovsdb.ErrConflict
			h.Done(h.r, h.now)
			fails(h, starts(h), gone, endFirst)
		}},
		{"the second break", 1, func(h *host, endFirst bool) {
			fails(h, starts(h), gone, endFirst)
			fails(h, starts(h), gone, endFirst)
		}},
		{"the break came when nothing was read", 1, func(h *host, endFirst bool) {
			h.Read(Reading{Bridge: "br-int", Conn: starts(h)}, h.now)
			h.Linked("br-int", nil, io.EOF, h.now)
			fails(h, starts(h), gone, endFirst)
		}},
		{"bytes that are no OpenFlow", 1, func(h *host, endFirst bool) {
			fails(h, starts(h), &openflow.ConnError{Err: openflow.ErrMalformed}, endFirst)
		}},
		{"no answer in time", 1, func(h *host, _ bool) { fails(h, starts(h), context.DeadlineExceeded, false) }},
		{"nothing was changed", 1, func(h *host, endFirst bool) {
			h.bridges["br-int"].reset = reset{}
			tx := ovsdb.NewTx(emptyView())
			tx.Bridge("br").SetFailMode("secure").MergeOtherConfig(map[string]string{"a": "b"})
			h.expectResets(emptyView(), &Round{Rows: []*ovsdb.Tx{tx}}, h.now)
			fails(h, starts(h), gone, endFirst)
		}},
	} {
		for _, endFirst := range []bool{false, true} {
			h := &host{Dataplane: New([]string{"br-int"}), now: start}
			h.Set(world.BridgeObject("br-int"), rows("OpenFlow14"))
			h.r = h.Next(input(emptyView()), start)
			h.r.RowErrs = []error{nil}
			tt.do(h, endFirst)
			warnings := slices.DeleteFunc(h.logs, func(l Log) bool { return !strings.Contains(l.Message, "flow dump failed, retrying") })
			if len(warnings) != tt.warns {
				t.Errorf("%s, end first %v: %d warnings, want %d", tt.name, endFirst, len(warnings), tt.warns)
			}
		}
	}
}
