// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// What the loop calls in sync and what the status calls so agree.
func TestInSync(t *testing.T) {
	c := &cloud{}
	a, batch := filtering(t, c, nil, 2)
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.bridges.started, a.bridges.up = true, true
	a.world.Switch(batch)
	settle(t, a)
	if a.open(gate.Complete) || a.Look(time.Now()).AgentStatus().InSync {
		t.Error("in sync before anything is in place")
	}
	obeyed(a)
	settle(t, a)
	rowsWritten(a) // there is no database to write the rows of the bridge to
	if s := a.Look(time.Now()).AgentStatus(); !a.open(gate.Complete) || !s.InSync || s.Totals.Wired.Count != 2 {
		t.Errorf("in sync: %v; status %+v", a.open(gate.Complete), s)
	}
	all := shownFlows(a)
	if len(all) == 0 {
		t.Fatal(all)
	}
	for _, f := range all {
		if f.State != "present" || f.Owner == "" || f.Reason == "" {
			t.Errorf("flow %+v", f)
		}
	}
	// Somebody deletes one flow, changes another, and adds one of his own.
	var wanted []openflow.Entry
	for k := range a.dataplane.Known("br-int") {
		wanted = append(wanted, k.Want)
	}
	slices.SortFunc(wanted, func(x, y openflow.Entry) int { return x.Key().Compare(y.Key()) })
	other, err := openflow.ParseFlow("table=0,priority=77,in_port=9,actions=drop")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Entry()
	if err != nil {
		t.Fatal(err)
	}
	changed, err := wanted[1].Flow()
	if err != nil {
		t.Fatal(err)
	}
	changed.Actions = []openflow.Action{openflow.Output(99)}
	wrong, err := changed.Entry()
	if err != nil {
		t.Fatal(err)
	}
	learned, err := (&openflow.Flow{Table: 20, Priority: 1, Cookie: pipeline.Cookie, HardTimeout: 300, Actions: []openflow.Action{openflow.Output(5)}}).Entry()
	if err != nil {
		t.Fatal(err)
	}
	a.dataplane.Observe("br-int", obedient{}, []openflow.FlowUpdate{
		{Event: openflow.FlowDeleted, Entry: wanted[0]}, {Event: openflow.FlowModified, Entry: wrong}, {Event: openflow.FlowAdded, Entry: foreign},
		{Event: openflow.FlowAdded, Entry: learned},
	}, false, time.Now())
	b := a.Look(time.Now()).AllBridges()[0]
	if b.Pending != 2 || b.Foreign != 1 || b.Repaired != 2 || b.Wanted != len(wanted) || b.Present != len(wanted)+1 {
		t.Errorf("bridge %+v", b)
	}
	all = shownFlows(a)
	states := map[string]int{}
	for _, f := range all {
		states[f.State]++
		if f.State == "different" && !strings.Contains(f.Have, "output:99") {
			t.Errorf("flow %+v", f)
		}
	}
	if states["missing"] != 1 || states["different"] != 1 || states["foreign"] != 1 || states["learned"] != 1 || len(all) != len(wanted)+2 {
		t.Errorf("%v", states)
	}
}

func TestRecorder(t *testing.T) {
	r := &Recorder{}
	r.put(note{kind: kindPort, what: "wired, bound to this host", subject: "p1"})
	for range 10_000 {
		r.put(note{kind: kindPush, what: "Port updated, not of this host", at: 1})
	}
	e := r.Events()
	if len(e) != 2 || e[0].Text != "port p1 is wired, bound to this host" || e[1].Count != 10_000 || e[1].Until.IsZero() {
		t.Errorf("events %+v", e)
	}
	log := slog.New(r.Handler(slog.DiscardHandler))
	log.Error("flow rejected", "object", "port p2")
	log.Debug("not worth it")
	const flood, least = 20_000, 4096
	id := func(i int) string { return fmt.Sprintf("0f0f0f0f-0000-4000-8000-%012x", i) }
	for i := range flood {
		r.put(note{kind: kindPush, what: "Port updated", subject: id(i), at: int64(i), took: time.Millisecond})
	}
	e = r.Events()
	for i := range e {
		if k := flood - len(e) + i; e[i].Subject != id(k) || e[i].Time.UnixNano() != int64(k) || e[i].Seq != e[0].Seq+uint64(i) || e[i].Text != "Port updated "+id(k)+" in 1ms" {
			t.Fatalf("event %d of %d is %+v", i, len(e), e[i])
		}
	}
	if len(e) < least {
		t.Errorf("%d events are kept, want at least %d", len(e), least)
	}
	if w := r.LastWarnings(); len(w) != 1 || w[0].Text != "flow rejected object=port p2" || w[0].Level != "error" {
		t.Errorf("a flood washed the errors away: %+v", w)
	}
	if warnings, errs := r.Lines(); warnings != 0 || errs != 1 {
		t.Errorf("%d warnings, %d errors", warnings, errs)
	}
}

// What the recorder says of an entry is what was put into it, whatever that is, and its memory has a bound.
func TestNotes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SampledFrom([]string{"", "p1", "0f0f0f0f-0000-4000-8000-00000000abcd", "0F0F0F0F-0000-4000-8000-00000000abcd", "0f0f0f0f-0000-4000-8000-00000000abcx"}),
			rapid.StringN(0, 60, -1), rapid.Just(strings.Repeat("long", 800)))
		r, want := &Recorder{}, []note{}
		for i := range rapid.IntRange(1, 200).Draw(t, "entries") {
			n := note{
				at: rapid.Int64().Draw(t, "at"), kind: kind(rapid.IntRange(0, int(kindConntrack)).Draw(t, "kind")), level: int8(rapid.IntRange(0, 3).Draw(t, "level")),
				n: rapid.IntRange(-1, 1<<40).Draw(t, "n"), what: fmt.Sprint(i, text.Draw(t, "what")), subject: text.Draw(t, "subject"), detail: text.Draw(t, "detail"),
				took: time.Duration(rapid.Int64().Draw(t, "took")),
			}
			for again := range rapid.IntRange(1, 3).Draw(t, "times") {
				r.put(n)
				if again > 0 {
					n.repeated, n.until = again, n.at
				}
			}
			n.seq, n.n = uint64(i)+1, n.n*(n.repeated+1)
			want = append(want, n)
		}
		if got, want := r.Events(), inWords(want); !cmp.Equal(got, want[len(want)-len(got):]) || len(r.notes.ring) > notesSize || len(r.notes.words) > maxWords {
			t.Errorf("%d bytes, %d words, events differ: %s", len(r.notes.ring), len(r.notes.words), cmp.Diff(want[len(want)-len(got):], got))
		}
	})
}

// A push about another host's port must stay cheap, and so must taking it down.
func BenchmarkNoteForeignPush(b *testing.B) {
	a := New(Config{Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}}, nil, time.Now())
	push := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated}
	for b.Loop() {
		a.seen.noteMessage(push)
	}
}
