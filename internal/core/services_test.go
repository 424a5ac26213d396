// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// serving is an extension with a service.
type serving struct {
	idle
	service *metaproxy.Service
	states  []metaproxy.State // that it was told
}

func (*serving) Name() string                    { return "serving" }
func (s *serving) Service() *metaproxy.Service   { return s.service }
func (s *serving) OnService(now metaproxy.State) { s.states = append(s.states, now) }

// TestServices: a service begins when an extension needs it, is told when it is to be another, and begins again after a pause when it has ended. While it does
// not listen status says why, and the log once.
func TestServices(t *testing.T) {
	var log logBuffer
	x, second, now := &serving{}, &serving{}, time.Unix(1000, 0)
	ext := func(e extension.Extension) extension.New { return func(*world.World) extension.Extension { return e } }
	a := New(Config{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Recorder: &Recorder{}, Extensions: []extension.New{ext(&greeter{}), ext(x), ext(second)},
	}, nil, now)
	a.bridges.started = true
	var wake time.Time
	keeps := func(what string, want ...effect.Effect) {
		t.Helper()
		a.turn.begin(now)
		a.extensions.keepServices()
		all := a.turn.take()
		if wake = all.Wake; !slices.Equal(all.Do, want) {
			t.Errorf("%s: %v, want %v", what, all.Do, want)
		}
	}
	lacks := func(want ...string) {
		t.Helper()
		var got []string
		for _, f := range a.Look(now).Facts(gate.All).ServiceFaults {
			got = append(got, strings.TrimPrefix(f, "the proxy of extension serving does not listen: "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("faults %q, want %q", got, want)
		}
	}
	keeps("nothing is needed")
	lacks("it starts", "it starts")
	first, next := &metaproxy.Service{Address: netip.MustParsePrefix("169.254.0.2/16"), Port: 8080}, &metaproxy.Service{Address: netip.MustParsePrefix("169.254.0.3/16"), Port: 8080}
	x.service = first
	keeps("it is needed", effect.Serve{Extension: 1, Begin: true, Service: first})
	keeps("it is as it was")
	x.service, second.service = next, first
	keeps("it is another, and a second one is needed", effect.Serve{Extension: 1, Service: next}, effect.Serve{Extension: 2, Begin: true, Service: first})
	x.service = nil
	keeps("none is needed")
	x.service = next

	listening, away := metaproxy.State{Listening: true}, metaproxy.State{Reason: "no device"}
	tell := func(e effect.Served) {
		t.Helper()
		a.memory.stale = false
		a.turn.begin(now)
		if a.receive(e); a.memory.stale {
			t.Error("the state of a service is worth writing down")
		}
	}
	tell(effect.Served{Extension: 1, State: listening})
	lacks("it starts")
	tell(effect.Served{Extension: 2, State: listening})
	lacks()
	tell(effect.Served{Extension: 1, State: away})
	tell(effect.Served{Extension: 1, State: away})
	lacks("no device")
	keeps("it runs, and does not listen")
	tell(effect.Served{Extension: 1, State: listening})
	lacks()
	tell(effect.Served{Extension: 1, Err: errors.New("ended")})
	lacks("ended")
	if keeps("it has just ended"); !wake.After(now) {
		t.Errorf("it begins at %v", wake)
	}
	now = wake
	keeps("after a pause", effect.Serve{Extension: 1, Begin: true, Service: next})
	tell(effect.Served{Extension: 1, Err: errors.New("ended")})
	if n := a.extensions.services.retries[1].Failed; n != 2 {
		t.Errorf("%d failures", n)
	}
	tell(effect.Served{Extension: 1, State: away})
	if n := len(a.extensions.services.retries); n != 0 {
		t.Errorf("%d failures of services that run", n)
	}
	if want := []metaproxy.State{listening, away, away, listening, {Reason: "ended"}, {Reason: "ended"}, away}; !slices.Equal(x.states, want) {
		t.Errorf("the extension was told %v, want %v", x.states, want)
	}
	// Once for each reason, and again after it listened.
	if n := strings.Count(log.String(), serviceDown); n != 3 || !strings.Contains(log.String(), "address=169.254.0.3:8080") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}
