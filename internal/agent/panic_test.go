// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

var panics = flag.Int("panics", 60, "panics and errors injected into an agent in random histories")

// TestCrashesOfOneObject injects panics and errors into random histories of an agent that lives on: at the beginning and at the end of
// everything that is contained (what is worked out and compiled about each port, group and other object, its rows, each method of each
// extension, each event, each step of the loop, all work beside it), in the middle of what extensions compile, and into the objects
// that the server tells. It checks:
//
//  1. The loop never dies, and counts every panic.
//  2. In the end, when nothing is injected any more, all flows, meters and rows are those of a fresh start, and nothing is held.
//  3. A flow that is right before, after, and whichever of the changes are known, is never touched; but for those of a port that became
//     something else while something was injected into it, or into an extension: it is shut, or without the extension's part.
//  4. Nothing is open at any time that is not right for some of the changes.
func TestCrashesOfOneObject(t *testing.T) {
	seed := seedOf(t, *crashSeed)
	const perHistory = 25 // at most, on average
	total := map[string]int{}
	histories := 0
	for n := 0; n < *panics/perHistory || sum(total) < *panics; n++ {
		done := t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newPanicHistory(t, rand.New(rand.NewPCG(seed, uint64(n))))
				for range 2 {
					h.play()
				}
				h.end()
				for what, n := range h.faults.counts {
					total[what] += n
				}
			})
		})
		if histories++; !done {
			break
		}
	}
	for _, what := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%5d  %s", total[what], what)
	}
	t.Logf("%5d  in all, in %d histories", sum(total), histories)
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// faults decides what goes wrong.
type faults struct {
	mu       sync.Mutex
	rnd      *rand.Rand
	on       bool
	each     string          // where something goes wrong every time
	rarely   int             // of how many times one goes wrong
	counts   map[string]int  // by where, for people
	hit      map[string]bool // objects, as the agent names them, since the last rest
	panicked uint64
}

// oftenSpoilt is of how many objects that the server tells one cannot be read.
const oftenSpoilt = 4

// strikes says whether something goes wrong here, which it does one out of so many times.
func (f *faults) strikes(where, class string, outOf int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if where != f.each && (!f.on || f.rnd.IntN(outOf) > 0) {
		return false
	}
	f.counts[class]++
	f.hit[where] = true
	return true
}

// always has something go wrong every time, and nothing else; with nothing that is over.
func (f *faults) always(where string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on, f.each = false, where
}

func (f *faults) draw(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rnd.IntN(n)
}

// classOf groups places for people: all ports, all tasks.
func classOf(where string) string {
	where, _, _ = strings.Cut(where, " effect.")
	for _, kind := range []string{"port", "group", "segment", "station", "peer", "tunnel", "interface", "bridge", "qos", "dvr", "trunk", "extra"} {
		if rest, ok := strings.CutPrefix(where, kind+" "); ok {
			if _, of, found := strings.Cut(rest, ", "); found {
				return kind + ", " + of
			}
			return kind
		}
	}
	what, _, _ := strings.Cut(where, " topic")
	what, _, _ = strings.Cut(what, ", gateway of")
	return what
}

// probe is for [containment].
func (f *faults) probe(where string) {
	if f.strikes(where, classOf(where), f.rarely) {
		f.mu.Lock()
		f.panicked++
		f.mu.Unlock()
		panic("injected into " + where)
	}
}

// spoil makes objects unreadable.
func (f *faults) spoil(objects []any) {
	for i := range objects {
		if f.strikes("objects", "objects that the server tells", oftenSpoilt) {
			o := maps.Clone(objects[i].(map[string]any))
			data := maps.Clone(o["versioned_object.data"].(map[string]any))
			switch f.draw(4) {
			case 0:
				data["id"] = 7
			case 1:
				data["id"], data["port_id"] = map[string]any{}, 7
			case 2:
				o["versioned_object.name"] = "Pot"
			default:
				data["revision_number"], data["segmentation_id"], data["rules"], data["addresses"] = "x", "x", 7, 7
			}
			o["versioned_object.data"] = data
			objects[i] = o
		}
	}
}

// faulty is an extension that fails in the middle of compiling.
type faulty struct {
	extension.Extension
	f *faults
}

func (e faulty) Unwrap() extension.Extension { return e.Extension }

func (e faulty) Compile(o world.Object, want *pipeline.Want) {
	e.Extension.Compile(o, want)
	if e.f.strikes(o.String(), e.Name()+", middle of Compile", e.f.rarely) {
		want.Flows = want.Flows[:len(want.Flows)/2]
		if want.Rows = nil; e.f.draw(2) == 0 {
			want.Err = errors.New("injected")
			return
		}
		e.f.mu.Lock()
		e.f.panicked++
		e.f.mu.Unlock()
		panic("injected into the middle of Compile")
	}
}

// extra is an extension that adds something to every wired port and every bridge, and an object of its own.
type extra struct {
	w     *world.World
	wired map[string]uint32 // numbers of wired ports
}

// ownExtra names the object of its own.
const ownExtra extension.Objects[string] = "extra"

func newExtra(w *world.World) extension.Extension { return &extra{w: w, wired: map[string]uint32{}} }

func (*extra) Name() string { return "extra" }

func (e *extra) Resolve(changed []world.Object) []world.Object {
	for _, o := range changed {
		if id, ok := world.PortID(o); ok {
			delete(e.wired, id)
			if p := e.w.Port(id); p != nil && p.Wiring.State == world.Wired {
				e.wired[id] = p.VIF.OFPort
			}
		}
	}
	return []world.Object{ownExtra.Object("thing")}
}

