// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// TestWorkThatLanded: whatever becomes of an outcome, its work is over.
func TestWorkThatLanded(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	a.server.report.inFlight, a.memory.saving = true, true
	if now := time.Now(); !a.server.database.Probe(now) || a.server.database.Probe(now) {
		t.Error("not one probe at a time")
	}
	fly(a)
	a.landed(effect.StateReported{})
	a.landed(effect.Applied{Round: &dataplane.Round{}})
	a.landed(effect.Saved{})
	a.landed(effect.DatabaseAsked{})
	if a.server.report.inFlight || a.dataplane.InFlight() || a.memory.saving || !a.server.database.Probe(time.Now()) {
		t.Error("something is still on its way")
	}
}

// asks has the ledger of an agent ask about something, and returns the call.
func asks(a *host, o pull.Owner, known bool, ids ...string) pull.Batch {
	var needs []pull.Need
	for _, id := range ids {
		needs = append(needs, pull.Need{Key: pull.Key{Owner: o, Kind: neutron.KindSecurityGroup, ID: id}, Known: known})
	}
	a.pulls.Set(needs)
	return a.pulls.Next(a.world.Now(), time.Now(), false)[0]
}

// TestAbandonedEvents: what an event leaves undone is due again.
func TestAbandonedEvents(t *testing.T) {
	a, batch := filtering(t, &cloud{}, nil, 2)
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.bridges.started, a.bridges.up = true, true
	a.world.Switch(batch)
	a.world.Resolve()
	a.pulls.Set(a.pulls.needs(a.extensions.Set))
	calls := a.pulls.Next(a.world.Now(), time.Now(), false)
	if len(calls) != 1 || len(calls[0].IDs) != 2 || len(a.pulls.Next(0, time.Now(), false)) != 0 {
		t.Fatalf("calls %+v", calls)
	}
	a.abandon(effect.Pulled{Batch: calls[0]})
	if s := a.pulls.Stats(pull.Ports); s != (pull.Stats{Needed: 2, Failing: 2}) {
		t.Errorf("asked again: %+v", s)
	}
	if a.pulls.ask(a.extensions.Set, a.server.versions, a.server.database.Open()); a.wakeAt.IsZero() || a.pulls.InFlight() != 0 {
		t.Errorf("wakes at %v", a.wakeAt)
	}
	a.wakeAt = time.Time{}
	a.abandon(effect.PortsReported{Batch: report.Batch{Update: neutron.DeviceUpdate{Up: []string{"p0"}, Down: []string{"p1"}}}})
	if a.reportPorts(); !slices.Equal(a.reports.Due(), calls[0].IDs) || a.reports.Stats().InFlight > 0 || a.wakeAt.IsZero() {
		t.Errorf("due %v, %+v, wakes at %v", a.reports.Due(), a.reports.Stats(), a.wakeAt)
	}
	a = obeying(t, nil)
	a.memory.stale = false
	a.abandon(effect.Saved{})
	if !a.memory.stale {
		t.Error("what was not saved is not saved again")
	}
	lists := func() []uint16 {
		a.zones.Committed(map[uint16]bool{8: true}, time.Now())
		return a.zones.Next(time.Now().Add(time.Minute))
	}
	lists()
	a.abandon(effect.ConnectionsListed{Found: []zones.Connections{{Zone: 7}}})
	if got := lists(); !slices.Equal(got, []uint16{7, 8}) {
		t.Errorf("a listing that was given up: zones %v are listed next", got)
	}
	a.abandon(effect.ConnectionsReleased{})
	if got := lists(); len(got) == 0 {
		t.Error("a release that was given up runs on")
	}
	// Rules of iptables are read again, after a pause.
	a.cfg.Rules, a.cfg.World.Hybrid = &iptables.Config{}, true
	a.rules = newRules(a.room)
	obeyed(a)
	job := func(at time.Time) (started bool) {
		a.turn.begin(at)
		a.rules.startJob(a.dataplane, func() bool { return true })
		_, started = slices.Concat(a.turn.take().Do, []effect.Effect{nil})[0].(effect.ReadRules)
		return started
	}
	if busy, _ := a.rules.blocking(); !busy {
		t.Error("rules that nobody has read are as wanted")
	}
	for _, e := range []effect.Event{effect.RulesRead{}, effect.RulesApplied{}, effect.ConnectionsEnded{}} {
		at := a.now().Add(time.Minute)
		if !job(at) || job(at) {
			t.Error("rules are not read, or twice")
		}
		if busy, faults := a.rules.blocking(); !busy || len(faults) != 0 {
			t.Errorf("busy %v, faults %q", busy, faults)
		}
		a.abandon(e)
		if job(at) {
			t.Errorf("%T: tried again at once", e)
		}
	}
	a.rules.ended(effect.RulesRead{Err: errors.New("no iptables")})
	if _, faults := a.rules.blocking(); !hasPart(faults, "no iptables") {
		t.Errorf("faults %q", faults)
	}
	c, k := &a.extensions, effect.CallKey{Key: greet{}}
	c.running[k] = true
	a.abandon(effect.Called{CallKey: k})
	if _, runs := c.running[k]; runs || c.retries[k].Failed != 1 {
		t.Errorf("%v", c)
	}
}

