// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// asItIs wants rows that the database has already.
func asItIs() pipeline.Want {
	return pipeline.Want{Rows: []ovsdb.Spec{ovsdb.BridgeSpec{Name: "br-int"}}}
}

// TestHowFarAnObjectIs: what it wants, and whether all of that is in place.
func TestHowFarAnObjectIs(t *testing.T) {
	view := emptyView()
	for name, c := range map[string]struct {
		want   pipeline.Want
		wants  bool
		flows  int
		status Status
		write  int // objects with rows to write
	}{
		"nothing":                {status: Applied},
		"a flow":                 {flows(flow(t, 1)), true, 1, Pending, 0},
		"flows":                  {flows(flow(t, 1), flow(t, 2)), true, 2, Pending, 0},
		"a flow that is there":   {flows(flow(t, 7)), true, 1, Applied, 0},
		"a meter":                {meter(1), false, 0, Pending, 0},
		"a meter that is there":  {meter(7), false, 0, Applied, 0},
		"something to wait for":  {pipeline.Want{Waiting: "x"}, true, 0, Pending, 0},
		"a row":                  {rows("OpenFlow14"), true, 0, Pending, 1},
		"a row that is there":    {asItIs(), true, 0, Applied, 0},
		"a row, which is broken": {rows("OpenFlow15"), true, 0, Pending, 0},
	} {
		d := connected(&conn{}, []openflow.Entry{flow(t, 7)}, openflow.MeterDesc{ID: 7})
		d.Set(port("a"), c.want)
		broken := map[world.Object]bool{port("a"): strings.Contains(name, "broken")}
		if d.Wants(port("a")) != c.wants || d.Flows(port("a")) != c.flows || d.Status(view, port("a")) != c.status || d.RowsToWrite(view, broken) != c.write {
			t.Errorf("%s: wants %v, %d flows, status %v, %d to write", name, d.Wants(port("a")), d.Flows(port("a")), d.Status(view, port("a")), d.RowsToWrite(view, broken))
		}
		r := planned(d, input(view), start)
		if placed := slices.Contains(r.Placed, port("a")); placed != (name == "a row that is there") && name != "something to wait for" {
			t.Errorf("%s: in place %v", name, r.Placed)
		}
		for _, tx := range r.Rows {
			if tx.Owner != port("a").String() {
				t.Errorf("%s: a transaction of %q", name, tx.Owner)
			}
		}
	}
	d := New(nil)
	d.Done(&Round{Seq: 1}, start)
	if d.Behind(view) {
		t.Error("a view that shows what was written is behind")
	}
	if d.Done(&Round{Seq: 2}, start); !d.Behind(view) {
		t.Error("a view that does not show what was written is not behind")
	}
	d.retries.Fail(port("a"), start)
	if f := d.Failures(); len(f) != 0 {
		t.Errorf("failures of what is as wanted: %+v", f)
	}
	d.Set(port("a"), rows("OpenFlow14"))
	if f := d.Failures(); len(f) != 1 || f[0].Failed != 1 {
		t.Errorf("%+v", f)
	}
	r := d.Next(input(emptyView()), start.Add(time.Hour))
	d.Landed()
	if r.RowErrs = make([]error, len(r.Rows)); len(r.Rows) > 0 {
		d.Done(r, start)
	}
	if len(r.Rows) == 1 && len(d.retries) != 0 {
		t.Errorf("a failure of rows that are written: %v", d.retries)
	}
}

// TestAnotherConnection: what was known of a bridge is known no more, and is pruned again once it was read.
func TestAnotherConnection(t *testing.T) {
	first, second := &conn{}, &conn{}
	d := connected(first, []openflow.Entry{flow(t, 1)}, openflow.MeterDesc{ID: 1})
	want := flows(flow(t, 1))
	want.Meters = meter(1).Meters
	d.Set(port("a"), want)
	if d.Prune(start); d.Pending(port("a")) || !d.Pruned() {
		t.Fatal("not in place")
	}
	d.Linked("br-int", second, nil, start)
	if b := d.Bridge("br-int"); b.Known || !b.Reading || !d.Pending(port("a")) {
		t.Errorf("%+v", b)
	}
	out, isFirst := d.Read(Reading{Bridge: "br-int", Conn: second, Err: io.EOF}, start)
	if isFirst || len(out.Close) != 1 || out.Close[0] != Conn(second) {
		t.Errorf("a reading that failed: first %v, %+v", isFirst, out)
	}
	d.Linked("br-int", second, nil, start)
	if out, isFirst := d.Read(Reading{Bridge: "br-int", Conn: second, MaxMeters: 5, Unmonitored: io.EOF}, start); !isFirst || len(out.Logs) != 1 || d.Pruned() {
		t.Errorf("first %v, pruned %v, %+v", isFirst, d.Pruned(), out)
	}
	if b := d.Bridge("br-int"); !b.Known || b.Meters != 1 || b.Counts.Pending != 1 {
		t.Errorf("%+v", b)
	}
	d.EventsLost("br-int")
	if got := d.ToRead(start); len(got) != 1 || got[0].MaxMeters != 5 || len(d.ToRead(start)) != 0 {
		t.Errorf("%+v", got)
	}
	if out, isFirst := d.Read(Reading{Bridge: "br-int", Conn: second, Flows: []openflow.Entry{flow(t, 1)}, Meters: []openflow.MeterDesc{{ID: 1}, {ID: 2}}}, start); isFirst || len(out.Logs) != 0 {
		t.Errorf("nothing has changed: first %v, %+v", isFirst, out)
	}
	// One meter in, one out.
	d.Set(port("a"), meter(3))
	if b := d.Bridge("br-int"); b.Meters != 2 {
		t.Errorf("%d meters to change", b.Meters)
	}
	d.Abandoned(&Round{Bundles: []Bundle{{Bridge: "br-int", Conn: second}}})
	if d.Bridge("br-int").Known || !d.Pending(port("a")) {
		t.Error("what nobody knows is known")
	}
}

