// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
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
	a, _, _ := filtering(t, &cloud{}, nil, 0)
	a.report.inFlight, a.memory.saving = true, true
	if now := time.Now(); !a.database.Probe(now) || a.database.Probe(now) {
		t.Error("not one probe at a time")
	}
	fly(a)
	a.landed(reported{})
	a.landed(&dataplane.Round{})
	a.landed(saved{})
	a.landed(databaseAsked{})
	if a.report.inFlight || a.dataplane.InFlight() || a.memory.saving || !a.database.Probe(time.Now()) {
		t.Error("something is still on its way")
	}
}

// asks has the ledger of an agent ask about something, and returns the call.
func asks(a *Agent, o pull.Owner, known bool, ids ...string) pull.Batch {
	var needs []pull.Need
	for _, id := range ids {
		needs = append(needs, pull.Need{Key: pull.Key{Owner: o, Kind: neutron.KindSecurityGroup, ID: id}, Known: known})
	}
	a.pulls.Set(needs)
	return a.pulls.Next(a.world.Now(), time.Now(), false)[0]
}

// TestAbandonedEvents: what an event leaves undone is due again.
func TestAbandonedEvents(t *testing.T) {
	a, _, batch := filtering(t, &cloud{}, nil, 2)
	a.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.started, a.switchUp = true, true
	a.world.Switch(batch)
	a.world.Settle()
	ctx := t.Context()
	a.pulls.Set(a.needs())
	calls := a.pulls.Next(a.world.Now(), time.Now(), false)
	if len(calls) != 1 || len(calls[0].IDs) != 2 || len(a.pulls.Next(0, time.Now(), false)) != 0 {
		t.Fatalf("calls %+v", calls)
	}
	a.abandon(ctx, pulled{batch: calls[0]})
	if s := a.pulls.Stats(pull.Ports); s != (pull.Stats{Needed: 2, Failing: 2}) {
		t.Errorf("asked again: %+v", s)
	}
	if a.pullMissing(ctx); a.wakeAt.IsZero() || a.pulls.InFlight() != 0 {
		t.Errorf("wakes at %v", a.wakeAt)
	}
	a.wakeAt = time.Time{}
	a.abandon(ctx, portsReported{batch: report.Batch{Update: neutron.DeviceUpdate{Up: []string{"p0"}, Down: []string{"p1"}}}})
	if a.reportPorts(ctx); !slices.Equal(a.reports.Due(), calls[0].IDs) || a.reports.Stats().InFlight > 0 || a.wakeAt.IsZero() {
		t.Errorf("due %v, %+v, wakes at %v", a.reports.Due(), a.reports.Stats(), a.wakeAt)
	}
	a = obeying(t, nil)
	a.memory.stale = false
	a.abandon(ctx, saved{})
	if !a.memory.stale {
		t.Error("what was not saved is not saved again")
	}
	lists := func() []uint16 {
		a.zones.Committed(map[uint16]bool{8: true}, time.Now())
		return a.zones.Next(time.Now().Add(time.Minute))
	}
	lists()
	a.abandon(ctx, connectionsListed{found: []zones.Connections{{Zone: 7}}})
	if got := lists(); !slices.Equal(got, []uint16{7, 8}) {
		t.Errorf("a listing that was given up: zones %v are listed next", got)
	}
	a.abandon(ctx, connectionsReleased{})
	if got := lists(); len(got) == 0 {
		t.Error("a release that was given up runs on")
	}
	c, k := &a.extensions.calls, callKey{key: greet{}}
	c.running[k] = true
	a.abandon(ctx, called{callKey: k})
	if _, runs := c.running[k]; runs || c.retries[k].Failed != 1 {
		t.Errorf("%v", c)
	}
}

