// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// TestCounts follows a bridge from a start to a drift: what is wanted, there, somebody else's, and to do.
func TestCounts(t *testing.T) {
	flow := func(port int, rest string) of.Entry {
		return openflowtest.Entry(t, fmt.Sprintf("table=0,priority=2,in_port=%d,%s", port, rest))
	}
	tr := New()
	want := func(step string, c Counts) {
		t.Helper()
		if d := cmp.Diff(c, tr.Counts()); d != "" {
			t.Errorf("%s: %s", step, d)
		}
	}
	tr.Want(object("a"), []Flow{{Entry: flow(1, "actions=drop"), Reason: "one"}, {Entry: flow(2, "actions=drop"), Reason: "two"}})
	tr.Want(object("b"), []Flow{{Entry: flow(3, "actions=drop"), Reason: "three"}})
	want("before a dump", Counts{Wanted: 3, Pending: 3})
	tr.Have([]of.Entry{
		flow(1, "actions=drop"), flow(2, "actions=output:1"), // right, and wrong
		flow(8, "cookie=0x9,actions=drop"), flow(9, "cookie=0x11,actions=drop"), // somebody's, and an earlier run's
		flow(7, "cookie=0x11,idle_timeout=10,actions=drop"), // made by the switch itself
	})
	want("after a dump", Counts{Wanted: 3, Present: 5, Foreign: 2, Pending: 2})
	if n := tr.Stale(); n != 3 {
		t.Errorf("%d stale", n)
	}
	if n := tr.Sweep(func(e of.Entry) bool { return marked(e) && !Learned(e) }); n != 1 {
		t.Errorf("%d swept", n)
	}
	want("after a sweep", Counts{Wanted: 3, Present: 5, Foreign: 1, Pending: 3})
	if tr.Owned(object("a")) != 2 || tr.Owned(object("b")) != 1 || tr.Owned(object("c")) != 0 {
		t.Error("wrong owners")
	}
	type seen struct {
		Owner, Reason           string
		Wanted, There, Same, Go bool
	}
	all := func() map[string]seen {
		got := map[string]seen{}
		for k := range tr.All() {
			owner := ""
			if k.Owner != nil {
				owner, _ = world.PortID(k.Owner)
			}
			e := k.Want
			if e.IsZero() {
				e = k.Have
			}
			text := e.String()
			_, port, _ := strings.Cut(text, "in_port=")
			got["in_port="+port[:1]] = seen{owner, k.Reason, !k.Want.IsZero(), !k.Have.IsZero(), k.Same(), k.Doomed}
		}
		return got
	}
	if d := cmp.Diff(map[string]seen{
		"in_port=1": {"a", "one", true, true, true, false},
		"in_port=2": {"a", "two", true, true, false, false},
		"in_port=3": {"b", "three", true, false, false, false},
		"in_port=7": {Wanted: false, There: true},
		"in_port=8": {Wanted: false, There: true},
		"in_port=9": {There: true, Go: true},
	}, all()); d != "" {
		t.Error(d)
	}
	for n := 1; n < 6; n++ {
		left := n
		for range tr.All() {
			if left--; left == 0 {
				break
			}
		}
		if left != 0 {
			t.Errorf("a range ended before its %dth flow", n)
		}
	}
	tr.Done(tr.Changes())
	want("when all is done", Counts{Wanted: 3, Present: 5, Foreign: 1})
	tr.Want(object("b"), nil)
	want("when one is not wanted any more", Counts{Wanted: 2, Present: 5, Foreign: 1, Pending: 1})
	tr.Done(tr.Changes())
	want("and gone", Counts{Wanted: 2, Present: 4, Foreign: 1})
	tr.Lost()
	want("when the switch is lost", Counts{Wanted: 2, Pending: 2})
	if got := all(); len(got) != 2 || got["in_port=1"].There {
		t.Errorf("%+v", got)
	}
	if owner, reason, ok := tr.Owner(flow(1, "actions=drop").Key()); owner != object("a") || reason != "one" || !ok {
		t.Errorf("%v, %s, %v", owner, reason, ok)
	}
	if _, _, ok := tr.Owner(flow(9, "actions=drop").Key()); ok {
		t.Error("a flow that nobody wants has an owner")
	}
}

