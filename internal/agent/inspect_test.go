// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// running has an agent's loop go round for the rest of the test.
func running(t *testing.T, a *Agent) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func has(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}

func TestStatusSaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{refuses: "g1"}
		a, sw, batch := filtering(t, c, nil, 3)
		running(t, a)
		wait(time.Millisecond)
		s, err := a.Status(t.Context())
		if err != nil || s.InSync || !has(s.Reasons, "the switch's database cannot be reached") || s.Switch.Up || !s.Server.Up {
			t.Errorf("before the switch was seen: %+v, %v", s, err)
		}
		sw.changes <- batch
		wait(time.Second)
		s, err = a.Status(t.Context())
		if err != nil || s.InSync || !s.Switch.Up || s.Switch.Detail != "Open vSwitch 3.1.0" {
			t.Errorf("status %+v, %v", s, err)
		}
		for _, reason := range []string{"bridge br-int cannot be programmed", "bulk_pull of 1 group", "flows not as wanted"} {
			if !has(s.Reasons, reason) {
				t.Errorf("no word about %q in %q", reason, s.Reasons)
			}
		}
		if s.Ports["wired"] != 2 || s.Ports["waiting"] != 1 || s.Pending.Flows == 0 || s.Pending.Items != 1 || len(s.Bridges) != 1 {
			t.Errorf("status %+v", s)
		}
		if len(s.Errors) == 0 || !strings.Contains(s.Errors[len(s.Errors)-1].Text, "g1") {
			t.Errorf("the last warning is not kept: %+v", s.Errors)
		}
		ports, err := a.Ports(t.Context())
		if err != nil || len(ports) != 3 || ports[1].State != "waiting" || !strings.Contains(ports[1].Reason, "g1") {
			t.Errorf("ports %+v, %v", ports, err)
		}
		p := ports[0]
		if p.State != "wired" || p.VLAN != 1 || p.Network != "n" || p.Segment != "local" || !p.Filtered || p.Applied || p.Flows == 0 ||
			p.Timeline.Answered.IsZero() || p.Interface != "p0" || p.Addresses[0] != "10.0.5.0" || p.Status != "DOWN" || p.Reported != "" {
			t.Errorf("port %+v", p)
		}
		groups, err := a.Groups(t.Context())
		if err != nil || len(groups) != 3 || groups[1].Known || !groups[0].Known || groups[0].Rules[0].Text != "allow everything from members of group m0 (IPv4)" ||
			groups[0].Rules[0].Members != 1 || !slices.Equal(groups[0].Ports, []string{"p0"}) {
			t.Errorf("groups %+v, %v", groups, err)
		}
		networks, err := a.Networks(t.Context())
		if err != nil || len(networks) != 1 || networks[0].ID != "n" || len(networks[0].Ports) != 2 {
			t.Errorf("networks %+v, %v", networks, err)
		}
	})
}

// What the loop calls in sync and what the status calls so agree.
func TestInSync(t *testing.T) {
	c := &cloud{}
	a, _, batch := filtering(t, c, nil, 2)
	a.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.started, a.switchUp = true, true
	a.world.Switch(batch)
	settle(t, a)
	if a.open(gate.Complete) || a.status().InSync {
		t.Error("in sync before anything is in place")
	}
	obeyed(a)
	settle(t, a)
	rowsWritten(a) // there is no database to write the rows of the bridge to
	if s := a.status(); !a.open(gate.Complete) || !s.InSync || s.Totals.Wired.Count != 2 {
		t.Errorf("in sync: %v; status %+v", a.open(gate.Complete), s)
	}
	all, err := withLoop(t, a, func(ctx context.Context) ([]inspect.Flow, error) { return a.Flows(ctx, "br-int") })
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
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
	b := a.bridges()[0]
	if b.Pending != 2 || b.Foreign != 1 || b.Repaired != 2 || b.Wanted != len(wanted) || b.Present != len(wanted)+1 {
		t.Errorf("bridge %+v", b)
	}
	all, err = withLoop(t, a, func(ctx context.Context) ([]inspect.Flow, error) { return a.Flows(ctx, "") })
	states := map[string]int{}
	for _, f := range all {
		states[f.State]++
		if f.State == "different" && !strings.Contains(f.Have, "output:99") {
			t.Errorf("flow %+v", f)
		}
	}
	if err != nil || states["missing"] != 1 || states["different"] != 1 || states["foreign"] != 1 || states["learned"] != 1 || len(all) != len(wanted)+2 {
		t.Errorf("%v, %v", states, err)
	}
	if _, err := withLoop(t, a, func(ctx context.Context) ([]inspect.Flow, error) { return a.Flows(ctx, "br-no") }); !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("a bridge that is none: %v", err)
	}
}

// withLoop asks an agent whose loop does nothing but answer.
func withLoop[T any](t *testing.T, a *Agent, ask func(context.Context) (T, error)) (T, error) {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case answer := <-a.asked:
				answer()
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	return ask(t.Context())
}

