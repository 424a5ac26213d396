// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// otherIDs is how much higher the Python agent numbers conjunctions that it takes over.
const otherIDs = 1 << 16

// pythons returns the Python agent's flow for a flow of ours that belongs to a conjunction.
func pythons(f of.Flow) (of.Flow, bool) {
	found := false
	f.Match, f.Actions = slices.Clone(f.Match), slices.Clone(f.Actions)
	for i, term := range f.Match {
		switch term.Field {
		case of.ConjID:
			found = true
			f.Match[i] = of.Num(of.ConjID, term.Value.Lo+otherIDs)
		case of.CTState:
			set := uint32(term.Value.Lo)
			f.Match[i] = of.CTFlags(set&^of.CTTrk, uint32(term.Mask.Lo)&^set)
		}
	}
	for i, a := range f.Actions {
		if c, ok := a.(of.Conjunction); ok {
			found = true
			c.ID += otherIDs
			f.Actions[i] = c
		}
	}
	return f, found
}

// TestTakenOver has the Python agent's halves of conjunctions come one by one, in an order and in its reverse: what is allowed passes after each of
// them, and when ours are gone.
func TestTakenOver(t *testing.T) {
	sw, conn := scriptSwitch(t)
	for name, back := range map[string]bool{"in an order": false, "in its reverse": true} {
		t.Run(name, func(t *testing.T) {
			c := playFile(t, "testdata/address-group.script")
			install(t, conn, c)
			var ours, theirs []of.Flow
			flows := c.all(t, func(world.Object) bool { return true })
			for _, key := range slices.SortedFunc(maps.Keys(flows), func(a, b of.Key) int { return cmp.Compare(flows[a].Entry.String(), flows[b].Entry.String()) }) {
				f, err := flows[key].Entry.Flow()
				if err != nil {
					t.Fatal(err)
				}
				if p, ok := pythons(f); ok {
					ours, theirs = append(ours, f), append(theirs, p)
				}
			}
			if len(ours) < 6 {
				t.Fatalf("only %d flows belong to conjunctions", len(ours))
			}
			if back {
				slices.Reverse(theirs)
			}
			commit := func(msgs ...of.Message) {
				t.Helper()
				if err := conn.Commit(t.Context(), msgs); err != nil {
					t.Fatal(err)
				}
				for _, tr := range traces["address-group"] {
					tr.run(t, sw)
				}
			}
			for _, f := range theirs {
				commit(of.AddFlow(entryOf(t, f)))
			}
			var gone []of.Message
			for _, f := range ours {
				gone = append(gone, of.FlowMod{Command: of.DeleteStrict, Entry: entryOf(t, f)})
			}
			commit(gone...)
		})
	}
}

func entryOf(t *testing.T, f of.Flow) of.Entry {
	t.Helper()
	e, err := f.Entry()
	if err != nil {
		t.Fatal(err)
	}
	return e
}
