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