// TestWhatOthersChange: drifts are repaired and told, many of them in one line. Reports of another connection are nothing, and those that were lost have the bridge read.
func TestWhatOthersChange(t *testing.T) {
	for _, n := range []int{0, 1, manyDrifts, manyDrifts + 1, manyDrifts + 5} {
		c := &conn{}
		var all []openflow.Entry
		var updates []openflow.FlowUpdate
		for i := range n {
			all = append(all, flow(t, i+1))
			updates = append(updates, openflow.FlowUpdate{Event: openflow.FlowDeleted, Entry: flow(t, i+1)})
		}
		d := connected(c, all)
		d.Set(port("a"), flows(all...))
		planned(d, input(emptyView()), start)
		if out := d.Observe("br-int", &conn{}, updates, true, start); len(out.Logs) != 0 || d.Pending(port("a")) || len(d.ToRead(start)) != 0 {
			t.Errorf("%d changes of another connection: %+v", n, out)
		}
		out := d.Observe("br-int", c, updates, false, start)
		single, many := 0, 0
		for _, l := range out.Logs {
			switch l.Message {
			case "repairing a flow changed by another program":
				single++
			case "repairing flows changed by another program":
				many++
			}
		}
		if single != min(n, manyDrifts) || many != map[bool]int{true: 1}[n > manyDrifts] || d.Bridge("br-int").Repaired != uint64(n) || d.Bridge("br-int").Counts.Pending != n {
			t.Errorf("%d changes: %d lines and %d for all, %+v", n, single, many, d.Bridge("br-int"))
		}
		d.Observe("br-int", c, nil, true, start)
		if d.Observe("br-int", c, nil, false, start); len(d.ToRead(start)) != 1 {
			t.Errorf("%d changes: the bridge whose reports were lost is not read", n)
		}
	}
	// Somebody insists: from a second on it is said in another way.
	c, now, slow := &conn{}, start, 0
	d := connected(c, []openflow.Entry{flow(t, 1)})
	d.Set(port("a"), flows(flow(t, 1)))
	for range 10 {
		planned(d, input(emptyView()), now)
		out := d.Observe("br-int", c, []openflow.FlowUpdate{{Event: openflow.FlowDeleted, Entry: flow(t, 1)}}, false, now)
		if len(out.Logs) != 1 {
			t.Fatalf("%+v", out)
		}
		backs := strings.Contains(out.Logs[0].Message, "repairing with backoff")
		r := planned(d, input(emptyView()), now)
		if waits := d.Deadline(now).Sub(now); r.Empty() != (waits > 0) || backs != (waits >= time.Second) {
			t.Errorf("%q with a pause of %v", out.Logs[0].Message, waits)
		}
		if backs {
			slow++
		}
		if r.Empty() {
			now = d.Deadline(now)
			r = planned(d, input(emptyView()), now)
		}
		d.Done(r, now)
	}
	if slow < 3 {
		t.Errorf("%d of 10 repairs are slow", slow)
	}
}