// TestAbandonedBridges: nobody knows what the switch has, so the connection goes and a new one tells.
func TestAbandonedBridges(t *testing.T) {
	a, _, _ := filtering(t, &cloud{}, nil, 0)
	ctx := t.Context()
	conn, other := &hung{}, &hung{}
	read := func() {
		a.dataplane.Linked("br-int", conn, nil, time.Now())
		a.dataplane.Read(dataplane.Reading{Bridge: "br-int", Conn: conn}, time.Now())
		conn.closed = false
	}
	known := func() bool { return a.dataplane.Bridge("br-int").Known }
	read()
	a.abandon(ctx, dataplane.Reading{Bridge: "br-int", Conn: other})
	if conn.closed || !known() {
		t.Error("the dump of an earlier connection counts")
	}
	a.abandon(ctx, dataplane.Reading{Bridge: "br-int", Conn: conn})
	if !conn.closed || known() {
		t.Error("the bridge is taken as known")
	}
	read()
	a.abandon(ctx, observed{bridge: "br-int"})
	if len(a.dataplane.ToRead(time.Now())) != 1 {
		t.Error("reports that were lost are not noted")
	}
	read()
	a.abandon(ctx, &dataplane.Round{Bundles: []dataplane.Bundle{{Bridge: "br-int", Conn: other, Zones: map[uint16]bool{3: true}}}})
	if conn.closed || !known() || !a.zones.TakeChanged()[3] {
		t.Errorf("%+v", a.zones)
	}
	a.receive(ctx, &dataplane.Round{Err: errors.New("broken"), Bundles: []dataplane.Bundle{{Bridge: "br-int", Conn: conn}}})
	if !conn.closed || known() {
		t.Errorf("closed %v, known %v", conn.closed, known())
	}
}

// TestMessagesThatWereLost: everything is checked again, soon and then ever more rarely, and soon again after some peace.
func TestMessagesThatWereLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := filtering(t, &cloud{}, nil, 0)
		c := culprit{name: "messages that were lost"}
		a.abandon(t.Context(), &messaging.Message{Topic: "t"})
		first := a.resyncing.at
		if first.IsZero() || time.Until(first) > pace.Shortest || !a.wakeAt.Equal(first) {
			t.Errorf("checked in %v, wakes in %v", time.Until(first), time.Until(a.wakeAt))
		}
		for range 8 {
			a.missed()
		}
		if !a.resyncing.at.Equal(first) || a.contained.retries[c].Failed != 9 {
			t.Errorf("a check that is due is put off: %v, %+v", a.resyncing.at, a.contained.retries)
		}
		a.resyncing.at = time.Time{}
		a.missed()
		if wait := time.Until(a.resyncing.at); wait < 10*time.Second {
			t.Errorf("checked after %v, although it goes on", wait)
		}
		time.Sleep(time.Until(a.contained.retries[c].At) + peace + 1)
		a.missed()
		if n := a.contained.retries[c].Failed; n != 1 {
			t.Errorf("%d failures after some peace", n)
		}
		if nameOf(&messaging.Message{Topic: "t"}) != "a message of topic t" || nameOf(saved{}) != "agent.saved" {
			t.Error("names of events")
		}
	})
}

// TestRowsThatCouldNotBeTaken: the view moves on all the same, and everything is compiled again.
func TestRowsThatCouldNotBeTaken(t *testing.T) {
	a, _, batch := filtering(t, &cloud{}, nil, 1)
	a.rowsLost(batch)
	if !a.started || !a.switchUp || a.world.View.BridgeByName("br-int") == nil || len(a.world.Settle()) == 0 {
		t.Error("the rows are not there")
	}
	a.rowsLost(batch) // seen already
	a.rowsLost(&ovsdb.Batch{Seq: 2, Kind: ovsdb.Disconnected})
	if a.switchUp || !a.started {
		t.Error("a switch that is away counts as there")
	}
}