func (e *extra) Compile(o world.Object, want *pipeline.Want) {
	flow := func(match ...openflow.Term) {
		want.Flow(e.w.Config.IntegrationBridge, "extra", openflow.Flow{Table: 200, Priority: 1, Match: match})
	}
	id, _ := world.PortID(o)
	if n := e.wired[id]; n != 0 {
		flow(openflow.FromPort(n))
	} else if _, ok := ownExtra.Key(o); ok {
		flow(openflow.FromPort(99))
	}
}

// panicHistory is a history of an agent into which faults are injected.
type panicHistory struct {
	*crashHistory
	faults *faults
}

func newPanicHistory(t *testing.T, rnd *rand.Rand) *panicHistory {
	h := &panicHistory{newCrashHistory(t, rnd), &faults{rnd: rand.New(rand.NewPCG(rnd.Uint64(), 4)), rarely: pick(rnd, 30, 200, 2000), counts: map[string]int{}, hit: map[string]bool{}}}
	h.bury()
	h.more = []extension.New{dvr.New, trunk.New, qos.New, newExtra}
	h.life = newLife(0, func() {})
	h.region = &region{life: h.life, truth: h.truth, spoil: h.faults.spoil, ready: func(a *Agent) {
		a.cfg.probe.f = h.faults.probe
		h.prepare(a)
	}}
	var more []extension.New // fresh ones are without faults
	for _, made := range h.more {
		more = append(more, func(w *world.World) extension.Extension { return faulty{made(w), h.faults} })
	}
	h.agent, h.session, h.cancel, h.done = startOn(t, h.cfg, h.ovs, h.region, h.dir+"/snapshot", more...)
	h.restAndCompare()
	return h
}

func (h *panicHistory) strike(on bool) {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	h.faults.on = on
	if on {
		clear(h.faults.hit)
	}
}

// restAndCompare lets everything happen without faults, and checks the result.
func (h *panicHistory) restAndCompare() {
	h.t.Helper()
	h.strike(false)
	h.rest()
	select {
	case err := <-h.done:
		h.fail("the agent ended: %v", err)
	default:
	}
	s, err := h.agent.Status(h.t.Context())
	for end := time.Now().Add(restTime); err == nil && len(s.Held) > 0; s, err = h.agent.Status(h.t.Context()) {
		if time.Now().After(end) {
			h.fail("still held: %+v", s.Held)
		}
		wait(5 * time.Second) // an event that could not be taken is over, and named for a while
	}
	if err != nil {
		h.fail("status: %v", err)
	}
	if s.Totals.Panics != h.faults.panicked {
		h.fail("%d panics counted, %d injected", s.Totals.Panics, h.faults.panicked)
	}
}

// play goes from one rest to the next.
func (h *panicHistory) play() {
	before := h.ovs.all()
	base, baseTruth := h.ovs.clone(), h.truth.clone()
	h.begin(before)
	h.strike(true)
	changes := []change{h.drawChange()}
	if h.rnd.IntN(2) == 0 {
		changes = append(changes, h.drawChange())
	}
	todo := slices.Clone(changes)
	for range 3 + h.rnd.IntN(4) {
		switch n := h.rnd.IntN(8); {
		case n < 4 && len(todo) > 0:
			h.apply(todo[0])
			todo = todo[1:]
		case n == 4:
			h.note("the broker leaves")
			h.region.leave()
		case n == 5:
			h.note("the broker is back")
			h.region.back()
		case n == 6:
			h.note("the connections to the bridges break")
			h.life.drop()
		}
		wait(time.Duration(h.rnd.IntN(4000)) * time.Millisecond)
	}
	for _, c := range todo {
		h.apply(c)
	}
	wait(time.Duration(h.rnd.IntN(2000)) * time.Millisecond)
	h.restAndCompare()
	steady, may := h.right(before, base, baseTruth, changes)
	h.shut(steady, may, base, baseTruth, changes)
	h.neverEmpty(before, steady, h.comesUnderFilters(baseTruth), h.fromStrangers(baseTruth, changes))
	h.neverOpen(may, baseTruth)
}

// shut allows for ports that became something else while something was injected into them, under each number that they had meanwhile.
func (h *panicHistory) shut(steady map[bridgeKey]openflow.Entry, may map[string]bool, o *fakeOVS, t *truth, changes []change) {
	changed := func(o world.Object) bool {
		id, ok := world.PortID(o)
		return ok && slices.ContainsFunc(changes, func(c change) bool { return strings.HasSuffix(c.name, " "+id) })
	}
	hit := func(o world.Object) bool {
		for where := range h.faults.hit { // it, an extension's part of it, or an extension
			if where == o.String() || strings.HasPrefix(where, o.String()+", ") || strings.HasPrefix(where, "extension ") {
				return true
			}
		}
		return false
	}
	maps.DeleteFunc(steady, func(k bridgeKey, _ openflow.Entry) bool { return changed(h.owners[k]) && hit(h.owners[k]) })
	names := h.ovs.numbering(nil)
	allow := func(o *fakeOVS) {
		for id := range h.truth.ports {
			for _, n := range o.numbers(id) {
				f := openflow.Flow{Cookie: pipeline.Cookie, Priority: 2, Match: openflow.Match{openflow.FromPort(uint32(n))}}
				e, err := f.Entry()
				if err != nil {
					h.t.Fatal(err)
				}
				for _, p := range names.pieces(e) {
					may[p] = true
				}
			}
		}
	}
	o, t = o.clone(), t.clone()
	allow(o)
	for _, c := range changes {
		c.make(t, o)
		allow(o)
	}
	allow(h.ovs)
}
