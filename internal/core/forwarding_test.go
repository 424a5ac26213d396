// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/fdb"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Forwarding tables are read one at a time, and again after a change of a device. A device that is missing is one warning, a failure is retried with
// growing pauses and is told.
func TestForwardingTables(t *testing.T) {
	var log logBuffer
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	a := New(Config{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Recorder: &Recorder{}, World: world.Config{Host: "hv1", IntegrationBridge: "br-int"},
		Extensions: []extension.New{fdb.New(map[string][]string{"physnet1": {"ens1"}})},
	}, nil, noon)
	step := func(now time.Time, e effect.Event) (out []string, wake time.Time) {
		all := a.Step(now, e)
		for _, e := range all.Do {
			if text := e.String(); strings.Contains(text, "devices") || strings.Contains(text, "forwarding") {
				out = append(out, text)
			}
		}
		return out, all.Wake
	}
	expect := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	const watch, read = `watch devices ["ens1"]`, `read forwarding tables of ["ens1"]`
	got, _ := step(noon, effect.SwitchChanged{Batch: fake.Connected()})
	expect("at start", got, watch, read)
	if busy, _ := a.extensions.tablesBlocking(func() bool { return true }); !busy {
		t.Error("a read under way is none")
	}
	got, _ = step(noon, effect.DeviceChanged{Device: "ens1"})
	expect("while it is read", got)
	got, _ = step(noon, effect.ForwardingRead{Tables: forwarding.Tables{"ens1": nil}})
	expect("what was read before the change", got, read)
	got, _ = step(noon, effect.ForwardingRead{Tables: forwarding.Tables{}})
	expect("without the device", got)
	for range 3 {
		got, _ = step(noon, effect.DeviceChanged{})
		expect("after a change", got, read)
		step(noon, effect.ForwardingRead{Tables: forwarding.Tables{}})
	}
	if n := strings.Count(log.String(), deviceMissing); n != 1 {
		t.Errorf("%d warnings of a missing device:\n%s", n, log.String())
	}
	step(noon, effect.DeviceChanged{})
	got, wake := step(noon, effect.ForwardingRead{Err: errors.New("out of memory")})
	expect("after a failure", got)
	if !wake.After(noon) {
		t.Errorf("it is never tried again: %v", wake)
	}
	if bs := gate.Blockers(a.Look(noon).Facts(gate.All)); !slices.ContainsFunc(bs, func(b gate.Blocker) bool { return b.Code == "forwarding-fault" }) {
		t.Errorf("a failure is not told: %+v", bs)
	}
	got, _ = step(wake, effect.WatchdogDue{})
	expect("after a pause", got, read)
	step(wake, effect.ForwardingRead{Tables: forwarding.Tables{"ens1": nil}})
	if busy, faults := a.extensions.tablesBlocking(func() bool { return true }); busy || len(faults) > 0 {
		t.Errorf("busy %v, faults %v", busy, faults)
	}
	got, _ = step(wake, effect.DeviceChanged{Err: errors.New("closed")})
	expect("a watch that ended", got)
	got, _ = step(wake.Add(time.Hour), effect.WatchdogDue{})
	expect("later", got, watch, read)
}

// forwarder is an extension whose jobs a test says.
type forwarder struct {
	idle
	job  forwarding.Job
	due  bool
	told []forwarding.Outcome
}

func (*forwarder) Name() string                                     { return "forwarder" }
func (*forwarder) Devices() []string                                { return []string{"ens1"} }
func (f *forwarder) Forwarding(func() bool) (forwarding.Job, bool)  { return f.job, f.due }
func (f *forwarder) OnForwarding(o forwarding.Outcome, _ time.Time) { f.told = append(f.told, o) }

