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

// containment is what is held. It is owned by the loop.
type containment struct {
	held    map[culprit]*held
	retries pace.Backoff[culprit]
	turn    uint64                // of the loop, to tell a failure from one of before
	places  map[string]place      // of ports, as when they were last compiled
	probe   func(where string)    // for tests: called at the beginning and the end of what is contained
	rows    map[world.Object]bool // objects whose rows could not be worked out
}

func newContainment(probe func(string)) containment {
	return containment{probe: probe, held: map[culprit]*held{}, retries: pace.Backoff[culprit]{}, places: map[string]place{}, rows: map[world.Object]bool{}}
}

// culprit is what something failed on: an object, an extension's part of one, or anything else by its name.
type culprit struct {
	object world.Object
	name   string
}

func (c culprit) compare(d culprit) int {
	return cmp.Or(c.object.Compare(d.object), cmp.Compare(c.name, d.name))
}

func (c culprit) String() string {
	switch {
	case c.object.Kind == 0:
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
	turn   uint64
	blind  bool // nothing is known of what it wants
	// passing: what it was about is over, such as an event; it is named for a while.
	passing bool
}

// try runs work of the loop about something, and takes a panic of it. It returns the work's error, or the panic.
func (a *Core) try(c culprit, work func() error) error {
	var where string
	if a.contained.probe != nil {
		where = c.String()
	}
	err := effect.Try(a.contained.probe, where, work)
	a.tally(c, err)
	return err
}

// contain is try for work that returns nothing; done says that it came to its end, and the culprit is let go.
func (a *Core) contain(c culprit, work func()) (done bool) {
	err := a.try(c, func() error { work(); return nil })
	if err != nil {
		a.hold(c, err, "").passing = c.object.Kind == 0
		return false
	}
	a.letGo(c)
	return true
}

// mend is contain for what makes up for a failure.
func (a *Core) mend(what string, work func()) (done bool) {
	c := culprit{name: what}
	err := effect.Try(nil, what, func() error { work(); return nil })
	if err != nil {
		a.tally(c, err)
		a.hold(c, err, "").passing = true
	}
	return err == nil
}

// tally counts a panic and writes down where it came from.
func (a *Core) tally(c culprit, err error) {
	var p *effect.Panic
	if errors.As(err, &p) {
		a.counts(c, fmt.Sprint(p.Value), p.Where)
	}
}

// unreadable counts panics in decoding, which cost the object that was decoded, among what could not be read.
func (a *Core) unreadable(what string, err error) {
	var p *neutron.DecodePanic
	if errors.As(err, &p) {
		a.counts(culprit{name: what}, fmt.Sprint(p.Value), "decoding "+string(p.Kind))
	}
}

func (a *Core) counts(c culprit, value, where string) {
	a.seen.totals.Panics++
	a.log.repeat(slog.LevelError, "panic recovered, report it", "object", c.String(), "panic", value, "where", where)
}

// hold takes that something failed. It is tried again after a pause.
func (a *Core) hold(c culprit, err error, effect string) *held {
	now := a.turn.now()
	h := a.contained.held[c]
	if h == nil {
		h = &held{since: now}
		a.contained.held[c] = h
	}
	if h.effect != shutOut { // which it stays
		h.effect = effect
	}
	h.failed++
	h.reason, h.turn = err.Error(), a.contained.turn
	a.contained.retries.Fail(c, now)
	a.turn.wakeUp(a.contained.retries[c].At)
	return h
}

// letGo takes that something has succeeded that had failed.
func (a *Core) letGo(c culprit) {
	h := a.contained.held[c]
	if h == nil || h.turn == a.contained.turn {
		return // it failed in another way a moment ago
	}
	delete(a.contained.held, c) // its pauses are remembered for a while: it may fail every other time
	a.log.Info("object left quarantine", "object", c.String(), "failed", h.failed, "after", a.turn.now().Sub(h.since))
}

// holds says whether what an object wants could not be worked out.
func (a *Core) holds(o world.Object) bool {
	return a.contained.held[culprit{object: o}] != nil || a.contained.rows[o]
}

// inWorld contains what the world works out. A port is let go when it is compiled, too.
func (a *Core) inWorld(o world.Object, work func()) bool {
	c := culprit{object: o}
	switch o.Kind {
	case 0:
		if o.ID != "" {
			return a.mend("holding port "+o.ID, work)
		}
		return a.contain(culprit{name: "taking news"}, work)
	case world.KindGroup:
		return a.contain(c, work)
	}
	err := a.try(c, func() error { work(); return nil })
	if err != nil {
		a.hold(c, err, asItWas)
	}
	return err == nil
}

// What becomes of what is held.
const (
	asItWas     = "its last flows and rows stay"
	shutOut     = "nothing passes"
	nothingOfIt = "it has no flows"
)

// inRows contains finding out which rows of an object have to change.
func (a *Core) inRows(o world.Object, work func()) bool {
	c := culprit{o, "its rows"}
	if err := a.try(c, func() error { work(); return nil }); err != nil {
		a.hold(c, err, "its rows stay as they are")
		a.contained.rows[o] = true
		return false
	}
	if a.contained.rows[o] {
		delete(a.contained.rows, o)
		a.letGo(c)
		if o.Kind == world.KindPort {
			a.reports.Changed(o.ID)
		}
	}
	return true
}

// stillUnsettled has the rows tried again that could not be worked out.
func (a *Core) stillUnsettled() {
	for o := range a.contained.rows {
		if !a.dataplane.RetryRows(o) {
			delete(a.contained.rows, o)
			delete(a.contained.held, culprit{o, "its rows"})
		}
	}
}

// peace is how long something has to succeed for its failures to be forgotten.
const peace = time.Minute

// retryHeld tries again what is due: objects are worked out and compiled again. What else is held is tried whenever it comes up, and
// what is over and did not fail again is let go.
func (a *Core) retryHeld() {
	now := a.turn.now()
	for c, r := range a.contained.retries {
		if a.contained.held[c] == nil && now.Sub(r.At) > peace {
			a.contained.retries.Forget(c)
		}
	}
	for _, c := range slices.SortedFunc(maps.Keys(a.contained.held), culprit.compare) {
		h := a.contained.held[c]
		switch at := a.contained.retries[c].At; {
		case now.Before(at):
			a.turn.wakeUp(at)
		case h.passing && now.Before(at.Add(peace)):
			a.turn.wakeUp(at.Add(peace))
		case h.passing:
			a.letGo(c)
		case c.object.Kind != 0:
			a.world.Again(c.object)
			a.contained.retries[c] = pace.Attempt{Failed: h.failed, At: now.Add(pace.Longest)} // until the outcome is known
		}
	}
}

// quarantined lists what is held, for people.
func (a *Core) quarantined() []inspect.Held {
	out := make([]inspect.Held, 0, len(a.contained.held))
	for c, h := range a.contained.held {
		out = append(out, inspect.Held{
			Object: inspect.Printable(c.String()), Reason: inspect.Printable(h.reason), Effect: h.effect, Since: h.since, Failed: h.failed, Next: a.contained.retries[c].At,
		})
	}
	slices.SortFunc(out, func(x, y inspect.Held) int { return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Object, y.Object)) })
	return out
}

