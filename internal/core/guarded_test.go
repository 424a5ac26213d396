// SPDX-License-Identifier: Apache-2.0

package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// whole is an extension with everything that one can have. It writes down what is called, and panics in one method.
type whole struct {
	panics  string
	err     error          // of methods that return one
	changed []world.Object // that it was told last
	said    []string
	service metaproxy.Service
}

func (w *whole) did(method string) {
	if w.said = append(w.said, method); method == w.panics {
		panic("injected")
	}
}

func (*whole) Name() string                 { return "whole" }
func (*whole) Kinds() []neutron.Kind        { return []neutron.Kind{neutron.KindLog} }
func (*whole) Topics() []string             { return []string{"topic"} }
func (*whole) Devices() []string            { return []string{"ens1"} }
func (*whole) PacketBound() extension.Bound { return extension.Bound{Rate: 7, Burst: 3} }

func (w *whole) Resolve(changed []world.Object) []world.Object {
	w.did("Resolve")
	w.changed = changed
	return []world.Object{world.PortObject("p")}
}
func (w *whole) Compile(world.Object, *pipeline.Want)       { w.did("Compile") }
func (w *whole) OnPush(*neutron.Push) error                 { w.did("OnPush"); return w.err }
func (w *whole) OnCast(string, []byte) error                { w.did("OnCast"); return w.err }
func (w *whole) OnRows(*ovsdb.Batch)                        { w.did("OnRows") }
func (w *whole) Records() []string                          { w.did("Records"); return []string{"line"} }
func (w *whole) Asks() []resolver.Ask                       { w.did("Asks"); return make([]resolver.Ask, 2) }
func (w *whole) Warnings() []string                         { w.did("Warnings"); return []string{"sentence"} }
func (w *whole) Resync()                                    { w.did("Resync") }
func (w *whole) Missing() []extension.Item                  { w.did("Missing"); return make([]extension.Item, 3) }
func (w *whole) Calls() []extension.Call                    { w.did("Calls"); return make([]extension.Call, 4) }
func (w *whole) OnCall(extension.Key, any, error)           { w.did("OnCall") }
func (w *whole) Deadline() time.Time                        { w.did("Deadline"); return time.Unix(5, 0) }
func (w *whole) OnTime(time.Time)                           { w.did("OnTime") }
func (w *whole) OnForwarding(forwarding.Outcome, time.Time) { w.did("OnForwarding") }
func (w *whole) Service() *metaproxy.Service                { w.did("Service"); return &w.service }
func (w *whole) OnService(metaproxy.State)                  { w.did("OnService") }
func (w *whole) AddState(c *neutron.Configurations)         { w.did("AddState"); c.InDistributedMode = true }
func (w *whole) Save() any                                  { w.did("Save"); return "saved" }
func (w *whole) Load(json.RawMessage) error                 { w.did("Load"); return w.err }
func (w *whole) Explain(world.Object) []string              { w.did("Explain"); return []string{"because"} }

func (w *whole) OnPacket(extension.Packet) ([]openflow.Message, extension.Outcome) {
	w.did("OnPacket")
	return []openflow.Message{openflow.PacketOut{}}, extension.Answered
}

func (w *whole) OnAnswer(resolver.Answer, error) ([]openflow.Message, extension.Outcome) {
	w.did("OnAnswer")
	return []openflow.Message{openflow.PacketOut{}}, extension.Answered
}

func (w *whole) OnPulled(neutron.Kind, []string, []neutron.Primitive) error {
	w.did("OnPulled")
	return w.err
}

func (w *whole) Forwarding(func() bool) (forwarding.Job, bool) {
	w.did("Forwarding")
	return forwarding.Job{Read: []string{"ens1"}}, true
}

// guardedWhole is a core with that extension alone.
func guardedWhole(t *testing.T) (*host, *whole, extension.Member) {
	t.Helper()
	a, _ := filtering(t, &cloud{}, nil, 0)
	x := &whole{}
	m := guard(extension.NewMember(x), &a.contained, &a.resyncing)
	a.extensions.Set = extension.Set{m}
	return a, x, m
}

