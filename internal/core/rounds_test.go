// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

func port(id string) world.Object { return world.PortObject(id) }

// TestZonesOfARound: zones are looked at when their filters have changed, and flushed zones count.
func TestZonesOfARound(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	a.zones.Allocated(1)
	a.zones.Allocated(2)
	a.zones.Flushed(1, errors.New("no"), time.Now())
	a.event(effect.Applied{Round: &dataplane.Round{
		Flush: []uint16{1, 2}, FlushErrs: []error{nil, errors.New("no")},
		Bundles: []dataplane.Bundle{
			{Bridge: "br-int", Zones: map[uint16]bool{5: true}}, {Bridge: "br-int", Zones: map[uint16]bool{6: true}, Withheld: true},
			{Bridge: "br-int", Zones: map[uint16]bool{7: true}, Err: &openflow.BundleError{}},
		},
	}})
	if !slices.Equal(a.zones.Failed(), []uint16{2}) || a.zones.Unflushed(1) || !a.zones.Unflushed(2) {
		t.Errorf("%+v", a.zones)
	}
	if due, next := a.zones.TakeChanged(), a.zones.Next(time.Now()); due[5] || !due[6] || !due[7] || !slices.Equal(next, []uint16{5, 6}) {
		t.Errorf("%v, %v", due, next)
	}
}

// TestConditionsThatLast: a message with the same reason comes once in a while, and again at once after it was over.
func TestConditionsThatLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf logBuffer
		lines := func() int { return strings.Count(buf.String(), "\n") }
		step := &turn{}
		r := journal{Logger: slog.New(slog.NewTextHandler(&buf, nil)), turn: step, every: time.Minute, last: map[string]map[string]time.Time{}}
		say := func(msg, reason string, want int) {
			t.Helper()
			before := lines()
			step.at = time.Now()
			r.repeat(slog.LevelWarn, msg, "err", reason)
			if got := lines() - before; got != want {
				t.Errorf("%s because of %s: %d lines, want %d", msg, reason, got, want)
			}
		}
		say("m", "a", 1)
		say("m", "a", 0)
		say("m", "b", 1)
		say("n", "a", 1)
		time.Sleep(time.Minute - 1)
		say("m", "a", 0)
		time.Sleep(time.Nanosecond)
		say("m", "a", 1)
		r.forget("m")
		say("m", "a", 1)
		say("n", "a", 1)
		for i := range maxReasons - 1 {
			say("m", fmt.Sprint(i), 1)
		}
		say("m", "one too many", 1)
		say("m", "two too many", 0) // both count as one
		time.Sleep(time.Minute)
		say("m", "one too many", 1)
		say("m", "two too many", 1) // the old ones are forgotten by now
	})
}

// TestAnswersAboutPorts: an answer ends the question, whatever it is; what was asked about is told, or due again.
func TestAnswersAboutPorts(t *testing.T) {
	a, batch := filtering(t, &cloud{}, nil, 3)
	a.bridges.started, a.bridges.up = true, true
	a.world.Switch(batch)
	a.world.Resolve()
	ask := func() pull.Batch {
		t.Helper()
		a.pulls.RetryNow(time.Now())
		a.pulls.Set(a.pulls.needs(a.extensions.Set))
		for _, b := range a.pulls.Next(a.world.Now(), time.Now(), false) {
			if b.Owner == pull.Ports {
				return b
			}
		}
		t.Fatal("no question about ports")
		return pull.Batch{}
	}
	failing := func(want int) {
		t.Helper()
		if s := a.pulls.Stats(pull.Ports); s.Failing != want || s.Asking != 0 || len(a.world.Missing()) != 3 {
			t.Errorf("%+v, %d wanted that fail", s, want)
		}
	}
	a.event(effect.Pulled{Batch: ask(), Err: &messaging.RemoteError{Class: "KeyError"}})
	failing(0)
	b := ask()
	if len(b.IDs) != 2 {
		t.Errorf("asked by halves: %v", b.IDs)
	}
	a.event(effect.Pulled{Batch: b, Err: errors.New("nobody answers")})
	a.pulls.Abandon()
	failing(2)
	// What can be read counts, also beside what cannot.
	b = ask()
	p0 := neutron.Port{ID: b.IDs[0]}
	a.reports.of[b.IDs[0]] = &timeline{}
	a.event(effect.Pulled{Batch: b, Reply: effect.Reply{Ports: []neutron.Port{p0}, Unread: b.IDs}, Err: errors.New("cannot be read")})
	if a.reports.of[b.IDs[0]].answered.IsZero() || !a.world.Port(b.IDs[0]).Answered || a.world.Port(b.IDs[1]).Answered || a.pulls.Stats(pull.Ports).Failing != 1 {
		t.Errorf("%+v, %+v", a.world.Port(b.IDs[0]), a.pulls.Stats(pull.Ports))
	}
}