// place is where and as what a port was compiled. Flows of another place are no use to it, and a danger to others.
type place struct {
	vif               world.VIF
	wiring            world.Wiring
	filtered, trusted bool
}

func (a *Core) placeOf(o world.Object) place {
	p := a.world.Port(o.ID)
	if o.Kind != world.KindPort || p == nil || p.VIF == nil {
		return place{}
	}
	at := place{vif: *p.VIF, wiring: p.Wiring, filtered: a.world.Filtered(p), trusted: a.world.Trusted(p)}
	at.wiring.Reason, at.vif.Error = "", ""
	return at
}

// fallback is what an object wants whose compile failed. With an error it wants what it wanted before.
func (a *Core) fallback(c culprit, err error, at place) pipeline.Want {
	o := c.object
	switch {
	case a.gone(o):
		a.hold(c, err, nothingOfIt)
		return pipeline.Want{}
	case o.Kind != world.KindPort:
		a.hold(c, err, asItWas).blind = !a.dataplane.Wants(o)
		return pipeline.Want{Err: err}
	}
	if before, ok := a.contained.places[o.ID]; ok && before == at {
		a.hold(c, err, asItWas)
		return pipeline.Want{Err: err}
	}
	a.hold(c, err, shutOut)
	return pipeline.Shut(a.world, o.ID, "what the port wants cannot be worked out")
}

// gone says whether an object is not there any more: nothing is wanted of it, whatever fails.
func (a *Core) gone(o world.Object) bool {
	key, ok := world.SegmentKey{}, false
	switch o.Kind {
	case world.KindPort:
		return a.world.Port(o.ID) == nil
	case world.KindSegment:
		key, ok = world.ParseSegmentKey(o.ID)
	case world.KindStation:
		key, _, ok = world.ParseStation(o.ID)
	case world.KindPeer:
		key, _, ok = world.ParsePeer(o.ID)
	}
	return ok && a.world.Segments.Get(key) == nil
}
