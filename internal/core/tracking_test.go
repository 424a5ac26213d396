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

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// counts returns how often the log has a message so far.
func (l *logBuffer) counts(message string) int { return strings.Count(l.String(), message) }

// TestLooksAtConnections: a look is taken when it is due, and the loop wakes up for the next. What could not be listed or released is told, once for what it is about.
func TestLooksAtConnections(t *testing.T) {
	a := obeying(t, &tracker{})
	log := &logBuffer{}
	a.log.Logger = slog.New(slog.NewTextHandler(log, nil))
	now, vlan := time.Now(), a.world.Port("p0").Wiring.VLAN
	looks := func(at time.Time) (effects []effect.Effect, wake time.Time) {
		a.wakeAt = time.Time{}
		a.turn.begin(at)
		a.zones.listConnections()
		all := a.turn.take()
		return all.Do, all.Wake
	}
	a.turn.take()
	if all, wake := looks(now); len(all) != 0 || !wake.IsZero() {
		t.Errorf("nothing is due: %v, wakes at %v", all, wake)
	}
	a.zones.Committed(map[uint16]bool{vlan: true}, now)
	if all, _ := looks(now); len(all) != 1 || !slices.Equal(all[0].(effect.ListConnections).Zones, []uint16{vlan}) {
		t.Errorf("%v", all)
	}
	no, worse := errors.New("no"), errors.New("worse")
	const uncleared = "conntrack marks not cleared"
	a.event(effect.ConnectionsListed{Err: no})
	if n := len(a.turn.take().Do); n != 0 || log.counts(uncleared) != 1 || !strings.Contains(log.String(), "err=no") {
		t.Errorf("%d effects:\n%s", n, log)
	}
	if _, wake := looks(now); !wake.After(now) {
		t.Errorf("the next look is at %v", wake)
	}
	allowed := conntrack.Connection{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.5.0"), Protocol: 6, DstPort: 80}
	a.event(effect.ConnectionsListed{Found: []zones.Connections{{Zone: vlan, List: []conntrack.Connection{allowed}}}, Err: no})
	if all := a.turn.take().Do; len(all) != 1 || log.counts(uncleared) != 1 {
		t.Errorf("%v:\n%s", all, log)
	}
	a.event(effect.ConnectionsReleased{N: 1, Err: worse})
	if log.counts(uncleared) != 2 || !strings.Contains(log.String(), `err="no\nworse"`) || log.counts("marks of allowed connections cleared") != 1 {
		t.Errorf("%s", log)
	}
	a.event(effect.ConnectionsReleased{})
	if log.counts(uncleared) != 2 || log.counts("marks of allowed connections cleared") != 1 {
		t.Errorf("an error of before is told again:\n%s", log)
	}
	// Zones that could not be flushed, and limits that could not be set, are told once while it lasts.
	const unflushed, unlimited = "connection tracking zone not flushed", "tracked connections not limited"
	for i, err := range []error{no, no, nil, no} {
		a.event(effect.Applied{Round: &dataplane.Round{Flush: []uint16{9}, FlushErrs: []error{err}, Limits: &dataplane.Limits{Want: map[uint16]uint32{1: 5}}, LimitsErr: err}})
		if want := []int{1, 1, 1, 2}[i]; log.counts(unflushed) != want || log.counts(unlimited) < want {
			t.Errorf("after %d: %d and %d lines", i+1, log.counts(unflushed), log.counts(unlimited))
		}
	}
}

// TestCallsThatFail: the log has it once while it lasts, what the server refuses is asked ever more rarely, and the loop wakes up for the next attempt.
func TestCallsThatFail(t *testing.T) {
	a, x, m := guardedWhole(t)
	log := &logBuffer{}
	a.log.Logger = slog.New(slog.NewTextHandler(log, nil))
	a.extensions.resync()
	if !slices.Equal(x.said, []string{"Resync"}) {
		t.Errorf("called %q", x.said)
	}
	g := &greeter{wants: true}
	a.extensions.Set = extension.Set{guard(extension.NewMember(g), &a.contained, &a.resyncing), m}
	a.extensions.Set[1].Caller = nil
	k, now := effect.CallKey{Key: greet{}}, time.Unix(1000, 0)
	fail := func(err error) time.Duration {
		a.extensions.running[k] = true
		a.turn.begin(now)
		a.extensions.callDone(effect.Called{CallKey: k, Err: err})
		return a.extensions.retries[k].At.Sub(now)
	}
	a.turn.begin(now)
	a.extensions.tend(false)
	if all := a.turn.take().Do; len(all) != 0 {
		t.Errorf("called without a server: %v", all)
	}
	a.turn.begin(now)
	if a.extensions.tend(true); len(a.turn.take().Do) != 1 {
		t.Error("not called")
	}
	no, refusal := errors.New("no"), &messaging.RemoteError{Class: "KeyError"}
	for range 12 {
		if wait := fail(no); wait > 4*time.Second {
			t.Errorf("a call that nobody answers waits %v", wait)
		}
	}
	if log.counts(callFailed) != 1 {
		t.Errorf("%d lines", log.counts(callFailed))
	}
	for _, err := range []error{refusal, nil} {
		if wait := fail(err); wait <= 4*time.Second {
			t.Errorf("a call that was answered with %v waits %v", err, wait)
		}
	}
	a.wakeAt = time.Time{}
	a.turn.begin(now)
	if a.extensions.startCalls(now); !a.wakeAt.Equal(a.extensions.retries[k].At) {
		t.Errorf("wakes at %v", a.wakeAt)
	}
	lines := log.counts(callFailed)
	if fail(no); log.counts(callFailed) != lines {
		t.Error("told again while it lasts")
	}
	g.wants = false
	a.extensions.startCalls(now)
	if fail(no); log.counts(callFailed) != lines+1 {
		t.Error("not told again after it was over")
	}
}

// TestForwardersBesideEachOther: one that reads, waits or failed holds up no other; what the log has lasts until it is over.
func TestForwardersBesideEachOther(t *testing.T) {
	log, now := &logBuffer{}, time.Unix(1000, 0)
	first, second := &forwarder{}, &forwarder{}
	ext := func(e extension.Extension) extension.New { return func(*world.World) extension.Extension { return e } }
	a := New(Config{Log: slog.New(slog.NewTextHandler(log, nil)), Recorder: &Recorder{}, Extensions: []extension.New{ext(first), ext(second)}}, nil, now)
	x, open := &a.extensions, func() bool { return true }
	keeps := func() (of []int) {
		a.turn.begin(now)
		x.keepTables(open)
		for _, e := range a.turn.take().Do {
			if r, ok := e.(effect.ReadForwarding); ok {
				of = append(of, r.Extension)
			}
		}
		return of
	}
	read := forwarding.Job{Read: []string{"ens1"}}
	first.job, first.due = read, true
	if got := keeps(); !slices.Equal(got, []int{0}) {
		t.Errorf("%v", got)
	}
	second.job, second.due = read, true
	if got := keeps(); !slices.Equal(got, []int{1}) {
		t.Errorf("beside one that reads: %v", got)
	}
	no := errors.New("no")
	a.memory.stale = false
	for i := range 2 {
		a.event(effect.ForwardingRead{Extension: i, Err: no})
	}
	if a.memory.stale || log.counts(tablesUnread) == 0 {
		t.Errorf("worth writing down %v:\n%s", a.memory.stale, log)
	}
	delete(x.tables.retries, 1)
	if got := keeps(); !slices.Equal(got, []int{1}) {
		t.Errorf("beside one that waits: %v", got)
	}
	if _, faults := x.tablesBlocking(open); len(faults) != 2 {
		t.Errorf("%q", faults)
	}
	delete(x.tables.failed, 1)
	if busy, faults := x.tablesBlocking(open); !busy || len(faults) != 1 {
		t.Errorf("beside one that failed: %v, %q", busy, faults)
	}
	// Over, and again.
	lines := log.counts(tablesUnread)
	clear(x.tables.retries)
	clear(x.tables.running)
	first.due, second.due = false, false
	keeps()
	first.due = true
	keeps()
	if a.event(effect.ForwardingRead{Err: no}); log.counts(tablesUnread) != lines+1 {
		t.Errorf("%d lines, want one more than %d", log.counts(tablesUnread), lines)
	}
	// A device that changed while it was read, a change that failed, and one that follows nothing: which of them is worth writing down.
	for _, c := range []struct {
		event effect.Event
		worth bool
	}{
		{effect.DeviceChanged{Err: no}, false}, {effect.DeviceChanged{Device: "ens1"}, false}, {effect.ForwardingRead{}, false},
		{effect.ForwardingChanged{Err: no}, true}, {effect.ForwardingChanged{}, true},
	} {
		a.memory.stale = false
		if a.event(c.event); a.memory.stale != c.worth {
			t.Errorf("%+v: worth writing down %v", c.event, a.memory.stale)
		}
	}
	// Devices: the one that is missing is named, and again after it was there.
	reads := func(tables forwarding.Tables) int {
		x.tables.running[0] = true
		a.event(effect.ForwardingRead{Tables: tables})
		return log.counts(deviceMissing)
	}
	for i, c := range []struct {
		tables forwarding.Tables
		want   int
	}{{forwarding.Tables{"ens1": nil}, 0}, {forwarding.Tables{}, 1}, {forwarding.Tables{"ens2": nil}, 1}, {forwarding.Tables{"ens1": nil}, 1}, {forwarding.Tables{}, 2}} {
		if got := reads(c.tables); got != c.want {
			t.Errorf("reading %d: %d warnings, want %d", i, got, c.want)
		}
	}
}

// TestAResyncOfReports: everything is waited for again, and of networks in tunnels all entries are asked for; the first time in sync stays.
func TestAResyncOfReports(t *testing.T) {
	a := tunnelHost(t, true)
	a.reports.Reporter = report.New(5, &a.resyncing.bucket)
	first := time.Unix(1000, 0)
	a.turn.begin(first)
	if a.reports.synced(false); !a.reports.syncedAt.Equal(first) || !a.reports.firstSync.Equal(first) {
		t.Errorf("%v, %v", a.reports.syncedAt, a.reports.firstSync)
	}
	if a.reports.refreshNetworks(); !a.reports.syncedAt.IsZero() || a.reports.Stats().Networks != 1 {
		t.Errorf("%v, %+v", a.reports.syncedAt, a.reports.Stats())
	}
	a.turn.begin(first.Add(time.Hour))
	if a.reports.synced(false); !a.reports.firstSync.Equal(first) || !a.Look(first).SyncedAt().Equal(first.Add(time.Hour)) {
		t.Errorf("%v, %v", a.reports.syncedAt, a.reports.firstSync)
	}
	a.cfg.World.L2Population = false
	if a.reports.refreshNetworks(); a.reports.syncedAt.IsZero() {
		t.Error("without l2population nothing is asked for")
	}
	// A port is up when the flows of its network are in place, too.
	b := obeying(t, nil)
	obeyed(b)
	rowsWritten(b)
	applied := func() bool {
		c := b.reports.claim("p0")
		b.reports.checkApplied(&c, b.dataplane, false, time.Now())
		return c.Applied
	}
	if !applied() {
		t.Error("not in place")
	}
	b.dataplane.Set(world.SegmentObject(b.world.Port("p0").Wiring.Segment), pipeline.Want{Flows: []pipeline.Flow{{Bridge: "br-int", Entry: someFlow(t)}}})
	if applied() {
		t.Error("up before the flows of its network")
	}
	// What was not answered is not in place.
	lines := timelines{of: map[string]*timeline{"p": {}}}
	if lines.markApplied("p", first); !lines.of["p"].applied.IsZero() {
		t.Error("in place before the server has told about it")
	}
}

// TestAWaitingCheck wakes the loop.
func TestAWaitingCheck(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	now := time.Unix(1000, 0)
	a.turn.begin(now)
	if a.resyncing.due() || a.resyncing.pending() {
		t.Error("due without a reason")
	}
	a.resyncing.soon(true)
	at := a.resyncing.at
	a.wakeAt = time.Time{}
	if a.resyncing.due() || !a.wakeAt.Equal(at) || !a.resyncing.pending() {
		t.Errorf("wakes at %v, want %v", a.wakeAt, at)
	}
	a.turn.begin(at)
	if !a.resyncing.due() || a.resyncing.pending() || a.resyncing.due() {
		t.Error("not due, or twice")
	}
}