// TestAbandonedBridges: nobody knows what the switch has, so the connection goes and a new one tells.
func TestAbandonedBridges(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	conn, other := &hung{}, &hung{}
	read := func() {
		a.dataplane.Linked("br-int", conn, nil, time.Now())
		a.dataplane.Read(dataplane.Reading{Bridge: "br-int", Conn: conn}, time.Now())
		a.turn.effects = nil
	}
	known := func() bool { return a.dataplane.Bridge("br-int").Known }
	read()
	a.abandon(effect.FlowsRead{Reading: dataplane.Reading{Bridge: "br-int", Conn: other}})
	if a.closes(conn) || !known() {
		t.Error("the dump of an earlier connection counts")
	}
	a.abandon(effect.FlowsRead{Reading: dataplane.Reading{Bridge: "br-int", Conn: conn}})
	if !a.closes(conn) || known() {
		t.Error("the bridge is taken as known")
	}
	read()
	a.abandon(effect.FlowsChanged{Bridge: "br-int"})
	if len(a.dataplane.ToRead(time.Now())) != 1 {
		t.Error("reports that were lost are not noted")
	}
	read()
	a.abandon(effect.Applied{Round: &dataplane.Round{Bundles: []dataplane.Bundle{{Bridge: "br-int", Conn: other, Zones: map[uint16]bool{3: true}}}}})
	if a.closes(conn) || !known() || !a.zones.TakeChanged()[3] {
		t.Errorf("%+v", a.zones)
	}
	a.receive(effect.Applied{Round: &dataplane.Round{Err: errors.New("broken"), Bundles: []dataplane.Bundle{{Bridge: "br-int", Conn: conn}}}})
	if !a.closes(conn) || known() {
		t.Errorf("not closed, or known %v", known())
	}
}