// A loop that is busy or over lets nobody wait for ever, and a mistake in an answer does not end it.
func TestQuestionsToALoopThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := filtering(t, &cloud{}, nil, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Status(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "loop does not answer") {
			t.Errorf("a loop that does not go round: %v", err)
		}
		a.log.Warn("something is wrong", "port", "p7")
		events, err := a.Events(t.Context())
		if err != nil || len(events) != 1 || events[0].Subject != "p7" || events[0].Level != "warning" {
			t.Errorf("the recorder of a stuck agent: %+v, %v", events, err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		if err := a.ask(t.Context(), func() { panic("mistake") }); err == nil || !strings.Contains(err.Error(), "mistake") {
			t.Errorf("a mistake in an answer: %v", err)
		}
		if err := a.Alive(t.Context()); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
		if _, err := a.Ports(t.Context()); !errors.Is(err, errEnded) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestRecorder(t *testing.T) {
	r := &recorder{}
	r.put(note{kind: kindPort, what: "wired, bound to this host", subject: "p1"})
	for range 10_000 {
		r.put(note{kind: kindPush, what: "Port updated, not of this host"})
	}
	e := r.events()
	if len(e) != 2 || e[0].Text != "port p1 is wired, bound to this host" || e[1].Count != 10_000 || e[1].Until.IsZero() {
		t.Errorf("events %+v", e)
	}
	log := slog.New(recording{slog.DiscardHandler, r})
	log.Error("flow rejected", "object", "port p2")
	log.Debug("not worth it")
	for i := range 2 * maxNotes {
		r.put(note{kind: kindPush, what: "Port updated", subject: fmt.Sprint(i)})
	}
	e = r.events()
	if len(e) != maxNotes || e[0].Subject != fmt.Sprint(maxNotes) || e[maxNotes-1].Subject != fmt.Sprint(2*maxNotes-1) || e[1].Seq != e[0].Seq+1 {
		t.Errorf("%d events from %+v to %+v", len(e), e[0], e[len(e)-1])
	}
	if w := r.lastWarnings(); len(w) != 1 || w[0].Text != "flow rejected object=port p2" || w[0].Level != "error" {
		t.Errorf("a flood washed the errors away: %+v", w)
	}
	if warnings, errs := r.lines(); warnings != 0 || errs != 1 {
		t.Errorf("%d warnings, %d errors", warnings, errs)
	}
}

// A push about another host's port must stay cheap, and so must taking it down.
func BenchmarkNoteForeignPush(b *testing.B) {
	a := &Agent{world: world.New(world.Config{})}
	push := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated}
	for b.Loop() {
		a.noteMessage(push)
	}
}

// With 100,000 flows no step of a question holds the loop for long.
func BenchmarkFlowsStep(b *testing.B) {
	const flows = 100_000
	a := &Agent{dataplane: dataplane.New([]string{"br-int"}), asked: make(chan func()), ended: make(chan struct{})}
	var have []openflow.Entry
	for i := range flows {
		f, err := openflow.ParseFlow(fmt.Sprintf("table=82,priority=70,tcp,reg5=0x%x,nw_src=10.%d.%d.0/24,tp_dst=80,actions=output:%d", i%200+1, i/200%256, i/51200, i%200+1))
		if err != nil {
			b.Fatal(err)
		}
		e, err := f.Entry()
		if err != nil {
			b.Fatal(err)
		}
		have = append(have, e)
		a.dataplane.Set(world.Object{Kind: world.KindPeer, ID: fmt.Sprint(i)}, pipeline.Want{Flows: []pipeline.Flow{{Bridge: "br-int", Entry: e, Reason: "test"}}})
	}
	hasFlows(a, "br-int", have)
	var held time.Duration
	steps := 0
	go func() {
		for answer := range a.asked {
			began := time.Now()
			answer()
			held += time.Since(began)
			steps++
		}
	}()
	for b.Loop() {
		all, err := a.flowsOf(b.Context(), "br-int")
		if err != nil || len(all) != flows {
			b.Fatal(len(all), err)
		}
	}
	close(a.asked)
	b.ReportMetric(float64(held.Microseconds())/float64(steps), "µs/step")
}

var _ Broker = (*messaging.Client)(nil)

// Fifty askers at a time hold nobody up: the loop goes on answering in moments.
func TestManyAskers(t *testing.T) {
	c := &cloud{}
	a, sw, batch := filtering(t, c, nil, 200)
	running(t, a)
	sw.changes <- batch
	for range 100 {
		if s, err := a.Status(t.Context()); err != nil || s.Ports["wired"] == 200 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var answers atomic.Int64
	for i := range 50 {
		wg.Go(func() {
			for ctx.Err() == nil {
				switch i % 5 {
				case 0:
					_, _ = a.Flows(ctx, "")
				case 1:
					_, _ = a.Ports(ctx)
				case 2:
					_, _ = a.Groups(ctx)
				case 3:
					_, _ = a.Events(ctx)
				default:
					_, _ = a.Status(ctx)
				}
				answers.Add(1)
			}
		})
	}
	// What the loop would do with an event that comes now.
	var waits []time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		if a.Alive(t.Context()) == nil {
			waits = append(waits, time.Since(began))
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	slices.Sort(waits)
	median, worst := waits[len(waits)/2], waits[len(waits)-1]
	t.Logf("%d answers to 50 askers in a second; a turn of the loop waited %s in the median, %s at most", answers.Load(), median, worst)
	if median > 500*time.Millisecond {
		t.Errorf("the loop is held up: %s in the median of %d", median, len(waits))
	}
}
