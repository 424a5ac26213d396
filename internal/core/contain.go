// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// A panic costs what it is about: an object, an event, an extension. What it is about is held: it stays as it was, is named to people,
// and is tried again with growing pauses until it succeeds. The loop goes on.

// containment is what is held.
type containment struct {
	room
	held    map[culprit]*held
	retries pace.Backoff[culprit]
	round   uint64                // of the loop, to tell a failure from one of before
	panics  uint64                // so far
	places  map[string]place      // of ports, as when they were last compiled
	rows    map[world.Object]bool // objects whose rows could not be worked out
}

func newContainment(r room) containment {
	return containment{room: r, held: map[culprit]*held{}, retries: pace.Backoff[culprit]{}, places: map[string]place{}, rows: map[world.Object]bool{}}
}

// culprit is what something failed on: an object, an extension's part of one, or anything else by its name.
type culprit struct {
	object world.Object
	name   string
}

func (c culprit) compare(d culprit) int {
	return cmp.Or(world.CompareObjects(c.object, d.object), cmp.Compare(c.name, d.name))
}

func (c culprit) String() string {
	switch {
	case c.object == nil:
		return c.name
	case c.name != "":
		return c.object.String() + ", " + c.name
	}
	return c.object.String()
}

// held is something that failed and has not succeeded since.
type held struct {
	since  time.Time
	failed int
	reason string
	effect string // what became of it meanwhile
	round  uint64
	blind  bool // nothing is known of what it wants
	// passing: what it was about is over, such as an event; it is named for a while.
	passing bool
}

// try runs work of the loop about something, and takes a panic of it. It returns the work's error, or the panic.
func (k *containment) try(c culprit, work func() error) error {
	var where string
	if k.cfg.Probe != nil {
		where = c.String()
	}
	err := effect.Try(k.cfg.Probe, where, work)
	k.tally(c, err)
	return err
}

// contain is try for work that returns nothing; done says that it came to its end, and the culprit is let go.
func (k *containment) contain(c culprit, work func()) (done bool) {
	err := k.try(c, func() error { work(); return nil })
	if err != nil {
		k.hold(c, err, "").passing = c.object == nil
		return false
	}
	k.letGo(c)
	return true
}

// mend is contain for what makes up for a failure.
func (k *containment) mend(what string, work func()) (done bool) {
	c := culprit{name: what}
	err := effect.Try(nil, what, func() error { work(); return nil })
	if err != nil {
		k.tally(c, err)
		k.hold(c, err, "").passing = true
	}
	return err == nil
}

// tally counts a panic and writes down where it came from.
func (k *containment) tally(c culprit, err error) {
	var p *effect.Panic
	if errors.As(err, &p) {
		k.counts(c, fmt.Sprint(p.Value), p.Where)
	}
}

// unreadable counts panics in decoding, which cost the object that was decoded, among what could not be read.
func (k *containment) unreadable(what string, err error) {
	var p *neutron.DecodePanic
	if errors.As(err, &p) {
		k.counts(culprit{name: what}, fmt.Sprint(p.Value), "decoding "+string(p.Kind))
	}
}

func (k *containment) counts(c culprit, value, where string) {
	k.panics++
	k.log.repeat(slog.LevelError, "panic recovered, report it", "object", c.String(), "panic", value, "where", where)
}

// hold takes that something failed. It is tried again after a pause.
func (k *containment) hold(c culprit, err error, effect string) *held {
	now := k.now()
	h := k.held[c]
	if h == nil {
		h = &held{since: now}
		k.held[c] = h
	}
	if h.effect != shutOut { // which it stays
		h.effect = effect
	}
	h.failed++
	h.reason, h.round = err.Error(), k.round
	k.retries.Fail(c, now)
	k.wakeUp(k.retries[c].At)
	return h
}

// letGo takes that something has succeeded that had failed.
func (k *containment) letGo(c culprit) {
	h := k.held[c]
	if h == nil || h.round == k.round {
		return // it failed in another way a moment ago
	}
	delete(k.held, c) // its pauses are remembered for a while: it may fail every other time
	k.log.Info("object left quarantine", "object", c.String(), "failed", h.failed, "after", k.now().Sub(h.since))
}

// waits says whether it is too early to try something again.
func (k *containment) waits(c culprit) bool {
	waits := k.retries.Waiting(c, k.now())
	if waits {
		k.wakeUp(k.retries[c].At)
	}
	return waits
}

// holds says whether what an object wants could not be worked out.
func (k *containment) holds(o world.Object) bool {
	return k.held[culprit{object: o}] != nil || k.rows[o]
}

// blind says whether nothing is known of what something wants.
func (k *containment) blind() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(k.held)), func(h *held) bool { return h.blind })
}

// inWorld contains what the world works out. A port is let go when it is compiled, too.
func (k *containment) inWorld(o world.Object, work func()) bool {
	c := culprit{object: o}
	switch o.(type) {
	case nil:
		return k.contain(culprit{name: "taking a push"}, work)
	case world.GroupObject:
		return k.contain(c, work)
	}
	err := k.try(c, func() error { work(); return nil })
	if err != nil {
		k.hold(c, err, asItWas)
	}
	return err == nil
}

