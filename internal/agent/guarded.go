// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// guarded is an extension whose panics cost no more than what they are about. What a failed call leaves to be done depends on it:
//
//   - Compile: the extension's last part of the object stays, see part.
//   - Push, Cast, also if they return an error: news are lost, so everything is asked for again, as after a gap.
//   - Answer, Done: what was asked for is still missing, and is asked for again.
//   - Rows, Settle, Doubt, Missing, Due: what it has worked out may be wrong. It is left alone, with its last part of every object in
//     force, until it has heard all rows and worked out everything again; and what it did not hear meanwhile is asked for.
type guarded struct {
	extension.Extension
	a *Agent

	owes   bool // everything is to be worked out again
	missed map[world.Object]bool
	parts  map[world.Object]part
	flows  []pipeline.Flow // before Compile; kept for the next one
	memory any             // remembered last
}

func (a *Agent) guard(e extension.Extension) *guarded {
	return &guarded{Extension: e, a: a, missed: map[world.Object]bool{}, parts: map[world.Object]part{}}
}

// culprit is a method of the extension.
func (g *guarded) culprit(method string) culprit {
	return culprit{name: "extension " + g.Name() + ", " + method}
}

// whole is the extension itself.
func (g *guarded) whole() culprit { return culprit{name: "extension " + g.Name()} }

// knows runs a method on whose outcome everything else of the extension depends.
func (g *guarded) knows(method string, work func()) {
	if g.owes {
		return
	}
	if err := g.a.try(g.culprit(method), func() error { work(); return nil }); err != nil {
		g.owes = true
		g.a.hold(g.whole(), fmt.Errorf("%s: %w", method, err), "its part of every object stays as it was")
	}
}

// repair has extensions work out everything again that have failed to, when it is time.
func (x *extensions) repair() {
	for i, e := range x.Set {
		g, ok := e.(*guarded)
		if !ok || !g.owes {
			continue
		}
		if now := time.Now(); g.a.contained.retries.waiting(g.whole(), now) {
			g.a.wakeUp(g.a.contained.retries[g.whole()].at)
			continue
		}
		g.owes = false
		g.miss(g.a.world.Objects())
		g.Rows(ovsdb.Whole(g.a.world.View))
		g.a.missed()
		for e := range x.running {
			x.running[e] = x.running[e] && e.extension != i // what was asked before counts no more
		}
	}
}

// owing says whether an extension does not know what it should.
func (x *extensions) owing() bool {
	return slices.ContainsFunc(x.Set, func(e extension.Extension) bool {
		g, ok := e.(*guarded)
		return ok && g.owes
	})
}

// Settle implements extension.Extension.
func (g *guarded) Settle(changed []world.Object) []world.Object {
	if g.owes {
		g.miss(changed)
		return nil
	}
	if len(g.missed) > 0 {
		g.miss(changed)
		changed = slices.SortedFunc(maps.Keys(g.missed), world.Object.Compare)
	}
	var out []world.Object
	if g.knows("Settle", func() { out = g.Extension.Settle(changed) }); g.owes {
		g.miss(changed)
		return nil
	}
	out = slices.AppendSeq(out, maps.Keys(g.missed)) // compiled without it meanwhile
	clear(g.missed)
	g.a.letGo(g.whole())
	return out
}

func (g *guarded) miss(objects []world.Object) {
	for _, o := range objects {
		g.missed[o] = true
	}
}

// Rows implements extension.Extension.
func (g *guarded) Rows(b *ovsdb.Batch) { g.knows("Rows", func() { g.Extension.Rows(b) }) }

// Doubt implements extension.Extension.
func (g *guarded) Doubt() { g.knows("Doubt", g.Extension.Doubt) }

// Missing implements extension.Extension.
func (g *guarded) Missing() (out []extension.Item) {
	g.knows("Missing", func() { out = g.Extension.Missing() })
	return out
}

// Due implements extension.Extension.
func (g *guarded) Due() (out []extension.Task) {
	g.knows("Due", func() { out = g.Extension.Due() })
	return out
}

// hears runs a method that takes news. Those that are lost are asked for.
func (g *guarded) hears(method string, work func() error) error {
	if g.owes {
		return nil // everything is asked for then
	}
	err := g.a.try(g.culprit(method), work)
	if err != nil {
		g.a.hold(g.culprit(method), err, "what it missed is asked for").passing = true
		g.a.missed()
		err = errors.New(err.Error()) // a panic is counted once
	}
	return err
}

// Push implements extension.Extension.
func (g *guarded) Push(p *neutron.Push) error {
	return g.hears("Push", func() error { return g.Extension.Push(p) })
}

// Cast implements extension.Extension.
func (g *guarded) Cast(method string, args []byte) error {
	return g.hears("Cast", func() error { return g.Extension.Cast(method, args) })
}

// does runs a method whose failure leaves nothing to be done but to run it again when it comes up.
func (g *guarded) does(method string, work func() error) error {
	c := g.culprit(method)
	err := g.a.try(c, work)
	var p *panicked
	if errors.As(err, &p) {
		g.a.hold(c, err, "it is tried again").passing = true
	} else {
		g.a.letGo(c)
	}
	return err
}