// TestCountsOfWhatIsWrong: what is there and different is neither missing nor foreign.
func TestCountsOfWhatIsWrong(t *testing.T) {
	tr := New()
	flow := func(port int, rest string) of.Entry {
		return openflowtest.Entry(t, fmt.Sprintf("table=0,priority=2,in_port=%d,%s", port, rest))
	}
	tr.Want(object("a"), []Flow{{Entry: flow(1, "actions=drop")}, {Entry: flow(2, "actions=drop")}, {Entry: flow(3, "actions=drop")}})
	tr.Have([]of.Entry{flow(1, "actions=output:1"), flow(9, "cookie=0x9,actions=drop")})
	if d := cmp.Diff(Counts{Wanted: 3, Present: 2, Foreign: 1, Pending: 3}, tr.Counts()); d != "" {
		t.Error(d)
	}
}

// TestFlowThatWasToGo is to go after a new dump too, for its last owner.
func TestFlowThatWasToGo(t *testing.T) {
	one, two := openflowtest.Entry(t, "table=0,priority=2,in_port=1,actions=drop"), openflowtest.Entry(t, "table=0,priority=2,in_port=2,actions=drop")
	tr := New()
	tr.Want(object("a"), []Flow{{Entry: one}, {Entry: two}})
	tr.Have([]of.Entry{one, two})
	tr.Want(object("a"), []Flow{{Entry: two}})
	tr.Lost()
	tr.Have([]of.Entry{one, two})
	if c := tr.Changes(); len(c) != 1 || c[0].Owner != object("a") || !c[0].Entry.IsZero() || tr.Stale() != 0 {
		t.Errorf("changes %v", texts(c))
	}
	tr.Lost()
	tr.Have([]of.Entry{two})
	if c := tr.Changes(); len(c) != 0 || len(tr.left) != 0 {
		t.Errorf("changes %v, left %v", texts(c), tr.left)
	}
	// Wanted again, it is nobody's leftover.
	tr.Want(object("a"), nil)
	tr.Want(object("b"), []Flow{{Entry: two}})
	if c := tr.Changes(); len(c) != 0 || len(tr.left) != 0 || tr.Owned(object("a")) != 0 {
		t.Errorf("changes %v, left %v", texts(c), tr.left)
	}
}

// TestMetersOfOthers: what is there and not wanted goes only when it is released, and only once.
func TestMetersOfOthers(t *testing.T) {
	m := NewMeters()
	m.Want(object("a"), []Meter{limit(1, 100), limit(2, 200)})
	if in, out := m.Changes(); in != nil || out != nil || !m.Pending(object("a")) || m.Pending(object("b")) {
		t.Errorf("%v, %v before a dump", in, out)
	}
	m.Have([]of.MeterDesc{limit(1, 100).MeterDesc, limit(2, 300).MeterDesc, limit(8, 1).MeterDesc, limit(7, 1).MeterDesc})
	if got := m.Stale(); !slices.Equal(got, []uint32{7, 8}) || !m.Pending(object("a")) {
		t.Errorf("stale %v", got)
	}
	if all := m.All(); len(all) != 2 || all[0].ID != 1 || !all[0].Present || all[1].Present || all[1].Owner != object("a") {
		t.Errorf("%+v", all)
	}
	m.Sweep([]uint32{8, 1})
	in, out := m.Changes()
	if len(in) != 1 || in[0].Command != of.Modify || in[0].Meter.ID != 2 || in[0].Owner != object("a") || len(out) != 1 || out[0].Command != of.Delete || out[0].Meter.ID != 8 {
		t.Errorf("%+v, %+v", in, out)
	}
	m.Done(in)
	if m.Pending(object("a")) {
		t.Error("still pending")
	}
	m.Done(out)
	m.Sent()
	if in, out = m.Changes(); in != nil || out != nil || len(m.gone) != 0 {
		t.Errorf("%+v, %+v, %v", in, out, m.gone)
	}
	// An owner that gives one up, and another that takes it over in between.
	m.Want(object("b"), []Meter{limit(2, 200)})
	m.Want(object("a"), []Meter{limit(1, 100)})
	if in, out = m.Changes(); in != nil || out != nil {
		t.Errorf("%+v, %+v", in, out)
	}
	m.Want(object("b"), nil)
	if _, out = m.Changes(); len(out) != 1 || out[0].Meter.ID != 2 || len(m.owned) != 1 {
		t.Errorf("%+v, owned %v", out, m.owned)
	}
	m.Lost()
	if _, out = m.Changes(); out != nil || !m.Pending(object("a")) || m.All()[0].Present {
		t.Errorf("%+v although the switch is lost", out)
	}
}
