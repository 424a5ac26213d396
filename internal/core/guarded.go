// SPDX-License-Identifier: Apache-2.0

package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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

// guarded is an extension whose panics cost no more than what they are about. What a failed call leaves to be done depends on it:
//
//   - Compile: the extension's last part of the object stays, see part.
//   - OnPush, OnCast, also if they return an error: messages are lost, so everything is asked for again, as after a gap.
//   - OnPulled, OnCall, OnForwarding, OnService: what was asked for is still listed, and is asked for again.
//   - OnRows, Resolve, Resync, OnTime, Missing, Calls, Deadline, Forwarding, Service: what it has worked out may be wrong. It is left alone, with its last part of
//     every object in force, until it has been given all rows and worked out everything again; and what it was not told meanwhile is
//     asked for.
//
// It implements all optional interfaces; guard uses those that the extension has.
type guarded struct {
	in        extension.Member
	world     *world.World
	contained *containment
	resyncing *resyncing

	owes    bool // everything is to be worked out again
	missed  map[world.Object]bool
	parts   map[world.Object]part
	flows   []pipeline.Flow    // before Compile; kept for the next one
	saved   any                // last
	service *metaproxy.Service // last
}

// guard returns the extension with each of its interfaces guarded.
func guard(in extension.Member, k *containment, r *resyncing) extension.Member {
	g := &guarded{in: in, world: k.world, contained: k, resyncing: r, missed: map[world.Object]bool{}, parts: map[world.Object]part{}}
	out := extension.Member{Extension: g}
	guardIf(in.PushHandler != nil, &out.PushHandler, extension.PushHandler(g))
	guardIf(in.CastHandler != nil, &out.CastHandler, extension.CastHandler(g))
	guardIf(in.RowHandler != nil, &out.RowHandler, extension.RowHandler(g))
	guardIf(in.PacketHandler != nil, &out.PacketHandler, extension.PacketHandler(g))
	guardIf(in.Bounded != nil, &out.Bounded, extension.Bounded(g))
	guardIf(in.Recorder != nil, &out.Recorder, extension.Recorder(g))
	guardIf(in.Asker != nil, &out.Asker, extension.Asker(g))
	guardIf(in.Warner != nil, &out.Warner, extension.Warner(g))
	guardIf(in.Resyncer != nil, &out.Resyncer, extension.Resyncer(g))
	guardIf(in.Puller != nil, &out.Puller, extension.Puller(g))
	guardIf(in.Caller != nil, &out.Caller, extension.Caller(g))
	guardIf(in.Timed != nil, &out.Timed, extension.Timed(g))
	guardIf(in.Forwarder != nil, &out.Forwarder, extension.Forwarder(g))
	guardIf(in.Server != nil, &out.Server, extension.Server(g))
	guardIf(in.StateReporter != nil, &out.StateReporter, extension.StateReporter(g))
	guardIf(in.Saver != nil, &out.Saver, extension.Saver(g))
	guardIf(in.Explainer != nil, &out.Explainer, extension.Explainer(g))
	return out
}

func guardIf[T any](has bool, to *T, g T) {
	if has {
		*to = g
	}
}

// Name, Kinds, Topics, Devices and PacketBound are constants of the extension.
func (g *guarded) Name() string          { return g.in.Name() }
func (g *guarded) Kinds() []neutron.Kind { return g.in.PushHandler.Kinds() }
func (g *guarded) Topics() []string      { return g.in.CastHandler.Topics() }
func (g *guarded) Devices() []string     { return g.in.Forwarder.Devices() }

// PacketBound implements extension.Bounded.
func (g *guarded) PacketBound() extension.Bound { return g.in.Bounded.PacketBound() }

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
	if err := g.contained.try(g.culprit(method), func() error { work(); return nil }); err != nil {
		g.owes = true
		g.contained.hold(g.whole(), fmt.Errorf("%s: %w", method, err), "its part of every object stays as it was")
	}
}