// What becomes of what is held.
const (
	asItWas     = "its last flows and rows stay"
	shutOut     = "nothing passes"
	nothingOfIt = "it has no flows"
)

// inRows contains finding out which rows of an object have to change. Mended: that had failed before.
func (k *containment) inRows(o world.Object, work func()) (done, mended bool) {
	c := culprit{o, "its rows"}
	if err := k.try(c, func() error { work(); return nil }); err != nil {
		k.hold(c, err, "its rows stay as they are")
		k.rows[o] = true
		return false, false
	}
	if mended = k.rows[o]; mended {
		delete(k.rows, o)
		k.letGo(c)
	}
	return true, mended
}

// retryRows has the rows tried again that could not be worked out; retry says whether the object still wants any.
func (k *containment) retryRows(retry func(world.Object) bool) {
	for o := range k.rows {
		if !retry(o) {
			delete(k.rows, o)
			delete(k.held, culprit{o, "its rows"})
		}
	}
}

// retryHeld tries again what is due: objects are worked out and compiled again. What else is held is tried whenever it comes up, and
// what is over and did not fail again is let go.
func (k *containment) retryHeld() {
	now := k.now()
	for c, r := range k.retries {
		if k.held[c] == nil && now.Sub(r.At) > pace.Calm {
			k.retries.Forget(c)
		}
	}
	for _, c := range slices.SortedFunc(maps.Keys(k.held), culprit.compare) {
		h := k.held[c]
		switch at := k.retries[c].At; {
		case now.Before(at):
			k.wakeUp(at)
		case h.passing && now.Before(at.Add(pace.Calm)):
			k.wakeUp(at.Add(pace.Calm))
		case h.passing:
			k.letGo(c)
		case c.object != nil:
			k.world.Again(c.object)
			k.retries[c] = pace.Attempt{Failed: h.failed, At: now.Add(pace.Longest)} // until the outcome is known
		}
	}
}

// quarantined lists what is held, for people.
func (k *containment) quarantined() []inspect.Held {
	out := make([]inspect.Held, 0, len(k.held))
	for c, h := range k.held {
		out = append(out, inspect.Held{
			Object: inspect.Printable(c.String()), Reason: inspect.Printable(h.reason), Effect: h.effect, Since: h.since, Failed: h.failed, Next: k.retries[c].At,
		})
	}
	slices.SortFunc(out, func(x, y inspect.Held) int { return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Object, y.Object)) })
	return out
}

// names lists what failed and is tried again, sorted.
func (k *containment) names() (out []string) {
	for c, h := range k.held {
		if !h.passing {
			out = append(out, c.String())
		}
	}
	slices.Sort(out)
	return out
}

// place is where and as what a port was compiled. Flows of another place are no use to it, and a danger to others.
type place struct {
	vif               world.VIF
	wiring            world.Wiring
	filtered, trusted bool
}

func placeOf(w *world.World, o world.Object) place {
	id, ok := world.PortID(o)
	if !ok {
		return place{}
	}
	p := w.Port(id)
	if p == nil || p.VIF == nil {
		return place{}
	}
	at := place{vif: *p.VIF, wiring: p.Wiring, filtered: w.Filtered(p), trusted: w.Trusted(p)}
	at.wiring.Reason, at.vif.Error = "", ""
	return at
}

// fallback is what an object wants whose compile failed. With an error it wants what it wanted before, if it wanted anything.
func (k *containment) fallback(o world.Object, err error, at place, wanted bool) pipeline.Want {
	c := culprit{object: o}
	id, isPort := world.PortID(o)
	switch {
	case absent(k.world, o):
		k.hold(c, err, nothingOfIt)
		return pipeline.Want{}
	case !isPort:
		k.hold(c, err, asItWas).blind = !wanted
		return pipeline.Want{Err: err}
	}
	if before, ok := k.places[id]; ok && before == at {
		k.hold(c, err, asItWas)
		return pipeline.Want{Err: err}
	}
	k.hold(c, err, shutOut)
	return pipeline.Shut(k.world, id, "what the port wants cannot be worked out")
}

// compiled takes where a port was compiled.
func (k *containment) compiled(o world.Object, at place) {
	if id, ok := world.PortID(o); ok {
		if k.places[id] = at; at == (place{}) {
			delete(k.places, id)
		}
	}
}

// absent says whether an object is not there any more: nothing is wanted of it, whatever fails.
func absent(w *world.World, o world.Object) bool {
	switch o := o.(type) {
	case world.PortObject:
		return w.Port(string(o)) == nil
	case world.SegmentObject:
		return w.Segments.Get(world.SegmentKey(o)) == nil
	case world.StationObject:
		return w.Segments.Get(o.Segment) == nil
	case world.PeerObject:
		return w.Segments.Get(o.Segment) == nil
	}
	return false
}