// TestWhatComparingFinds: once everything is known, flows with our cookie that nothing wants go when a bridge is read again; others' stay.
func TestWhatComparingFinds(t *testing.T) {
	ours := fmt.Sprintf("%#x", uint64(pipeline.Cookie))
	for name, c := range map[string]struct {
		flow  string
		stays bool
	}{
		"ours":       {"table=0,priority=7,cookie=" + ours + ",actions=drop", false},
		"another's":  {"table=0,priority=7,cookie=0x7,actions=drop", true},
		"nobody's":   {"table=0,priority=7,actions=drop", true},
		"one learnt": {"table=0,priority=7,cookie=" + ours + ",idle_timeout=9,actions=drop", true},
	} {
		for _, pruned := range []bool{false, true} {
			k := &conn{}
			d := connected(k, nil)
			if pruned {
				d.Prune(start)
			}
			d.EventsLost("br-int")
			d.ToRead(start)
			out, _ := d.Read(Reading{Bridge: "br-int", Conn: k, Flows: []openflow.Entry{openflowtest.Entry(t, c.flow)}}, start)
			goes := pruned && !c.stays
			if r := planned(d, input(emptyView()), start); (len(r.Bundles) == 1) != goes || (len(out.Logs) == 1) != goes {
				t.Errorf("%s, pruned %v: %+v, %+v", name, pruned, r.Bundles, out)
			}
		}
	}
}

// TestTwoBridges: one that is read, out of reach or has to wait holds up no other, neither in rounds nor in pruning.
func TestTwoBridges(t *testing.T) {
	names := []string{"br-int", "br-tun"}
	both := func() (*Dataplane, map[string]*conn) {
		d, conns := New(names), map[string]*conn{}
		for i, name := range names {
			conns[name] = &conn{}
			d.Linked(name, conns[name], nil, start)
			stale := flow(t, 9)
			d.Read(Reading{Bridge: name, Conn: conns[name], Flows: []openflow.Entry{stale}, Meters: []openflow.MeterDesc{{ID: uint32(i + 1)}}, MaxMeters: 9}, start)
		}
		return d, conns
	}
	for i, name := range names {
		other := names[1-i]
		for what, change := range map[string]func(d *Dataplane, in *Input){
			"is read":         func(d *Dataplane, _ *Input) { d.bridges[name].monitor.reading = true },
			"is out of reach": func(d *Dataplane, _ *Input) { d.Linked(name, nil, io.EOF, start) },
			"waits for rows":  func(_ *Dataplane, in *Input) { in.RowsFirst = name },
		} {
			d, _ := both()
			want := pipeline.Want{}
			for _, br := range names {
				want.Flows = append(want.Flows, pipeline.Flow{Bridge: br, Entry: flow(t, 1)})
			}
			d.Set(port("a"), want)
			in := input(emptyView())
			change(d, &in)
			if r := planned(d, in, start); len(r.Bundles) != 1 || r.Bundles[0].Bridge != other || d.Flows(port("a")) != 2 {
				t.Errorf("%s %s: %+v", name, what, r.Bundles)
			}
			if out, more := d.Prune(start); (what == "is out of reach") != (!more && len(out.Logs) == 0 && !d.Pruned()) {
				t.Errorf("%s %s: pruned %v, %+v", name, what, d.Pruned(), out)
			}
		}
		d, _ := both()
		d.Prune(start)
		d.bridges[name].found.until = start.Add(time.Hour)
		if !d.PruneMeters(start.Add(meterGrace)) || d.Bridge(name).FoundMeters != 1 || d.Bridge(other).FoundMeters != 0 {
			t.Errorf("%s waits: %+v, %+v", name, d.Bridge(name), d.Bridge(other))
		}
	}
	d, _ := both()
	if n := d.Release("br-int", func(e openflow.Entry) bool { return e == flow(t, 9) }); n != 1 || d.Release("br-tun", func(openflow.Entry) bool { return false }) != 0 {
		t.Errorf("%d released", n)
	}
	if out, more := d.Prune(start); !more || len(out.Logs) != 1 {
		t.Errorf("what was released is pruned once more: %+v", out)
	}
	if out, more := d.Prune(start); more || len(out.Logs) != 0 {
		t.Errorf("pruned twice: %+v", out)
	}
	if at := d.Deadline(start); !at.Equal(start.Add(meterGrace)) {
		t.Errorf("meters go at %v", at)
	}
	if d.PruneAgain(); !d.Deadline(start).IsZero() {
		t.Errorf("meters go before everything is known: %v", d.Deadline(start))
	}
}

// TestFoundMetersInUse: a meter that was found, and that a flow of whoever uses, stays.
func TestFoundMetersInUse(t *testing.T) {
	uses := openflowtest.Entry(t, "table=0,priority=1,in_port=9,actions=meter:1,output:1")
	d := connected(&conn{}, []openflow.Entry{uses}, openflow.MeterDesc{ID: 1}, openflow.MeterDesc{ID: 2})
	d.Prune(start)
	if n := d.Bridge("br-int").FoundMeters; n != 2 {
		t.Errorf("%d found", n)
	}
	d.PruneMeters(start.Add(meterGrace))
	if r := planned(d, input(emptyView()), start); len(r.Bundles) != 1 || len(r.Bundles[0].MetersOut) != 1 || r.Bundles[0].MetersOut[0].Meter.ID != 2 {
		t.Errorf("%+v", r.Bundles)
	}
}