// TestMessagesThatWereLost: everything is checked again, soon and then ever more rarely, and soon again after some peace.
func TestMessagesThatWereLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := filtering(t, &cloud{}, nil, 0)
		a.abandon(effect.Message{Message: &messaging.Message{Topic: "t"}})
		first := a.resyncing.at
		if first.IsZero() || time.Until(first) > pace.Shortest || !a.wakeAt.Equal(first) {
			t.Errorf("checked in %v, wakes in %v", time.Until(first), time.Until(a.wakeAt))
		}
		for range 8 {
			a.resyncing.lost()
		}
		if !a.resyncing.at.Equal(first) || a.resyncing.losses[struct{}{}].Failed != 9 {
			t.Errorf("a check that is due is put off: %v, %+v", a.resyncing.at, a.resyncing.losses)
		}
		a.resyncing.at = time.Time{}
		a.resyncing.lost()
		if wait := time.Until(a.resyncing.at); wait < 10*time.Second {
			t.Errorf("checked after %v, although it goes on", wait)
		}
		time.Sleep(time.Until(a.resyncing.losses[struct{}{}].At) + pace.Calm + 1)
		a.turn.at = time.Now()
		a.resyncing.lost()
		if n := a.resyncing.losses[struct{}{}].Failed; n != 1 {
			t.Errorf("%d failures after some peace", n)
		}
		if nameOf(effect.Message{Message: &messaging.Message{Topic: "t"}}) != "a message of topic t" || nameOf(effect.Saved{}) != "effect.Saved" {
			t.Error("names of events")
		}
	})
}

// TestRowsThatCouldNotBeTaken: the view moves on all the same, and everything is compiled again.
func TestRowsThatCouldNotBeTaken(t *testing.T) {
	a, batch := filtering(t, &cloud{}, nil, 1)
	a.rowsLost(batch)
	if !a.bridges.started || !a.bridges.up || a.world.View.BridgeByName("br-int") == nil || len(a.world.Resolve()) == 0 {
		t.Error("the rows are not there")
	}
	a.rowsLost(batch) // seen already
	a.rowsLost(&ovsdb.Batch{Seq: 2, Kind: ovsdb.Disconnected})
	if a.bridges.up || !a.bridges.started {
		t.Error("a switch that is away counts as there")
	}
}

// tunnelHost is a core with two networks, one of them in tunnels.
func tunnelHost(t *testing.T, l2population bool) *host {
	t.Helper()
	two := fake.TwoNetworks(l2population)
	a := New(Config{Host: "hv1", Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}, World: two.Config()}, nil, time.Now())
	a.bridges.started, a.bridges.up = true, true
	two.Fill(a.world)
	return &host{Core: a}
}