// retry has the extension work out everything again, if it has failed to and it is time. What it was not told meanwhile is asked for.
func (g *guarded) retry() bool {
	if !g.owes || g.contained.waits(g.whole()) {
		return false
	}
	g.owes = false
	g.miss(g.world.Objects())
	if g.in.RowHandler != nil {
		g.OnRows(ovsdb.Whole(g.world.View))
	}
	g.resyncing.lost()
	return true
}

func (g *guarded) Resolve(changed []world.Object) []world.Object {
	if g.owes {
		g.miss(changed)
		return nil
	}
	if len(g.missed) > 0 {
		g.miss(changed)
		changed = world.SortedObjects(g.missed)
	}
	var out []world.Object
	if g.knows("Resolve", func() { out = g.in.Resolve(changed) }); g.owes {
		g.miss(changed)
		return nil
	}
	out = slices.AppendSeq(out, maps.Keys(g.missed)) // compiled without it meanwhile
	clear(g.missed)
	g.contained.letGo(g.whole())
	return out
}

func (g *guarded) miss(objects []world.Object) {
	for _, o := range objects {
		g.missed[o] = true
	}
}

// What follows belongs to what the extension works out.

func (g *guarded) OnRows(b *ovsdb.Batch) { g.knows("OnRows", func() { g.in.RowHandler.OnRows(b) }) }
func (g *guarded) Resync()               { g.knows("Resync", g.in.Resyncer.Resync) }
func (g *guarded) OnTime(now time.Time)  { g.knows("OnTime", func() { g.in.Timed.OnTime(now) }) }

func (g *guarded) Missing() (out []extension.Item) {
	g.knows("Missing", func() { out = g.in.Puller.Missing() })
	return out
}

func (g *guarded) Calls() (out []extension.Call) {
	g.knows("Calls", func() { out = g.in.Caller.Calls() })
	return out
}

func (g *guarded) Deadline() (at time.Time) {
	g.knows("Deadline", func() { at = g.in.Timed.Deadline() })
	return at
}

func (g *guarded) Forwarding(open func() bool) (job forwarding.Job, due bool) {
	g.knows("Forwarding", func() { job, due = g.in.Forwarder.Forwarding(open) })
	return job, due && !g.owes
}

// Service implements extension.Server. While the extension has to work out everything again, what it said last stays in force.
func (g *guarded) Service() *metaproxy.Service {
	g.knows("Service", func() { g.service = g.in.Server.Service() })
	return g.service
}

func (g *guarded) OnService(s metaproxy.State) {
	_ = g.does("OnService", func() error { g.in.Server.OnService(s); return nil })
}

// takes runs a method that takes a message. What is lost is asked for.
func (g *guarded) takes(method string, work func() error) error {
	if g.owes {
		return nil // everything is asked for then
	}
	err := g.contained.try(g.culprit(method), work)
	if err != nil {
		g.contained.hold(g.culprit(method), err, "what it missed is asked for").passing = true
		g.resyncing.lost()
		err = errors.New(err.Error()) // a panic is counted once
	}
	return err
}

func (g *guarded) OnPush(p *neutron.Push) error {
	return g.takes("OnPush", func() error { return g.in.PushHandler.OnPush(p) })
}

func (g *guarded) OnCast(method string, args []byte) error {
	return g.takes("OnCast", func() error { return g.in.CastHandler.OnCast(method, args) })
}

// does runs a method whose failure leaves nothing to be done but to run it again when it comes up.
func (g *guarded) does(method string, work func() error) error {
	c := g.culprit(method)
	err := g.contained.try(c, work)
	var p *effect.Panic
	if errors.As(err, &p) {
		g.contained.hold(c, err, "it is tried again").passing = true
	} else {
		g.contained.letGo(c)
	}
	return err
}

func (g *guarded) OnPulled(kind neutron.Kind, asked []string, found []neutron.Primitive) error {
	if g.owes {
		return nil
	}
	return g.does("OnPulled", func() error { return g.in.Puller.OnPulled(kind, asked, found) })
}

func (g *guarded) OnCall(k extension.Key, result any, err error) {
	if !g.owes {
		_ = g.does("OnCall", func() error { g.in.Caller.OnCall(k, result, err); return nil })
	}
}