// What a panic of a method costs.
const (
	itsOutcome  = iota // nothing else
	messages           // everything is asked for again
	whatItKnows        // it works out everything again
)

// TestWhatAPanicOfAMethodCosts: what a method returns reaches whoever asks. When it panics the extension is left alone as far as what it knows may be
// wrong, and no further.
func TestWhatAPanicOfAMethodCosts(t *testing.T) {
	answered := func(answer []openflow.Message, o extension.Outcome) string {
		return fmt.Sprintf("%d answers, %s", len(answer), o)
	}
	countable := func(err error) string { // a panic in it would be counted twice
		var p *effect.Panic
		switch {
		case errors.As(err, &p):
			return "a panic"
		case err != nil:
			return "an error"
		}
		return ""
	}
	for _, c := range []struct {
		method       string
		call         func(m extension.Member) any
		want, failed any // what is returned
		costs        int
	}{
		{"Resolve", func(m extension.Member) any { return len(m.Resolve(nil)) }, 1, 0, whatItKnows},
		{"OnRows", func(m extension.Member) any { m.RowHandler.OnRows(&ovsdb.Batch{}); return nil }, nil, nil, whatItKnows},
		{"Resync", func(m extension.Member) any { m.Resyncer.Resync(); return nil }, nil, nil, whatItKnows},
		{"OnTime", func(m extension.Member) any { m.Timed.OnTime(time.Now()); return nil }, nil, nil, whatItKnows},
		{"Missing", func(m extension.Member) any { return len(m.Missing()) }, 3, 0, whatItKnows},
		{"Calls", func(m extension.Member) any { return len(m.Calls()) }, 4, 0, whatItKnows},
		{"Deadline", func(m extension.Member) any { return m.Timed.Deadline().IsZero() }, false, true, whatItKnows},
		{"Forwarding", func(m extension.Member) any {
			job, due := m.Forwarder.Forwarding(nil)
			return fmt.Sprint(job.Read, due)
		}, "[ens1] true", "[] false", whatItKnows},
		{"Service", func(m extension.Member) any { return m.Server.Service() != nil }, true, true, whatItKnows}, // the last one
		{"OnPush", func(m extension.Member) any { return countable(m.PushHandler.OnPush(&neutron.Push{})) }, "", "an error", messages},
		{"OnCast", func(m extension.Member) any { return countable(m.CastHandler.OnCast("x", nil)) }, "", "an error", messages},
		{"OnPulled", func(m extension.Member) any { return m.Puller.OnPulled("", nil, nil) != nil }, false, true, itsOutcome},
		{"OnCall", func(m extension.Member) any { m.Caller.OnCall(greet{}, nil, nil); return nil }, nil, nil, itsOutcome},
		{"OnForwarding", func(m extension.Member) any { m.Forwarder.OnForwarding(forwarding.Outcome{}, time.Now()); return nil }, nil, nil, itsOutcome},
		{"OnService", func(m extension.Member) any { m.Server.OnService(metaproxy.State{}); return nil }, nil, nil, itsOutcome},
		{"OnPacket", func(m extension.Member) any { return answered(m.PacketHandler.OnPacket(extension.Packet{})) }, "1 answers, answered", "0 answers, failed", itsOutcome},
		{"OnAnswer", func(m extension.Member) any { return answered(m.Asker.OnAnswer(resolver.Answer{}, nil)) }, "1 answers, answered", "0 answers, failed", itsOutcome},
		{"Records", func(m extension.Member) any { return len(m.Recorder.Records()) }, 1, 0, itsOutcome},
		{"Asks", func(m extension.Member) any { return len(m.Asker.Asks()) }, 2, 0, itsOutcome},
		{"Warnings", func(m extension.Member) any { return len(m.Warner.Warnings()) }, 1, 0, itsOutcome},
		{"AddState", func(m extension.Member) any {
			var c neutron.Configurations
			m.StateReporter.AddState(&c)
			return c.InDistributedMode
		}, true, false, itsOutcome},
		{"Save", func(m extension.Member) any { return m.Saver.Save() }, "saved", "saved", itsOutcome}, // the last one
		{"Load", func(m extension.Member) any { return m.Saver.Load(nil) != nil }, false, true, itsOutcome},
		{"Explain", func(m extension.Member) any { return len(m.Explainer.Explain(nil)) }, 1, 0, itsOutcome},
	} {
		a, x, m := guardedWhole(t)
		held := func() string {
			var out []string
			for _, h := range a.contained.quarantined() {
				out = append(out, h.Object+": "+h.Effect)
			}
			return strings.Join(out, "; ")
		}
		if got := c.call(m); got != c.want || !slices.Equal(x.said, []string{c.method}) || held() != "" {
			t.Errorf("%s: %v, want %v; called %q, held %q", c.method, got, c.want, x.said, held())
		}
		x.panics, a.wakeAt = c.method, time.Time{}
		if got := c.call(m); got != c.failed || a.contained.panics != 1 || a.wakeAt.IsZero() {
			t.Errorf("%s, which panics: %v, want %v; %d panics, wakes at %v", c.method, got, c.failed, a.contained.panics, a.wakeAt)
		}
		want := map[int]string{
			itsOutcome: "extension whole, " + c.method + ": it is tried again", messages: "extension whole, " + c.method + ": what it missed is asked for",
			whatItKnows: "extension whole: its part of every object stays as it was",
		}[c.costs]
		owes := m.Extension.(*guarded).owes
		if held() != want || owes != (c.costs == whatItKnows) || a.resyncing.at.IsZero() != (c.costs != messages) || (len(a.contained.names()) > 0) != owes {
			t.Errorf("%s: held %q, want %q; owes %v, everything is checked at %v", c.method, held(), want, owes, a.resyncing.at)
		}
		x.panics, x.said = "", nil
		a.contained.round++
		again := c.call(m)
		if owes {
			if again != c.failed || len(x.said) != 0 {
				t.Errorf("%s: an extension that has to work out everything again is called: %q", c.method, x.said)
			}
			continue
		}
		if again != c.want || len(x.said) != 1 || c.costs == itsOutcome && held() != "" {
			t.Errorf("%s, later: %v, called %q, held %q", c.method, again, x.said, held())
		}
	}
}