// TestReasonsAndProgress: what is missing is said, one by one, until nothing is.
func TestReasonsAndProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := tunnelHost(t, true)
		reasons := func() []string { s := a.Look(time.Now()).AgentStatus(); return s.Reasons }
		say := func(part string, want bool) {
			t.Helper()
			if got := reasons(); hasPart(got, part) != want {
				t.Errorf("%q in %q: %v", part, got, !want)
			}
		}
		waits := func(part string, want bool) { // of anything, not only of being in sync
			t.Helper()
			if got, _ := gate.Details(gate.Blockers(a.Look(time.Now()).Facts(gate.All)), gate.All); hasPart(got, part) != want {
				t.Errorf("waits for %q in %q: %v", part, got, !want)
			}
		}
		say("no neutron-server has answered", true)
		a.server.versions = neutron.Versions{}
		say("no neutron-server has answered", false)
		a.server.report.failed = 1
		say("does not take our state reports", true)
		a.server.report.failed = 0
		say("does not take our state reports", false)
		say("bridge br-ex does not exist", true)
		say("bridge br-int cannot be programmed", true)
		for _, name := range []string{"br-int", "br-tun"} {
			a.dataplane.Linked(name, obedient{}, nil, time.Now())
		}
		say("bridge br-int cannot be programmed", false)
		say("the flows of bridge br-int have not been read", true)
		for _, name := range []string{"br-int", "br-tun"} {
			hasFlows(a, name, nil)
		}
		say("the flows of bridge br-int have not been read", false)
		say("tunnel_sync of vxlan is not answered", true)
		a.world.Tunnels.Sync("vxlan", nil, a.world.Now())
		say("tunnel_sync of vxlan is not answered", false)
		a.reports.Changed("p1")
		say("the status of 1 port is not reported", true)
		a.reports.Next([]report.Claim{{Port: "p1", Applied: true}}, nil, time.Now()) // nothing to report
		say("the status of", false)
		a.zones.Flushed(7, errors.New("busy"), time.Now())
		say("connection tracking zone 7 was not flushed", true)
		a.zones.Flushed(7, nil, time.Now())
		o := world.PortObject("p1")
		a.dataplane.Set(o, pipeline.Want{Waiting: "x"})
		rowsRefused(a, o)
		say("port p1 was refused 1 time by the switch", true)
		waits("rows of 1 object have not been compared", true)
		a.dataplane.Set(o, pipeline.Want{})
		a.dataplane.Done(&dataplane.Round{Owners: []world.Object{o}, RowErrs: []error{nil}}, time.Now())
		say("was refused", false)
		a.seen.broker.Error = "gone"
		say("the broker cannot be reached: gone", true)
		a.seen.broker.Error = ""
		a.bridges.up = false
		say("the switch's database cannot be reached", true)
		a.bridges.up = true
		// Of a network that the server has not told about, until everything has been pulled and reported once.
		a.world.Resync()
		say("the forwarding entries of 1 network", true)
		a.reports.syncedAt = time.Now()
		say("the forwarding entries of", false)
		say("bulk_pull of 2 ports is not answered yet", true)
		a.cfg.World.Physical, a.world.Config.Physical = nil, nil
		a.world.Ports(a.world.Missing(), []neutron.Port{*a.world.Port("p1").Details, *a.world.Port("p2").Details})
		a.world.Tunnels.Sync("vxlan", nil, a.world.Now())
		a.world.Resolve()
		if got := reasons(); len(got) != 0 {
			t.Fatalf("still: %q", got)
		}
		var flight []report.Batch
		for name, way := range map[string]struct{ begin, end func() }{
			"applying": {func() { fly(a) }, a.dataplane.Landed},
			"asking":   {func() { asks(a, pull.Ports, false, "x") }, a.pulls.Abandon},
			"checking": {func() { asks(a, pull.Ports, true, "x") }, a.pulls.Abandon},
			"in flight": {func() {
				flight = a.reports.Next([]report.Claim{{Port: "x", Status: report.AdminDown, Interface: "i", Applied: true}}, nil, time.Now())
			}, func() { a.reports.Done(flight[0], report.Result{}, time.Now()) }},
			"filters": {func() { asks(a, pull.Filters, false, "x") }, a.pulls.Abandon},
			"checks":  {func() { asks(a, pull.Filters, true, "x") }, a.pulls.Abandon},
		} {
			way.begin()
			if got := reasons(); !slices.Equal(got, []string{"changes are on their way"}) {
				t.Errorf("%s: %q", name, got)
			}
			way.end()
		}
		if got := reasons(); len(got) != 0 {
			t.Errorf("%q", got)
		}
		// Idle is less: what is known is in place.
		rowsWritten(a)
		if !a.open(gate.Idle) {
			t.Error("not idle")
		}
		for name, way := range map[string]struct{ begin, end func() }{
			"not started": {func() { a.bridges.started = false }, func() { a.bridges.started = true }},
			"switch away": {func() { a.bridges.up = false }, func() { a.bridges.up = true }},
			"applying":    {func() { fly(a) }, a.dataplane.Landed},
			"zones":       {func() { a.zones.Allocated(3) }, func() { a.zones.Flushed(3, nil, time.Now()) }},
			"not linked":  {func() { a.dataplane.Linked("br-int", nil, nil, time.Now()) }, func() { hasFlows(a, "br-int", nil) }},
		} {
			way.begin()
			if a.open(gate.Idle) {
				t.Errorf("%s: idle", name)
			}
			way.end()
		}
		if !a.open(gate.Idle) {
			t.Error("not idle at the end")
		}
		if owner, _, ok := a.dataplane.Owner("br-none", someFlow(t).Key()); ok || owner != nil {
			t.Error("a bridge that is not ours has a reason")
		}
	})
}