// tunnelHost is an agent with two networks, one of them in tunnels, whose loop the test is.
func tunnelHost(t *testing.T, l2population bool) *Agent {
	t.Helper()
	a, err := New(Config{
		Host: "hv1", Log: slog.New(slog.DiscardHandler), Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
		World: world.Config{
			Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int", Physical: map[string]string{"physnet1": "br-ex"},
			TunnelTypes: []string{"vxlan"}, LocalIP: netip.MustParseAddr("10.0.0.1"), L2Population: l2population,
		},
	}, &fakeSwitch{changes: make(chan *ovsdb.Batch)}, func(func(messaging.Event)) (Broker, error) { return &fakeBroker{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	number := func(n int) *int { return &n }
	batch := connected()
	row := func(name string, ofport *int, ids map[string]string, failed string) ovsdb.UUID {
		batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: ovsdb.UUID("p" + name), Name: name, Interfaces: []ovsdb.UUID{ovsdb.UUID("i" + name)}}})
		batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{UUID: ovsdb.UUID("i" + name), Name: name, OFPort: ofport, ExternalIDs: ids, Error: failed}})
		return ovsdb.UUID("p" + name)
	}
	vif := func(id, mac string) map[string]string { return map[string]string{"iface-id": id, "attached-mac": mac} }
	up, bad := world.TunnelNames(world.Endpoint{Type: "vxlan", IP: netip.MustParseAddr("10.0.0.2")})[0], world.TunnelNames(world.Endpoint{Type: "vxlan", IP: netip.MustParseAddr("10.0.0.3")})[0]
	batch.Bridges = []ovsdb.Diff[ovsdb.Bridge]{
		{New: &ovsdb.Bridge{UUID: "int", Name: "br-int", DatapathID: "00aa", Ports: []ovsdb.UUID{row("v1", number(1), vif("p1", "fa:16:3e:00:00:01"), ""), row("v2", number(2), vif("p2", "fa:16:3e:00:00:02"), "")}}},
		{New: &ovsdb.Bridge{UUID: "tun", Name: "br-tun", Ports: []ovsdb.UUID{row(up, number(3), nil, ""), row(bad, number(-1), nil, "no route")}}},
	}
	a.started, a.switchUp = true, true
	a.world.Switch(batch)
	a.world.Settle()
	level := func(kind, physnet string, id int) neutron.List[neutron.BindingLevel] {
		return neutron.List[neutron.BindingLevel]{{Host: "hv1", Segment: neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: kind, PhysicalNetwork: physnet, SegmentationID: &id}}}}
	}
	bindings := neutron.List[neutron.Binding]{{Host: "hv1", Status: "ACTIVE"}}
	a.world.Ports(a.world.Missing(), []neutron.Port{
		{ID: "p1", NetworkID: "n1", AdminStateUp: true, Bindings: bindings, BindingLevels: level("vxlan", "", 7)},
		{ID: "p2", NetworkID: "n2", AdminStateUp: true, Bindings: bindings, BindingLevels: level("vlan", "physnet1", 9)},
	})
	a.world.Settle()
	for _, ip := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"} {
		endpoint := netip.MustParseAddr(ip)
		a.world.Tunnels.Up(world.Endpoint{Type: "vxlan", IP: endpoint})
		seven := 7
		a.world.Tunnels.FDBAdd(&neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"n1": {NetworkType: "vxlan", SegmentationID: &seven, Ports: map[netip.Addr][]neutron.FDBEntry{
			endpoint: {{IP: netip.IPv4Unspecified()}, {MAC: neutron.MAC{2, 1, 1, 1, 1, endpoint.As4()[3]}, IP: netip.MustParseAddr("192.168.0.9")}},
		}}}})
	}
	a.world.Settle()
	return a
}