// TestMessagesAreCounted, with what they are about.
func TestMessagesAreCounted(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	ip := netip.MustParseAddr("10.0.0.9")
	for _, c := range []struct {
		message any
		text    string
	}{
		{&neutron.TunnelUpdate{Type: "vxlan", IP: ip}, "tunnel endpoint announced: vxlan 10.0.0.9"},
		{&neutron.TunnelDelete{Type: "vxlan", IP: ip}, "tunnel endpoint deleted: vxlan 10.0.0.9"},
		{&neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"a": {}, "b": {}}}, "forwarding entries added for networks, 2"},
		{&neutron.FDBRemove{Networks: map[string]neutron.FDBNetwork{"a": {}, "b": {}}}, "forwarding entries removed for networks, 2"},
		{&neutron.FDBChange{Networks: map[string]map[netip.Addr]neutron.IPChange{"a": nil, "b": nil}}, "forwarding entries changed for networks, 2"},
		{&neutron.DVRUpdate{MACs: make([]neutron.DVRMAC, 3)}, "router addresses of hosts, 3"},
		{&neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: make([]neutron.Primitive, 1)}, "Port updated, not of this host"},
		{nil, "message without effect"},
	} {
		a.seen.noteMessage(c.message)
		events := a.log.recorder.Events()
		if got := events[len(events)-1].Text; got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
	}
	if got := a.seen.totals; got.Messages != 8 || got.Foreign != 1 {
		t.Errorf("%+v", got)
	}
	a.seen.noteRound(&dataplane.Round{Bundles: []dataplane.Bundle{{Bridge: "br-int"}, {Bridge: "br-int", Err: errors.New("no")}}})
	if a.seen.totals.FlowsRefused != 1 {
		t.Errorf("%d refused", a.seen.totals.FlowsRefused)
	}
	for err, want := range map[error]bool{nil: true, errors.New("no"): false} {
		a.seen.note(effect.StateReported{Err: err}, a.extensions.Set)
		if a.seen.server.Up != want {
			t.Errorf("after a report with %v the server is up: %v", err, a.seen.server.Up)
		}
	}
	a.seen.note(effect.Registered{Releases: "21"}, a.extensions.Set)
	a.seen.note(effect.Registered{Err: errors.New("nobody")}, a.extensions.Set)
	if s := a.seen.server; s.Up || s.Error != "nobody" {
		t.Errorf("%+v", s)
	}
}