// TestEmptyRounds: each thing that can be done makes a round worth running.
func TestEmptyRounds(t *testing.T) {
	for name, r := range map[string]Round{
		"nothing": {}, "rows": {Rows: make([]*ovsdb.Tx, 1)}, "flows": {Bundles: make([]Bundle, 1)}, "zones": {Flush: []uint16{1}}, "limits": {Limits: &Limits{}},
		"rows and flows": {Rows: make([]*ovsdb.Tx, 1), Bundles: make([]Bundle, 1)}, "flows and zones": {Bundles: make([]Bundle, 1), Flush: []uint16{1}},
	} {
		if r.Empty() != (name == "nothing") {
			t.Errorf("%s: empty is %v", name, r.Empty())
		}
	}
}

// TestARoundAgain: a round that was decided on again becomes what the first one became, and one that is another does not.
func TestARoundAgain(t *testing.T) {
	no := errors.New("no")
	decide := func(err, send error) (*Dataplane, *Round) {
		var log []string
		d := connected(&conn{log: &log, sendErr: send, commitErr: err}, nil, openflow.MeterDesc{ID: 5})
		d.Set(port("gone"), meter(5))
		d.Set(port("gone"), pipeline.Want{})
		want := rows("OpenFlow14")
		want.Flows, want.Meters = flows(flow(t, 1)).Flows, meter(2).Meters
		d.Set(port("a"), want)
		d.Set(port("b"), flows(flow(t, 2)))
		d.Set(port("c"), flows(flow(t, 3)))
		in := input(emptyView())
		in.Limits, in.Flush = &Limits{Want: map[uint16]uint32{1: 9}}, []uint16{3, 4}
		in.Unflushed = func(o world.Object) (uint16, bool) {
			zone, ok := map[world.Object]uint16{port("b"): 3, port("c"): 4}[o]
			return zone, ok
		}
		return d, d.Next(in, start)
	}
	for name, c := range map[string]struct{ rows, flush, commit, send error }{
		"all went well": {}, "rows were refused": {rows: no}, "zones were not flushed": {flush: no}, "flows were refused": {commit: no}, "meters were refused": {send: &openflow.SendError{Failures: []openflow.Failure{{Index: 0}}}},
	} {
		var log []string
		_, first := decide(c.commit, c.send)
		first.Run(t.Context(), Switch{database{c.rows, &log}, database{c.flush, &log}, database{nil, &log}})
		_, again := decide(nil, nil)
		became := first.Became()
		if err := again.Become(became, nil); err != nil || first.Took <= 0 {
			t.Fatal(name, err, first.Took)
		}
		text := func(r *Round) string {
			b := r.Bundles[0]
			return fmt.Sprint(r.Seq, r.RowErrs, r.LimitsErr, r.Limited, r.FlushErrs, r.Took, len(b.Changes), b.Withheld, len(b.MetersOut), len(b.MetersDone), b.MeterErr, b.Err)
		}
		if text(first) != text(again) || !reflect.DeepEqual(again.Became(), became) {
			t.Errorf("%s:\n%s\nand again\n%s", name, text(first), text(again))
		}
		for i, done := range first.Bundles[0].MetersDone {
			if again := again.Bundles[0].MetersDone[i]; again.Command != done.Command || again.Meter.ID != done.Meter.ID {
				t.Errorf("%s: meter %v, and again %v", name, done, again)
			}
		}
		for what, change := range map[string]func(b *Became){
			"rows": func(b *Became) { b.RowErrs = nil }, "zones": func(b *Became) { b.FlushErrs = b.FlushErrs[1:] }, "bundles": func(b *Became) { b.Bundles = nil },
			"meters": func(b *Became) { b.Bundles = []BundleBecame{{Meters: []MeterDone{{ID: 99}}}} },
		} {
			other := became
			change(&other)
			_, again := decide(nil, nil)
			if again.Become(other, nil) == nil {
				t.Errorf("%s: a round with other %s becomes it", name, what)
			}
			if err := again.Become(other, no); err != nil || !errors.Is(again.Err, no) {
				t.Errorf("%s: one of which nobody knows: %v, %v", name, err, again.Err)
			}
		}
	}
	// One zone of two fails: the flows of its ports wait, and no others.
	_, r := decide(nil, nil)
	r.RowErrs, r.FlushErrs = []error{nil}, []error{no, nil}
	if failed := r.failed(nil); !failed[port("b")] || failed[port("c")] || failed[port("a")] {
		t.Errorf("%v", failed)
	}
}