// TestChangesOfForwardingTables: a change is made once, its outcome is worth writing down, and what became of one that was lost is found out after a pause.
func TestChangesOfForwardingTables(t *testing.T) {
	f, now := &forwarder{}, time.Unix(1000, 0)
	a := New(Config{
		Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{},
		Extensions: []extension.New{func(*world.World) extension.Extension { return &greeter{} }, func(*world.World) extension.Extension { return f }},
	}, nil, now)
	a.memory.stale = false
	x := &a.extensions
	open := func() bool { return true }
	var wake time.Time
	keeps := func(what string, want ...string) {
		t.Helper()
		a.turn.begin(now)
		x.keepTables(open)
		all := a.turn.take()
		wake = all.Wake
		var got []string
		for _, e := range all.Do {
			got = append(got, e.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	blocks := func(what string, wantBusy bool, wantFaults ...string) {
		t.Helper()
		if busy, faults := x.tablesBlocking(open); busy != wantBusy || !slices.Equal(faults, wantFaults) {
			t.Errorf("%s: busy %v, faults %q", what, busy, faults)
		}
	}
	keeps("at first", effect.WatchDevices{Extension: 1, Devices: []string{"ens1"}}.String())
	blocks("nothing is due", false)
	changes := forwarding.Changes{Add: make([]forwarding.Entry, 2)}
	change := effect.ChangeForwarding{Extension: 1, Changes: changes}.String()
	f.job, f.due = forwarding.Job{Change: changes}, true
	blocks("a change is due", true)
	keeps("a change", change)
	keeps("on its way")
	f.due = false
	blocks("on its way", true)
	f.due = true
	a.event(effect.ForwardingChanged{Extension: 1, Changes: changes, Err: errors.New("no such device")})
	blocks("it failed", false, "extension forwarder: no such device")
	if len(f.told) != 1 || f.told[0].Err == nil || len(f.told[0].Changed.Add) != 2 || !a.memory.stale {
		t.Errorf("told %+v, worth writing down %v", f.told, a.memory.stale)
	}
	if keeps("it failed a moment ago"); !wake.After(now) {
		t.Errorf("tried again at %v", wake)
	}
	now = wake
	keeps("after a pause", change)
	a.event(effect.ForwardingChanged{Extension: 1, Changes: changes})
	f.due, f.told = false, nil
	keeps("done")
	if blocks("done", false); len(x.tables.retries)+len(x.tables.failed) != 0 {
		t.Errorf("%v, %v", x.tables.retries, x.tables.failed)
	}
	// What was read, and could not be taken.
	for _, lost := range []effect.Event{effect.ForwardingRead{Extension: 1}, effect.ForwardingChanged{Extension: 1}} {
		read := effect.ReadForwarding{Extension: 1, Devices: []string{"ens1"}}.String()
		f.job, f.due = forwarding.Job{Read: []string{"ens1"}}, true
		keeps("a reading", read)
		a.abandon(lost)
		if keeps("it was lost"); !wake.After(now) {
			t.Errorf("tried again at %v", wake)
		}
		now = wake
		keeps("after a pause", read)
		a.memory.stale = false
		a.event(effect.ForwardingRead{Extension: 1, Tables: forwarding.Tables{"ens1": nil}})
		f.due = false
		if keeps("done"); len(f.told) == 0 || a.memory.stale {
			t.Errorf("told %+v, worth writing down %v", f.told, a.memory.stale)
		}
	}
	// A device changes while nothing is on its way.
	f.told = nil
	a.event(effect.DeviceChanged{Extension: 1, Device: "ens1"})
	if len(f.told) != 1 || f.told[0].Device != "ens1" || len(x.tables.running) != 0 {
		t.Errorf("told %+v, running %v", f.told, x.tables.running)
	}
	a.event(effect.DeviceChanged{Extension: 1, Err: errors.New("closed")})
	if keeps("nobody follows the links"); !wake.After(now) || len(f.told) != 1 {
		t.Errorf("followed again at %v, told %+v", wake, f.told)
	}
	now = wake
	keeps("after a pause", effect.WatchDevices{Extension: 1, Devices: []string{"ens1"}}.String())
	if a.event(effect.DeviceChanged{Extension: 1}); len(x.tables.watches) != 0 {
		t.Errorf("%v", x.tables.watches)
	}
}
