// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

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
	for i := range 2 * maxNotes {
		r.put(note{kind: kindPush, what: "Port updated", subject: fmt.Sprint(i)})
	}
	e = r.Events()
	if len(e) != maxNotes || e[0].Subject != fmt.Sprint(maxNotes) || e[maxNotes-1].Subject != fmt.Sprint(2*maxNotes-1) || e[1].Seq != e[0].Seq+1 {
		t.Errorf("%d events from %+v to %+v", len(e), e[0], e[len(e)-1])
	}
	if w := r.LastWarnings(); len(w) != 1 || w[0].Text != "flow rejected object=port p2" || w[0].Level != "error" {
		t.Errorf("a flood washed the errors away: %+v", w)
	}
	if warnings, errs := r.Lines(); warnings != 0 || errs != 1 {
		t.Errorf("%d warnings, %d errors", warnings, errs)
	}
}

// A push about another host's port must stay cheap, and so must taking it down.
func BenchmarkNoteForeignPush(b *testing.B) {
	a := New(Config{Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}}, nil, time.Now())
	push := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated}
	for b.Loop() {
		a.seen.noteMessage(push)
	}
}
