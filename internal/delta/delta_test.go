// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

func object(id string) world.Object { return world.PortObject(id) }

func texts(changes []Change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, string(c.Message().AppendText(nil)))
	}
	return out
}

func TestNothingHappensBeforeTheSwitchIsKnown(t *testing.T) {
	tr := New()
	tr.Want(object("a"), []Flow{{Entry: openflowtest.Entry(t, "table=0,priority=2,in_port=1,actions=drop")}})
	if c := tr.Changes(); c != nil || !tr.Pending(object("a")) {
		t.Errorf("changes %v before a dump", texts(c))
	}
	tr.Have(nil)
	c := tr.Changes()
	if len(c) != 1 || !tr.Pending(object("a")) {
		t.Fatalf("changes %v", texts(c))
	}
	tr.Done(c)
	if len(tr.Changes()) != 0 || tr.Pending(object("a")) {
		t.Error("applied, but not done")
	}
	tr.Lost()
	if !tr.Pending(object("a")) {
		t.Error("a lost switch has nothing in place")
	}
}

func TestEqualFlowsAreNotTouchedWhateverTheirCookie(t *testing.T) {
	tr := New()
	tr.Have([]of.Entry{openflowtest.Entry(t, "table=0,priority=2,cookie=0x99,in_port=1,actions=drop")})
	tr.Want(object("a"), []Flow{{Entry: openflowtest.Entry(t, "table=0,priority=2,cookie=0x11,in_port=1,actions=drop")}})
	if c := tr.Changes(); len(c) != 0 {
		t.Errorf("changes %v", texts(c))
	}
	tr.Want(object("a"), []Flow{{Entry: openflowtest.Entry(t, "table=0,priority=2,cookie=0x11,in_port=1,actions=NORMAL")}})
	if c := tr.Changes(); len(c) != 1 {
		t.Errorf("changes %v", texts(c))
	}
}

func TestStaleFlowsWaitForTheSweep(t *testing.T) {
	old, foreign := openflowtest.Entry(t, "table=0,priority=5,cookie=0x99,actions=drop"), openflowtest.Entry(t, "table=0,priority=6,actions=drop")
	tr := New()
	tr.Have([]of.Entry{old, foreign})
	if c := tr.Changes(); len(c) != 0 || tr.Stale() != 2 {
		t.Fatalf("changes %v, %d stale", texts(c), tr.Stale())
	}
	if n := tr.Sweep(func(e of.Entry) bool { return e.Cookie() != 0 }); n != 1 {
		t.Errorf("swept %d", n)
	}
	if c := tr.Changes(); len(c) != 1 || c[0].Key != old.Key() {
		t.Errorf("changes %v", texts(c))
	}
}

func TestSomeStaleFlowsGoAtOnce(t *testing.T) {
	tr := New()
	tr.Have([]of.Entry{openflowtest.Entry(t, "table=0,priority=1,in_port=1,actions=drop"), openflowtest.Entry(t, "table=0,priority=1,in_port=2,actions=drop")})
	tr.Want(object("a"), []Flow{{Entry: openflowtest.Entry(t, "table=0,priority=1,in_port=1,actions=drop")}})
	if n := tr.Release(func(of.Entry) bool { return true }); n != 1 || tr.Stale() != 0 {
		t.Errorf("%d released, %d stale", n, tr.Stale())
	}
	if c := texts(tr.Changes()); !slices.Equal(c, []string{"delete_strict table=0,priority=1,in_port=2"}) {
		t.Errorf("%v", c)
	}
}

func TestTwoOwnersOfOneFlow(t *testing.T) {
	tr := New()
	tr.Have(nil)
	x, y := openflowtest.Entry(t, "table=21,priority=1,actions=output:1"), openflowtest.Entry(t, "table=21,priority=1,actions=output:2")
	tr.Want(object("b"), []Flow{{Entry: y}})
	tr.Want(object("a"), []Flow{{Entry: x}})
	if c := tr.Changes(); len(c) != 1 || c[0].Entry != x {
		t.Errorf("changes %v", texts(c))
	}
	tr.Done(tr.Changes())
	tr.Want(object("a"), nil)
	if c := tr.Changes(); len(c) != 1 || c[0].Entry != y {
		t.Errorf("after the first owner left: %v", texts(c))
	}
}

func TestWantedDifferentlyWhileBeingApplied(t *testing.T) {
	tr := New()
	tr.Have(nil)
	x, y := openflowtest.Entry(t, "table=0,priority=1,actions=output:1"), openflowtest.Entry(t, "table=0,priority=1,actions=output:2")
	tr.Want(object("a"), []Flow{{Entry: x}})
	inFlight := tr.Changes()
	tr.Want(object("a"), []Flow{{Entry: y}})
	tr.Done(inFlight)
	if c := tr.Changes(); len(c) != 1 || c[0].Entry != y {
		t.Errorf("changes %v", texts(c))
	}
	inFlight = tr.Changes()
	tr.Want(object("a"), nil)
	tr.Done(inFlight)
	if c := tr.Changes(); len(c) != 1 || !c[0].Entry.IsZero() {
		t.Errorf("changes %v, want a deletion", texts(c))
	}
}

// Whatever the history, applying the changes leaves exactly what is wanted, and what was there before and never wanted.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := New()
		sw := map[of.Key]of.Entry{}
		want := map[string][]of.Entry{}
		flow := rapid.Custom(func(t *rapid.T) of.Entry {
			return openflowtest.Entry(t, fmt.Sprintf("table=0,priority=%d,actions=output:%d", rapid.IntRange(1, 6).Draw(t, "prio"), rapid.IntRange(1, 3).Draw(t, "port")))
		})
		foreign := openflowtest.Entry(t, "table=9,priority=9,actions=drop")
		sw[foreign.Key()] = foreign
		apply := func() {
			c := tr.Changes()
			for _, x := range c {
				if x.Entry.IsZero() {
					delete(sw, x.Key)
				} else {
					sw[x.Key] = x.Entry
				}
			}
			tr.Done(c)
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner")
				entries := rapid.SliceOfNDistinct(flow, 0, 4, func(e of.Entry) of.Key { return e.Key() }).Draw(t, "flows")
				want[id] = entries
				var flows []Flow
				for _, e := range entries {
					flows = append(flows, Flow{Entry: e})
				}
				tr.Want(object(id), flows)
			case 2:
				tr.Have(slices.Collect(func(yield func(of.Entry) bool) {
					for _, e := range sw {
						if !yield(e) {
							return
						}
					}
				}))
			case 3:
				apply()
			}
		}
		var all []of.Entry
		for _, e := range sw {
			all = append(all, e)
		}
		tr.Have(all)
		tr.Sweep(func(e of.Entry) bool { return e.Table() == 0 })
		apply()
		expected := map[of.Key]of.Entry{foreign.Key(): foreign}
		for _, id := range []string{"c", "b", "a"} { // a wins
			for _, e := range want[id] {
				expected[e.Key()] = e
			}
		}
		if len(sw) != len(expected) {
			t.Fatalf("the switch has %d flows, want %d", len(sw), len(expected))
		}
		for k, e := range expected {
			if sw[k] != e {
				t.Fatalf("%s: has %s", e, sw[k])
			}
		}
	})
}
