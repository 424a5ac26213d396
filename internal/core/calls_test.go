// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// greeter is an extension with one call, as long as it wants it.
type greeter struct {
	idle
	wants bool
}

func (*greeter) Name() string { return "greeter" }

func (g *greeter) Calls() []extension.Call {
	if !g.wants {
		return nil
	}
	return []extension.Call{{Key: greet{}}}
}

func (*greeter) OnCall(extension.Key, any, error) {}

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