// TestAnExtensionIsToldAgain: one that failed to work something out is told nothing until it is time; then it gets all rows, works out everything, and what it
// was not told is asked for.
func TestAnExtensionIsToldAgain(t *testing.T) {
	a, x, m := guardedWhole(t)
	g := m.Extension.(*guarded)
	other := world.PortObject("other")
	x.panics = "Resolve"
	if got := m.Resolve([]world.Object{other}); len(got) != 0 || !g.owes || !g.missed[other] {
		t.Errorf("%v, owes %v, missed %v", got, g.owes, g.missed)
	}
	x.panics, x.said = "", nil
	for name, call := range map[string]func() any{
		"OnPush": func() any { return m.PushHandler.OnPush(&neutron.Push{}) }, "OnCast": func() any { return m.CastHandler.OnCast("x", nil) }, "OnPulled": func() any { return m.Puller.OnPulled("", nil, nil) },
		"OnCall": func() any { m.Caller.OnCall(greet{}, nil, nil); return nil }, "Resolve": func() any { m.Resolve([]world.Object{world.PortObject("late")}); return nil },
	} {
		if got := call(); got != nil || len(x.said) != 0 {
			t.Errorf("%s: %v, called %q", name, got, x.said)
		}
	}
	if a.wakeAt = (time.Time{}); g.retry() || a.wakeAt.IsZero() {
		t.Error("tried again too early, or nobody wakes up")
	}
	a.turn.at = a.contained.retries[g.whole()].At
	a.contained.round++
	if !g.retry() || g.owes || !slices.Equal(x.said, []string{"OnRows"}) || a.resyncing.at.IsZero() {
		t.Errorf("owes %v, called %q, checked at %v", g.owes, x.said, a.resyncing.at)
	}
	if g.retry() {
		t.Error("tried again without a reason")
	}
	fresh := world.PortObject("fresh")
	got := m.Resolve([]world.Object{fresh})
	for _, o := range append(a.world.Objects(), other, world.PortObject("late"), fresh) {
		if !slices.Contains(x.changed, o) {
			t.Errorf("it is not told of %v: %v", o, x.changed)
		}
	}
	for _, o := range []world.Object{other, world.PortObject("late"), world.PortObject("p")} {
		if !slices.Contains(got, o) {
			t.Errorf("%v is not compiled again: %v", o, got)
		}
	}
	if len(g.missed) != 0 || len(a.contained.quarantined()) != 0 {
		t.Errorf("missed %v, held %v", g.missed, a.contained.quarantined())
	}
	if got := m.Resolve([]world.Object{fresh}); len(got) != 1 || !slices.Equal(x.changed, []world.Object{fresh}) {
		t.Errorf("compiled again for ever: %v, told of %v", got, x.changed)
	}
}