func (g *guarded) OnForwarding(o forwarding.Outcome, now time.Time) {
	_ = g.does("OnForwarding", func() error { g.in.Forwarder.OnForwarding(o, now); return nil })
}

func (g *guarded) OnPacket(p extension.Packet) (answer []openflow.Message, outcome extension.Outcome) {
	if g.does("OnPacket", func() error { answer, outcome = g.in.PacketHandler.OnPacket(p); return nil }) != nil {
		return nil, extension.Failed
	}
	return answer, outcome
}

func (g *guarded) Records() (lines []string) {
	_ = g.does("Records", func() error { lines = g.in.Recorder.Records(); return nil })
	return lines
}

// Asks implements extension.Asker.
func (g *guarded) Asks() (all []resolver.Ask) {
	_ = g.does("Asks", func() error { all = g.in.Asker.Asks(); return nil })
	return all
}

// OnAnswer implements extension.Asker. Who asked asks again.
func (g *guarded) OnAnswer(a resolver.Answer, err error) (answer []openflow.Message, outcome extension.Outcome) {
	if g.does("OnAnswer", func() error { answer, outcome = g.in.Asker.OnAnswer(a, err); return nil }) != nil {
		return nil, extension.Failed
	}
	return answer, outcome
}

func (g *guarded) Warnings() (sentences []string) {
	_ = g.does("Warnings", func() error { sentences = g.in.Warner.Warnings(); return nil })
	return sentences
}

func (g *guarded) AddState(c *neutron.Configurations) {
	_ = g.does("AddState", func() error { g.in.StateReporter.AddState(c); return nil })
}

// Save implements extension.Saver. If it fails, what was saved last is better than nothing.
func (g *guarded) Save() any {
	_ = g.does("Save", func() error { g.saved = g.in.Saver.Save(); return nil })
	return g.saved
}

func (g *guarded) Load(data json.RawMessage) error {
	return g.does("Load", func() error { return g.in.Saver.Load(data) })
}

func (g *guarded) Explain(o world.Object) (out []string) {
	_ = g.does("Explain", func() error { out = g.in.Explainer.Explain(o); return nil })
	return out
}

// part is what an extension has made of an object: what it added to what the others want, and which of their flows it took out. It stays
// in force while the extension fails on the object, and what the others want of it goes on to change: an update of filters does not
// wait for a limit of bandwidth.
type part struct {
	at      place
	flows   []pipeline.Flow
	without []flowKey
	rows    []ovsdb.Spec
	after   []ovsdb.Spec
	meters  []pipeline.Meter
	waiting string
}

type flowKey struct {
	bridge string
	key    openflow.Key
}

func keyOf(f pipeline.Flow) flowKey { return flowKey{f.Bridge, f.Entry.Key()} }

func (g *guarded) Compile(o world.Object, want *pipeline.Want) {
	before := *want
	g.flows = append(g.flows[:0], want.Flows...)
	c := culprit{o, "extension " + g.Name()}
	err := error(nil)
	if !g.owes {
		err = g.contained.try(c, func() error { g.in.Compile(o, want); return want.Err })
		if err == nil {
			g.keep(o, before, want)
			g.contained.letGo(c)
			return
		}
		g.contained.log.repeat(slog.LevelError, "extension cannot compile the object, keeping its last flows", "extension", g.Name(), "object", o.String(), "err", err)
	}
	*want = before
	want.Flows = slices.Clone(g.flows)
	kept, ok := g.parts[o]
	if ok = ok && kept.at == placeOf(g.world, o) && !absent(g.world, o); ok {
		kept.add(want)
	} else {
		delete(g.parts, o)
	}
	if err != nil {
		g.contained.hold(c, err, map[bool]string{true: "its last part stays", false: "its part is left out"}[ok])
	}
}

// keep takes down what the extension has made of an object.
func (g *guarded) keep(o world.Object, before pipeline.Want, want *pipeline.Want) {
	p := part{
		at: placeOf(g.world, o), rows: slices.Clone(want.Rows[min(len(before.Rows), len(want.Rows)):]),
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