// TestTunnelsAndNetworks: how they stand and who uses them, with L2 population and without.
func TestTunnelsAndNetworks(t *testing.T) {
	for _, l2population := range []bool{true, false} {
		a := tunnelHost(t, l2population)
		tunnels, err := withLoop(t, a, a.Tunnels)
		if err != nil || len(tunnels) != 3 {
			t.Fatalf("%+v, %v", tunnels, err)
		}
		for i, want := range []struct {
			remote, state, err string
			ofport             uint32
		}{{"10.0.0.2", "up", "", 3}, {"10.0.0.3", "failed", "no route", 0}, {"10.0.0.4", "missing", "", 0}} {
			got := tunnels[i]
			if got.Remote != want.remote || got.State != want.state || got.Error != want.err || got.OFPort != want.ofport || got.Type != "vxlan" || !slices.Equal(got.Networks, []string{"n1"}) {
				t.Errorf("L2 population %v: %+v", l2population, got)
			}
		}
		networks, err := withLoop(t, a, a.Networks)
		if err != nil || len(networks) != 2 {
			t.Fatalf("%+v, %v", networks, err)
		}
		slices.SortFunc(networks, func(x, y inspect.Network) int { return x.Number - y.Number })
		stations := 0
		if l2population {
			stations = 3
		}
		if n := networks[0]; n.ID != "n1" || n.Type != "vxlan" || n.Number != 7 || len(n.Endpoints) != 3 || n.Endpoints[0] != "10.0.0.2" || n.Stations != stations || !slices.Equal(n.Ports, []string{"p1"}) {
			t.Errorf("L2 population %v: %+v", l2population, n)
		}
		if n := networks[1]; n.ID != "n2" || n.Physical != "physnet1" || n.Number != 9 || n.Endpoints != nil {
			t.Errorf("L2 population %v: %+v", l2population, n)
		}
	}
}

// TestReasonsAndProgress: what is missing is said, one by one, until nothing is.
func TestReasonsAndProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := tunnelHost(t, true)
		reasons := func() []string { s := a.status(); return s.Reasons }
		say := func(part string, want bool) {
			t.Helper()
			if got := reasons(); has(got, part) != want {
				t.Errorf("%q in %q: %v", part, got, !want)
			}
		}
		waits := func(part string, want bool) { // of anything, not only of being in sync
			t.Helper()
			if got, _ := gate.Details(gate.Blockers(a.facts(time.Now(), gate.All)), gate.All); has(got, part) != want {
				t.Errorf("waits for %q in %q: %v", part, got, !want)
			}
		}
		say("no neutron-server has answered", true)
		a.versions = neutron.Versions{}
		say("no neutron-server has answered", false)
		a.report.failed = 1
		say("does not take our state reports", true)
		a.report.failed = 0
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
		o := world.Object{Kind: world.KindPort, ID: "p1"}
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
		a.switchUp = false
		say("the switch's database cannot be reached", true)
		a.switchUp = true
		// Of a network that the server has not told about, until everything has been pulled and reported once.
		a.world.Doubt()
		say("the forwarding entries of 1 network", true)
		a.syncedAt = time.Now()
		say("the forwarding entries of", false)
		say("bulk_pull of 2 ports is not answered yet", true)
		a.cfg.World.Physical, a.world.Config.Physical = nil, nil
		a.world.Ports(a.world.Missing(), []neutron.Port{*a.world.Port("p1").Details, *a.world.Port("p2").Details})
		a.world.Tunnels.Sync("vxlan", nil, a.world.Now())
		a.world.Settle()
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
			"not started": {func() { a.started = false }, func() { a.started = true }},
			"switch away": {func() { a.switchUp = false }, func() { a.switchUp = true }},
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
		if owner, _, ok := a.Why("br-none", someFlow(t).Key()); ok || owner != (world.Object{}) {
			t.Error("a bridge that is not ours has a reason")
		}
	})
}

// TestBridgeViews: role, network and datapath of each bridge.
func TestBridgeViews(t *testing.T) {
	a := tunnelHost(t, true)
	a.dataplane.Linked("br-tun", nil, errors.New("refused"), time.Now())
	list, err := withLoop(t, a, a.Bridges)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	if b := list[0]; b.Name != "br-ex" || b.Role != "physical" || b.Physical != "physnet1" || b.DatapathID != "" {
		t.Errorf("%+v", b)
	}
	if b := list[1]; b.Name != "br-int" || b.Role != "integration" || b.Physical != "" || b.DatapathID != "00aa" || b.Connected {
		t.Errorf("%+v", b)
	}
	if b := list[2]; b.Name != "br-tun" || b.Role != "tunnel" || b.Error != "refused" {
		t.Errorf("%+v", b)
	}
}