// Answer implements extension.Extension.
func (g *guarded) Answer(kind neutron.Kind, asked []string, found []neutron.Primitive) error {
	if g.owes {
		return nil
	}
	return g.does("Answer", func() error { return g.Extension.Answer(kind, asked, found) })
}

// Done implements extension.Extension.
func (g *guarded) Done(id string, result any, err error) {
	if !g.owes {
		_ = g.does("Done", func() error { g.Extension.Done(id, result, err); return nil })
	}
}

// Packet implements extension.Extension.
func (g *guarded) Packet(bridge string, p *openflow.PacketIn) (out []openflow.Message) {
	_ = g.does("Packet", func() error { out = g.Extension.Packet(bridge, p); return nil })
	return out
}

// Report implements extension.Extension.
func (g *guarded) Report(c *neutron.Configurations) {
	_ = g.does("Report", func() error { g.Extension.Report(c); return nil })
}

// Remember implements extension.Extension. What was remembered last is better than nothing.
func (g *guarded) Remember() any {
	_ = g.does("Remember", func() error { g.memory = g.Extension.Remember(); return nil })
	return g.memory
}

// Recall implements extension.Extension.
func (g *guarded) Recall(data json.RawMessage) error {
	return g.does("Recall", func() error { return g.Extension.Recall(data) })
}

// Explain implements extension.Extension.
func (g *guarded) Explain(o world.Object) (out []string) {
	_ = g.does("Explain", func() error { out = g.Extension.Explain(o); return nil })
	return out
}

// part is what an extension has made of an object: what it added to what the others want, and which of their flows it took out. It stays
// in force while the extension fails on the object, and what the others want of it goes on to change: an update of filters does not
// wait for a limit of bandwidth.
type part struct {
	at      place
	flows   []pipeline.Flow
	without []flowKey
	rows    []pipeline.Row
	after   []pipeline.Row
	meters  []pipeline.Meter
	waiting string
}

type flowKey struct {
	bridge string
	key    openflow.Key
}

func keyOf(f pipeline.Flow) flowKey { return flowKey{f.Bridge, f.Entry.Key()} }

// Compile implements extension.Extension.
func (g *guarded) Compile(o world.Object, want *pipeline.Want) {
	before := *want
	g.flows = append(g.flows[:0], want.Flows...)
	c := culprit{o, "extension " + g.Name()}
	err := error(nil)
	if !g.owes {
		err = g.a.try(c, func() error { g.Extension.Compile(o, want); return want.Err })
		if err == nil {
			g.keep(o, before, want)
			g.a.letGo(c)
			return
		}
		g.a.repeats.log(g.a.log, slog.LevelError, "an extension cannot express its part of an object, the last one stays", "extension", g.Name(), "object", o.String(), "err", err)
	}
	*want = before
	want.Flows = slices.Clone(g.flows)
	kept, ok := g.parts[o]
	if ok = ok && kept.at == g.a.placeOf(o) && !g.a.gone(o); ok {
		kept.add(want)
	} else {
		delete(g.parts, o)
	}
	if err != nil {
		g.a.hold(c, err, map[bool]string{true: "its last part stays", false: "its part is left out"}[ok])
	}
}

// keep takes down what the extension has made of an object.
func (g *guarded) keep(o world.Object, before pipeline.Want, want *pipeline.Want) {
	p := part{
		at: g.a.placeOf(o), rows: slices.Clone(want.Rows[min(len(before.Rows), len(want.Rows)):]),
		after: slices.Clone(want.After[min(len(before.After), len(want.After)):]), meters: slices.Clone(want.Meters[min(len(before.Meters), len(want.Meters)):]),
	}
	if want.Waiting != before.Waiting {
		p.waiting = want.Waiting
	}
	if !slices.Equal(g.flows, want.Flows) {
		had, has := map[flowKey]pipeline.Flow{}, map[flowKey]bool{}
		for _, f := range g.flows {
			had[keyOf(f)] = f
		}
		for _, f := range want.Flows {
			if k := keyOf(f); had[k] != f {
				p.flows = append(p.flows, f)
			} else {
				has[k] = true
			}
		}
		for k := range had {
			if !has[k] {
				p.without = append(p.without, k)
			}
		}
	}
	if len(p.flows)+len(p.without)+len(p.rows)+len(p.after)+len(p.meters) == 0 && p.waiting == "" {
		delete(g.parts, o)
	} else {
		g.parts[o] = p
	}
}

// add adds the part to what the others want.
func (p *part) add(want *pipeline.Want) {
	want.Flows = slices.DeleteFunc(want.Flows, func(f pipeline.Flow) bool {
		return slices.Contains(p.without, keyOf(f)) || slices.ContainsFunc(p.flows, func(own pipeline.Flow) bool { return keyOf(own) == keyOf(f) })
	})
	want.Flows = append(want.Flows, p.flows...)
	want.Rows = append(slices.Clone(want.Rows), p.rows...)
	want.After = append(slices.Clone(want.After), p.after...)
	want.Meters = append(slices.Clone(want.Meters), p.meters...)
	if p.waiting != "" {
		want.Waiting = p.waiting
	}
}