// TestPortsWithoutIsolation are counted when they are plugged in while the agent runs.
func TestPortsWithoutIsolation(t *testing.T) {
	a, batch := filtering(t, &cloud{}, nil, 3)
	a.world.Switch(batch)
	plain := func(p *ovsdb.Port) *ovsdb.Port { c := *p; c.Tag = nil; return &c }
	first, second, third := plain(batch.Ports[0].New), plain(batch.Ports[1].New), plain(batch.Ports[2].New)
	third.VLANMode = "trunk"
	stranger := &ovsdb.Port{UUID: "x", Interfaces: []ovsdb.UUID{"none"}}
	both := &ovsdb.Port{UUID: second.UUID, Interfaces: []ovsdb.UUID{"none", second.Interfaces[0]}}
	for _, c := range []struct {
		name string
		b    ovsdb.Batch
		want uint64
	}{
		{"at start", ovsdb.Batch{Kind: ovsdb.Initial, Ports: []ovsdb.Diff[ovsdb.Port]{{New: first}}}, 0},
		{"with a tag", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{New: batch.Ports[0].New}}}, 0},
		{"with a mode", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{New: third}}}, 0},
		{"changed", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{Old: first, New: first}}}, 0},
		{"gone", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{Old: first}}}, 0},
		{"nobody's", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{New: stranger}}}, 0},
		{"two", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{New: batch.Ports[2].New}, {New: first}, {New: both}}}, 2},
	} {
		before := a.seen.totals.PluggedOpen
		a.seen.notePlugged(&c.b)
		if got := a.seen.totals.PluggedOpen - before; got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestAResyncAsksForEverything again, and sweeps again at its end.
func TestAResyncAsksForEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := tunnelHost(t, true)
		for _, name := range a.world.Bridges() {
			hasFlows(a, name, nil)
		}
		a.dataplane.Prune()
		a.world.Tunnels.Sync("vxlan", nil, a.world.Now())
		a.reports.Reporter = report.New(5, &a.resyncing.bucket)
		a.beginResync()
		if !a.dataplane.Pruned() || a.resyncing.count != 0 {
			t.Error("begun without a reason")
		}
		a.resyncing.soon(true)
		at := a.resyncing.at
		if time.Until(at) > spread || !a.wakeAt.Equal(at) {
			t.Errorf("begins in %v, wakes in %v", time.Until(at), time.Until(a.wakeAt))
		}
		if a.resyncing.soon(true); !a.resyncing.at.Equal(at) {
			t.Error("put off")
		}
		time.Sleep(time.Until(at))
		a.turn.at = time.Now()
		a.beginResync()
		if a.dataplane.Pruned() || a.world.Tunnels.Listed("vxlan") || a.resyncing.count != 1 || !a.resyncing.at.IsZero() || len(a.world.Missing()) != 2 {
			t.Errorf("pruned %v, tunnels %v", a.dataplane.Pruned(), a.world.Tunnels.Listed("vxlan"))
		}
		key := world.SegmentKey{Network: "n1", ID: 7}
		if got := a.reports.Stats().Networks; got != 1 {
			t.Errorf("%d networks to refresh", got)
		}
		// One port of the network is reported once more, as soon as the server knows one as up.
		claim := a.reports.claim("p1")
		claim.Applied = true
		b := a.reports.Next([]report.Claim{claim}, nil, time.Now())
		a.reports.Refresh(key)
		a.reports.Done(b[0], report.Result{}, time.Now())
		a.reports.Refresh(key)
		if got := a.reports.Next(nil, []report.Claim{claim}, time.Now()); len(got) != 1 || !got[0].Refresh || !slices.Equal(got[0].Update.Up, []string{"p1"}) {
			t.Errorf("%+v", got)
		}
	})
}

// TestHeldRows: an object whose rows cannot be worked out is tried again for as long as it is wanted.
func TestHeldRows(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	a.contained.rows = map[world.Object]bool{port("a"): true, port("b"): true}
	a.dataplane.Set(port("a"), pipeline.Want{Waiting: "x"})
	a.contained.retryRows(a.dataplane.RetryRows)
	if pending := a.dataplane.RowsPending(); !slices.Equal(pending, []world.Object{port("a")}) || !a.contained.rows[port("a")] || a.contained.rows[port("b")] {
		t.Errorf("%v, %v", pending, a.contained.rows)
	}
	a.nextRound(time.Now())
	if a.contained.rows[port("a")] || !slices.Equal(a.reports.Due(), []string{"a"}) {
		t.Errorf("%v, %v", a.contained.rows, a.reports.Due())
	}
	if !a.contained.mend("x", func() {}) || a.contained.mend("x", func() { panic("injected") }) {
		t.Error("what mend says")
	}
}

// TestRepeatedEvents say how often and until when.
func TestRepeatedEvents(t *testing.T) {
	got := (&note{kind: kindPort, what: "x", subject: "p", repeated: 2, until: 5}).event()
	if got.Count != 3 || !got.Until.Equal(time.Unix(0, 5)) {
		t.Errorf("%+v", got)
	}
	if got = (&note{kind: kindPort, what: "x"}).event(); got.Count != 0 {
		t.Errorf("%+v", got)
	}
}

// fly puts a round in flight.
func fly(a *host) {
	a.dataplane.Next(dataplane.Input{View: a.world.View, Flush: []uint16{9}, Unflushed: a.zones.unflushedZone}, time.Now())
}
