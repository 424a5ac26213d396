// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// greeter is an extension with one call, as long as it wants it, or others.
type greeter struct {
	idle
	wants bool
	more  []extension.Key
	aside []extension.Key // in the background
	told  []extension.Key
}

func (*greeter) Name() string { return "greeter" }

func (g *greeter) Calls() (all []extension.Call) {
	if g.wants {
		all = append(all, extension.Call{Key: greet{}})
	}
	for _, k := range g.more {
		all = append(all, extension.Call{Key: k})
	}
	for _, k := range g.aside {
		all = append(all, extension.Call{Key: k, Background: true})
	}
	return all
}

func (g *greeter) OnCall(k extension.Key, _ any, _ error) { g.told = append(g.told, k) }

// numbered is the key of one of several calls.
type numbered int

func (n numbered) String() string { return fmt.Sprint("call ", int(n)) }

// TestCallsOfExtensions: a call that failed is made again after a pause, as long as it is listed; then the failure is forgotten.
func TestCallsOfExtensions(t *testing.T) {
	g, now := &greeter{wants: true}, time.Unix(1000, 0)
	a := New(Config{
		Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}, Extensions: []extension.New{func(*world.World) extension.Extension { return g }},
	}, nil, now)
	c, k := &a.extensions, effect.CallKey{Key: greet{}}
	starts := func(want int) {
		t.Helper()
		a.turn.begin(now)
		a.extensions.startCalls(now)
		if got := len(a.turn.take().Do); got != want {
			t.Errorf("%d calls, want %d", got, want)
		}
	}
	starts(1)
	starts(0) // it is on its way
	a.extensions.callDone(effect.Called{CallKey: k, Err: errors.New("no")})
	for range 2 {
		if starts(0); c.retries[k].Failed != 1 {
			t.Errorf("%d failures are known of a call that is listed", c.retries[k].Failed)
		}
	}
	now = c.retries[k].At
	starts(1)
	g.wants = false
	if starts(0); c.retries[k].Failed != 1 {
		t.Error("the failure of a call that is on its way is forgotten")
	}
	a.extensions.callDone(effect.Called{CallKey: k})
	if starts(0); len(c.retries) != 0 {
		t.Error("the failure of a call that nobody wants is kept")
	}
}

// TestManyCalls: one that is on its way or waits holds up no other, until there are too many. What was asked before messages were lost, or before the extension began anew, does
// not count, and is asked again.
func TestManyCalls(t *testing.T) {
	g, other, now := &greeter{}, &greeter{more: []extension.Key{numbered(0)}}, time.Unix(1000, 0)
	a := New(Config{
		Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{},
		Extensions: []extension.New{func(*world.World) extension.Extension { return g }, func(*world.World) extension.Extension { return other }},
	}, nil, now)
	a.memory.stale = false
	x := &a.extensions
	key := func(i, n int) effect.CallKey { return effect.CallKey{Extension: i, Key: numbered(n)} }
	starts := func(what string, want ...effect.CallKey) {
		t.Helper()
		a.turn.begin(now)
		x.startCalls(now)
		var got []effect.CallKey
		for _, e := range a.turn.take().Do {
			got = append(got, e.(effect.CallExtension).CallKey)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	g.more = []extension.Key{numbered(1)}
	starts("two extensions", key(0, 1), key(1, 0))
	g.more = []extension.Key{numbered(1), numbered(2)}
	starts("the first is on its way", key(0, 2))
	a.event(effect.Called{CallKey: key(0, 1), Err: errors.New("no")})
	g.more = []extension.Key{numbered(1), numbered(3)}
	starts("the first waits", key(0, 3))
	if !a.memory.stale || !slices.Equal(g.told, []extension.Key{numbered(1)}) {
		t.Errorf("worth writing down %v, told %v", a.memory.stale, g.told)
	}
	// Call 2 is not listed any more: its outcome does not count, also if it is listed again.
	g.more = []extension.Key{numbered(2)}
	starts("the second is still on its way")
	a.memory.stale, g.told = false, nil
	if a.event(effect.Called{CallKey: key(0, 2)}); a.memory.stale || len(g.told) != 0 {
		t.Errorf("worth writing down %v, told %v", a.memory.stale, g.told)
	}
	starts("it is made again", key(0, 2))
	// The first extension begins anew.
	g0 := x.Set[0].Extension.(*guarded)
	g0.owes, a.turn.at = true, now.Add(time.Hour)
	if again := x.repair(); !slices.Equal(again, []pull.Owner{pull.Extensions}) || x.running[key(0, 2)] || x.running[key(0, 3)] || !x.running[key(1, 0)] {
		t.Errorf("%v, running %v", again, x.running)
	}
	if again := x.repair(); len(again) != 0 {
		t.Errorf("%v", again)
	}
	x.resync()
	if x.running[key(1, 0)] || len(x.running) != 3 {
		t.Errorf("running %v", x.running)
	}
	clear(x.running)
	clear(x.retries)
	g.more = nil
	for i := range 2 * maxCalls {
		g.more = append(g.more, numbered(i))
	}
	var first []effect.CallKey
	for i := range maxCalls {
		first = append(first, key(0, i))
	}
	starts("too many", first...)
	starts("still too many")
	x.callDone(effect.Called{CallKey: first[3]})
	starts("one place is free", key(0, maxCalls))
	if f := a.Look(now).Facts(gate.All); f.Calls != maxCalls || len(f.Extensions) != 2 || f.Extensions[0].Waits != 2*maxCalls || f.Extensions[1].Waits != 1 {
		t.Errorf("%+v", f)
	}
	// Without the answers to those in the background the agent is in sync.
	g.aside, g.more = g.more, nil
	if f := a.Look(now).Facts(gate.All); f.Calls != 0 || f.Extensions[0].Waits != 0 {
		t.Errorf("in the background: %+v", f)
	}
}