// TestErrorsOfMessages: an error of an extension about a message is told, and everything is asked for; one about an answer is told.
func TestErrorsOfMessages(t *testing.T) {
	for method, asks := range map[string]bool{"OnPush": true, "OnCast": true, "OnPulled": false, "Load": false} {
		a, x, m := guardedWhole(t)
		x.err = errors.New("unreadable")
		err := map[string]func() error{
			"OnPush": func() error { return m.PushHandler.OnPush(&neutron.Push{}) }, "OnCast": func() error { return m.CastHandler.OnCast("x", nil) },
			"OnPulled": func() error { return m.Puller.OnPulled("", nil, nil) }, "Load": func() error { return m.Saver.Load(nil) },
		}[method]()
		if err == nil || err.Error() != "unreadable" || a.resyncing.at.IsZero() == asks || a.contained.panics != 0 || m.Extension.(*guarded).owes {
			t.Errorf("%s: %v, checked at %v", method, err, a.resyncing.at)
		}
		if held := a.contained.quarantined(); (len(held) == 1) != asks {
			t.Errorf("%s: held %+v", method, held)
		}
	}
}

// TestExtensionsAreTended: each is told that its deadline has passed, the log has its warnings, and the loop goes round at its deadline, whatever the ones before it are.
func TestExtensionsAreTended(t *testing.T) {
	a, x, m := guardedWhole(t)
	var log logBuffer
	a.log.Logger = slog.New(slog.NewTextHandler(&log, nil))
	a.extensions.Set = extension.Set{guard(extension.NewMember(&refusing{}), &a.contained, &a.resyncing), m}
	tends := func(now time.Time) (called bool, wake time.Time) {
		a.wakeAt, x.said = time.Time{}, nil
		a.turn.begin(now)
		called = a.extensions.onTime()
		a.extensions.tend(false)
		return called, a.wakeAt
	}
	at := time.Unix(5, 0) // its deadline
	if called, wake := tends(at.Add(-time.Second)); called || !wake.Equal(at) || !slices.Equal(x.said, []string{"Deadline", "Warnings", "Deadline"}) {
		t.Errorf("before its deadline: %v, wakes at %v, called %q", called, wake, x.said)
	}
	for _, late := range []time.Duration{0, time.Hour} {
		now := at.Add(late)
		if called, wake := tends(now); !called || !wake.Equal(now.Add(minTimer)) || !slices.Equal(x.said, []string{"Deadline", "OnTime", "Warnings", "Deadline"}) {
			t.Errorf("%v after its deadline: %v, wakes at %v, called %q", late, called, wake, x.said)
		}
	}
	if n := strings.Count(log.String(), "warning=sentence"); n != 2 { // an hour apart
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	x.panics = "Deadline"
	if called, wake := tends(at); called || !wake.Equal(a.contained.retries[culprit{name: "extension whole"}].At) {
		t.Errorf("without a deadline: %v, wakes at %v", called, wake)
	}
}

// TestConstantsOfAnExtension reach whoever asks.
func TestConstantsOfAnExtension(t *testing.T) {
	_, _, m := guardedWhole(t)
	if got := fmt.Sprintln(m.Name(), m.PushHandler.Kinds(), m.CastHandler.Topics(), m.Forwarder.Devices(), m.Bounded.PacketBound()); got != "whole [Log] [topic] [ens1] {7 3}\n" {
		t.Error(got)
	}
}

// partial is an extension whose part of an object a test says.
type partial struct {
	idle
	part func(want *pipeline.Want)
}

func (*partial) Name() string { return "partial" }

func (p *partial) Compile(_ world.Object, want *pipeline.Want) { p.part(want) }

// TestPartsOfAnObject: what an extension made of an object stays while it fails on it: what it added, took out and replaced, and what it waits for. It goes when
// the extension wants nothing any more, and when the object is another.
func TestPartsOfAnObject(t *testing.T) {
	a := obeying(t, nil)
	x := &partial{}
	m := guard(extension.NewMember(x), &a.contained, &a.resyncing)
	flow := func(priority uint16, cookie uint64) pipeline.Flow {
		f := openflow.Flow{Table: 9, Priority: priority, Cookie: cookie}
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		return pipeline.Flow{Bridge: "br-int", Entry: e}
	}
	// The core wants flows 1 to 3 and one row, one row afterwards and one meter of its own.
	core := func(flows ...pipeline.Flow) pipeline.Want {
		return pipeline.Want{Flows: flows, Rows: []ovsdb.Spec{ovsdb.When{}}, After: []ovsdb.Spec{ovsdb.When{}}, Meters: make([]pipeline.Meter, 1)}
	}
	compile := func(o world.Object, want pipeline.Want) pipeline.Want {
		a.contained.round++
		m.Compile(o, &want)
		return want
	}
	check := func(what string, got pipeline.Want, flows []pipeline.Flow, more int, waiting string) {
		t.Helper()
		if !slices.Equal(got.Flows, flows) || len(got.Rows) != 1+more || len(got.After) != 1+more || len(got.Meters) != 1+more || got.Waiting != waiting || got.Err != nil {
			t.Errorf("%s: %+v, want the flows %+v, and %d more rows", what, got, flows, more)
		}
	}
	makes := func(want *pipeline.Want) {
		want.Flows = slices.DeleteFunc(want.Flows, func(f pipeline.Flow) bool { return f.Entry.Priority() == 2 })
		for i, f := range want.Flows {
			if f.Entry.Priority() == 3 {
				want.Flows[i] = flow(3, 77) // in its place
			}
		}
		want.Flows = append(want.Flows, flow(4, 77))
		want.Rows, want.After = append(want.Rows, ovsdb.When{}), append(want.After, ovsdb.When{})
		want.Meters = append(want.Meters, pipeline.Meter{})
		want.Waiting = "for something"
	}
	fails := func(want *pipeline.Want) {
		for i := range want.Flows {
			want.Flows[i] = flow(99, 99)
		}
		want.Flows, want.Rows, want.Waiting = nil, nil, "half-way"
		panic("injected")
	}
	held := func() string {
		all := a.contained.quarantined()
		if len(all) != 1 {
			return fmt.Sprintf("%d are held", len(all))
		}
		return all[0].Effect
	}
	for _, o := range []world.Object{port("p0"), world.BridgeObject("br-int")} {
		x.part = fails
		check("one that never succeeded", compile(o, core(flow(1, 1), flow(2, 1))), []pipeline.Flow{flow(1, 1), flow(2, 1)}, 0, "")
		if held() != "its part is left out" {
			t.Errorf("%v: %s", o, held())
		}
		x.part = makes
		mine := []pipeline.Flow{flow(3, 77), flow(4, 77)}
		check("made", compile(o, core(flow(1, 1), flow(2, 1), flow(3, 1))), append([]pipeline.Flow{flow(1, 1)}, mine...), 1, "for something")
		x.part = fails
		check("fails", compile(o, core(flow(1, 1), flow(2, 1), flow(3, 1))), append([]pipeline.Flow{flow(1, 1)}, mine...), 1, "for something")
		check("fails, and the core wants others", compile(o, core(flow(5, 1), flow(3, 1), flow(2, 1))), append([]pipeline.Flow{flow(5, 1)}, mine...), 1, "for something")
		if held() != "its last part stays" {
			t.Errorf("%v: %s", o, held())
		}
		m.Extension.(*guarded).owes = true
		check("is left alone", compile(o, core(flow(1, 1))), append([]pipeline.Flow{flow(1, 1)}, mine...), 1, "for something")
		m.Extension.(*guarded).owes = false
		x.part = func(*pipeline.Want) {}
		if check("wants nothing", compile(o, core(flow(1, 1))), []pipeline.Flow{flow(1, 1)}, 0, ""); len(a.contained.quarantined()) != 0 {
			t.Errorf("%v: held %+v", o, a.contained.quarantined())
		}
		x.part = fails
		check("wanted nothing, and fails", compile(o, core(flow(1, 1))), []pipeline.Flow{flow(1, 1)}, 0, "")
		for name, part := range map[string]func(want *pipeline.Want){
			"a flow more": func(want *pipeline.Want) { want.Flows = append(want.Flows, flow(4, 77)) }, "a flow less": func(want *pipeline.Want) { want.Flows = nil },
			"a row": func(want *pipeline.Want) { want.Rows = append(want.Rows, ovsdb.When{}) }, "a row afterwards": func(want *pipeline.Want) { want.After = append(want.After, ovsdb.When{}) },
			"a flow for another":          func(want *pipeline.Want) { want.Flows = []pipeline.Flow{flow(4, 77)} },
			"a flow and a row":            func(want *pipeline.Want) { want.Flows, want.Rows = nil, append(want.Rows, ovsdb.When{}) },
			"a flow and a row afterwards": func(want *pipeline.Want) { want.Flows, want.After = nil, append(want.After, ovsdb.When{}) },
			"a flow and a meter":          func(want *pipeline.Want) { want.Flows, want.Meters = nil, append(want.Meters, pipeline.Meter{}) },
			"a meter":                     func(want *pipeline.Want) { want.Meters = append(want.Meters, pipeline.Meter{}) }, "a reason to wait": func(want *pipeline.Want) { want.Waiting = "x" },
		} {
			x.part = part
			before := compile(o, core(flow(1, 1)))
			x.part = fails
			after := compile(o, core(flow(1, 1)))
			if !slices.Equal(after.Flows, before.Flows) || len(after.Rows) != len(before.Rows) || len(after.After) != len(before.After) || len(after.Meters) != len(before.Meters) || after.Waiting != before.Waiting {
				t.Errorf("%v, %s: %+v, was %+v", o, name, after, before)
			}
		}
		x.part = func(*pipeline.Want) {}
		compile(o, core())
	}
	// Another interface: what was made for the first is of no use, also when the first is back.
	o, p := port("p0"), a.world.Port("p0")
	x.part = makes
	compile(o, core())
	was := *p.VIF
	x.part = fails
	p.VIF.OFPort += 70
	check("of another place", compile(o, core(flow(1, 1))), []pipeline.Flow{flow(1, 1)}, 0, "")
	*p.VIF = was
	check("of its place again", compile(o, core(flow(1, 1))), []pipeline.Flow{flow(1, 1)}, 0, "")
	// An object that is gone.
	x.part = makes
	gone := port("gone")
	compile(gone, core())
	x.part = fails
	check("gone", compile(gone, core(flow(1, 1))), []pipeline.Flow{flow(1, 1)}, 0, "")
}
