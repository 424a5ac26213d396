// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// TestMessagesReachTheWorld: each cast of the server, as it comes.
func TestMessagesReachTheWorld(t *testing.T) {
	a := tunnelHost(t, false)
	cast := func(topic, method, args string) {
		a.message(&messaging.Message{Topic: topic, Method: method, Args: []byte(args)})
	}
	e := world.Endpoint{Type: "vxlan", IP: netip.MustParseAddr("10.0.0.9")}
	cast(neutron.TopicTunnelUpdate, "tunnel_update", `{"tunnel_ip":"10.0.0.9","tunnel_type":"vxlan"}`)
	if !a.world.Tunnels.Wanted(e) {
		t.Error("an endpoint that was announced is not wanted")
	}
	cast(neutron.TopicTunnelDelete, "tunnel_delete", `{"tunnel_ip":"10.0.0.9","tunnel_type":"vxlan"}`)
	if a.world.Tunnels.Wanted(e) {
		t.Error("an endpoint that was taken back is wanted")
	}
	a = tunnelHost(t, true)
	s := a.world.Segments.Get(world.SegmentKey{Network: "n1", ID: 7})
	entry := `{"fdb_entries":{"n1":{"network_type":"vxlan","segment_id":7,"ports":{"10.0.0.2":[["02:00:00:00:00:77","192.168.0.7"]]}}}}`
	mac := neutron.MAC{2, 0, 0, 0, 0, 0x77}
	cast(neutron.TopicL2Population, "add_fdb_entries", entry)
	if _, ok := s.Station(mac); !ok {
		t.Error("an entry was not added")
	}
	cast(neutron.TopicL2Population, "update_fdb_entries", `{"fdb_entries":{"chg_ip":{"n1":{"10.0.0.2":{"before":[["02:00:00:00:00:77","192.168.0.7"]],"after":[["02:00:00:00:00:77","192.168.0.8"]]}}}}}`)
	if found, ok := s.Station(mac); !ok || found.IPs[0] != netip.MustParseAddr("192.168.0.8") {
		t.Errorf("%+v, %v", found, ok)
	}
	cast(neutron.TopicL2Population, "remove_fdb_entries", `{"fdb_entries":{"n1":{"network_type":"vxlan","segment_id":7,"ports":{"10.0.0.2":[["02:00:00:00:00:77","192.168.0.8"]]}}}}`)
	if _, ok := s.Station(mac); ok {
		t.Error("an entry was not removed")
	}
	if !a.resyncing.at.IsZero() {
		t.Error("a message that was understood makes us check everything")
	}
	cast(neutron.TopicTunnelUpdate, "tunnel_update", `{`)
	if a.resyncing.at.IsZero() {
		t.Error("a message that was not understood does not")
	}
}

// TestTheDatabaseIsBack: what failed for want of it is tried at once.
func TestTheDatabaseIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := filtering(t, &cloud{}, nil, 0)
		a.heard(errors.New("x"))
		if a.server.database.Open() {
			t.Error("any error counts")
		}
		a.heard(&messaging.RemoteError{Class: "DBConnectionError"})
		now := time.Now()
		a.pulls.Done(asks(a, pull.Filters, false, "g"), pull.Result{}, now)
		for range 9 {
			a.extensions.retries.Fail(effect.CallKey{Key: greet{}}, now)
		}
		if !a.server.database.Open() || len(a.pulls.Next(0, now, false)) != 0 {
			t.Error("not away")
		}
		a.heard(nil)
		if len(a.pulls.Next(0, now, false)) != 1 || a.server.database.Open() || a.extensions.retries.Waiting(effect.CallKey{Key: greet{}}, now) {
			t.Error("something still waits")
		}
	})
}

// TestZones: which zone an object's filters are in, and which ports wait for one.
func TestZones(t *testing.T) {
	a := obeying(t, nil)
	a.zones.noteZone(port("p0"))
	if len(a.zones.TakeChanged()) != 0 {
		t.Error("zones without connection tracking")
	}
	a = obeying(t, &tracker{})
	vlan := a.world.Port("p0").Wiring.VLAN
	for _, o := range a.world.Objects() {
		switch o.(type) {
		case world.PortObject, world.PeerObject:
		default:
			continue
		}
		a.zones.TakeChanged()
		a.zones.noteZone(o)
		if due := a.zones.TakeChanged(); len(due) != 1 || !due[vlan] {
			t.Errorf("%s: %v", o, due)
		}
	}
	for _, o := range []world.Object{port("none"), world.PeerObject{Segment: world.SegmentKey{Network: "none"}}, world.BridgeObject("br-int")} {
		a.zones.noteZone(o)
	}
	if due := a.zones.TakeChanged(); len(due) != 0 {
		t.Errorf("%v", due)
	}
	a.zones.Zones = zones.New()
	if zone, ok := a.zones.unflushedZone(port("p0")); zone != 0 || ok {
		t.Errorf("%d, %v", zone, ok)
	}
	a.zones.Allocated(vlan)
	for o, want := range map[world.Object]uint16{port("p0"): vlan, port("none"): 0, world.SegmentObject{Network: "p0"}: 0} {
		if zone, ok := a.zones.unflushedZone(o); zone != want || ok != (want != 0) {
			t.Errorf("%s: %d, %v", o, zone, ok)
		}
	}
}

// Only a port that the server does not have here, and did not say that it deletes, is absent: the reporter then has another port ask for forwarding entries.
func TestClaimOfAnAbsentPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := obeying(t, nil)
		if a.reports.claim("p0").Absent {
			t.Error("a port that the server has is absent")
		}
		unbound, deleted := *a.world.Port("p1").Details, obeying(t, nil)
		if err := deleted.world.Push(&neutron.Push{Kind: neutron.KindPort, Event: neutron.Deleted, Objects: []neutron.Primitive{told(t, neutron.KindPort, map[string]any{"id": "p0"})}}, time.Now()); err != nil {
			t.Fatal(err)
		}
		deleted.world.Resolve()
		if c := deleted.reports.claim("p0"); c.Absent || deleted.world.Port("p0").Wiring.State != world.Dead {
			t.Errorf("%+v", c)
		}
		unbound.BindingLevels = nil
		a.world.Ports([]string{"p0", "p1"}, []neutron.Port{unbound})
		a.world.Resolve()
		for _, id := range []string{"p0", "p1"} {
			if c := a.reports.claim(id); !c.Absent {
				t.Errorf("%+v", c)
			}
		}
	})
}

// TestTimelineOfAPort: when it was answered and in place is recorded once.
func TestTimelineOfAPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := obeying(t, nil)
		now := time.Now()
		l := a.reports.of["p0"]
		l.answered, l.applied = time.Time{}, time.Time{}
		claimed := func(id string, now time.Time) report.Claim {
			c := a.reports.claim(id)
			a.reports.checkApplied(&c, a.dataplane, a.contained.holds(port(c.Port)), now)
			return c
		}
		if c := claimed("p0", now); c.Status != report.Up || c.Interface != "ip0" || c.Applied || !l.answered.Equal(now) || !l.applied.IsZero() {
			t.Errorf("%+v, %+v", c, l)
		}
		obeyed(a)
		rowsWritten(a)
		later := now.Add(time.Second)
		if c := claimed("p0", later); !c.Applied || !l.answered.Equal(now) || !l.applied.Equal(later) {
			t.Errorf("%+v, %+v", c, l)
		}
		if c := claimed("p0", later.Add(time.Second)); !c.Applied || !l.applied.Equal(later) {
			t.Errorf("%+v, %+v", c, l)
		}
		if c := claimed("none", now); c != (report.Claim{Port: "none", Status: report.Down, Applied: true}) {
			t.Errorf("%+v", c)
		}
		// markApplied records it as well, for ports that were answered.
		l.applied = time.Time{}
		a.reports.placed(world.BridgeObject("p0"), later)
		if !l.applied.IsZero() {
			t.Error("a bridge was taken for a port")
		}
		a.reports.placed(port("p0"), later)
		a.reports.placed(port("p0"), later.Add(time.Second))
		if !l.applied.Equal(later) {
			t.Errorf("%+v", l)
		}
		l.applied = time.Time{}
		a.dataplane.Set(port("p0"), pipeline.Want{After: []ovsdb.Spec{ovsdb.When{}}})
		if a.nextRound(time.Now()); l.applied.IsZero() {
			t.Errorf("%+v", l)
		}
		// A port that is reported up once more has a timeline of its own, which begins once.
		l.plugged, l.state = now.Add(-time.Second), "as recorded"
		a.reports.restart("p0", later)
		a.reports.restart("p0", later.Add(time.Second))
		if *l != (timeline{plugged: later, answered: later, applied: later, state: "as recorded"}) {
			t.Errorf("%+v", l)
		}
	})
}

// TestDoubtAndMemory: what is written down is not written again before something changes.
func TestDoubtAndMemory(t *testing.T) {
	a := obeying(t, nil)
	a.cfg.Snapshot = true
	obeyed(a)
	settle(t, a)
	rowsWritten(a)
	if !a.open(gate.Complete) {
		t.Fatalf("not in sync: %q", a.Look(time.Now()).AgentStatus().Reasons)
	}
	a.memory.stale = true
	a.remember()
	if a.memory.stale || !a.memory.saving {
		t.Errorf("%+v", a.memory)
	}
	a.carryOut(t)
	if a.memory.stale || a.memory.saving {
		t.Errorf("%+v", a.memory)
	}
	a.memory.saved(effect.Saved{Err: errors.New("full")})
	if !a.memory.stale {
		t.Error("what could not be written is not written again")
	}
	for _, c := range []struct{ snapshot, stale, saving, unsaved, worth bool }{
		{true, false, false, false, false}, {true, true, false, true, true}, {true, false, true, true, false}, {true, true, true, true, false}, {false, true, true, false, false},
	} {
		a.cfg.Snapshot, a.memory.stale, a.memory.saving = c.snapshot, c.stale, c.saving
		if got := a.Look(time.Now()).Unsaved(); got != c.unsaved || a.memory.worth() != c.worth {
			t.Errorf("%+v: unsaved %v, worth writing %v", c, got, a.memory.worth())
		}
	}
}

// TestAnswersThatAreWorthKeeping: what the world does not tell of an answer by itself: endpoints of tunnels, and what extensions asked for.
func TestAnswersThatAreWorthKeeping(t *testing.T) {
	for _, c := range []struct {
		owner pull.Owner
		err   error
		want  bool
	}{
		{pull.Ports, nil, false}, {pull.Tunnels, errors.New("no"), false}, {pull.Tunnels, nil, true}, {pull.Extensions, errors.New("no"), false}, {pull.Extensions, nil, true},
	} {
		a := tunnelHost(t, false)
		a.world.Resync()
		a.extensions.Set = extension.Set{guard(extension.NewMember(&curious{missing: []string{"q1"}}), &a.contained, &a.resyncing)}
		a.pulls.Set(a.pulls.needs(a.extensions.Set))
		all := a.pulls.Next(a.world.Now(), time.Now(), false)
		i := slices.IndexFunc(all, func(b pull.Batch) bool { return b.Owner == c.owner })
		if i < 0 {
			t.Fatalf("nothing of %d is asked: %v", c.owner, all)
		}
		a.memory.stale = false
		if a.event(effect.Pulled{Batch: all[i], Err: c.err}); a.memory.stale != c.want {
			t.Errorf("owner %d, error %v: worth keeping %v", c.owner, c.err, a.memory.stale)
		}
		a.memory.stale = false
		if a.event(effect.Pulled{Batch: all[i], Err: c.err}); c.owner == pull.Extensions && a.memory.stale {
			t.Error("an answer that does not count is worth keeping")
		}
	}
}

// TestStrangersWhileMembersAreAsked: a port that nobody here has to do with is passed over, unless the answer to a question may have it: then its revision is kept.
func TestStrangersWhileMembersAreAsked(t *testing.T) {
	a := obeying(t, nil)
	passed := func() bool {
		t.Helper()
		p := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: []neutron.Primitive{told(t, neutron.KindPort, map[string]any{"id": "x", "revision_number": 9})}}
		if err := a.world.Push(p, time.Now()); err != nil {
			t.Fatal(err)
		}
		return a.world.Passed()
	}
	if !passed() {
		t.Error("kept without a question")
	}
	a.world.Resync()
	a.turn.begin(time.Now())
	a.pulls.ask(a.extensions.Set, a.server.versions, false)
	if s := a.pulls.Stats(pull.Filters); s.Checking == 0 || passed() {
		t.Errorf("passed over beside a question: %+v", s)
	}
	for a.carryOut(t) > 0 {
		a.pulls.ask(a.extensions.Set, a.server.versions, false)
	}
	if !passed() {
		t.Error("kept after the answer")
	}
}

// TestReportsThatBegin: only one that is sent while none is on its way is waited for.
func TestReportsThatBegin(t *testing.T) {
	a, _, batch := reportingAgent(t, 2, 20)
	send := func() (began bool, n int) {
		a.turn.begin(time.Now())
		began = a.reports.send(a.dataplane, func(world.Object) bool { return false })
		return began, len(a.turn.take().Do)
	}
	if began, n := send(); began || n != 0 {
		t.Errorf("begun without a reason: %v, %d", began, n)
	}
	a.world.Switch(moved(batch, ""))
	a.world.Resolve()
	a.compile(port("p0"))
	if began, n := send(); !began || n != 1 {
		t.Errorf("not begun: %v, %d", began, n)
	}
	a.compile(port("p1"))
	if began, n := send(); began || n != 1 {
		t.Errorf("begun beside another: %v, %d", began, n)
	}
	asks(a, pull.Filters, false, "g")
	if n := a.Look(time.Now()).Facts(gate.All).Calls; n != 3 {
		t.Errorf("%d calls are on their way, want two reports and a question", n)
	}
}

// TestEntriesThatMayCome: forwarding entries are waited for until the time for them is over, to the end of it.
func TestEntriesThatMayCome(t *testing.T) {
	a := tunnelHost(t, true)
	a.world.Resync()
	now := time.Unix(1000, 0)
	count := func(at time.Time) string { return fmt.Sprint(a.reports.missingEntries(at)) }
	if got := count(now); got != "1 1" {
		t.Errorf("before the first reports: %s", got)
	}
	a.turn.begin(now)
	if a.reports.synced(true); !a.wakeAt.After(now.Add(a.cfg.FDBGrace)) {
		t.Errorf("wakes at %v", a.wakeAt)
	}
	for after, want := range map[time.Duration]string{0: "0 1", a.cfg.FDBGrace: "0 1", a.cfg.FDBGrace + 1: "0 0"} {
		if got := count(now.Add(after)); got != want {
			t.Errorf("after %v: %s, want %s", after, got, want)
		}
	}
	if a.cfg.World.L2Population = false; count(now) != "0 0" {
		t.Errorf("without l2population: %s", count(now))
	}
}

// TestTheLastSnapshot: what changed shortly before the end is written down if all of it is known and nothing is being written.
func TestTheLastSnapshot(t *testing.T) {
	for name, change := range map[string]func(a *host){
		"":                   func(*host) {},
		"no file":            func(a *host) { a.cfg.Snapshot = false },
		"nothing changed":    func(a *host) { a.memory.stale = false },
		"one is on its way":  func(a *host) { a.memory.saving = true },
		"something is asked": func(a *host) { a.world.Resync() },
	} {
		a := obeying(t, nil)
		a.cfg.Snapshot = true
		obeyed(a)
		settle(t, a)
		rowsWritten(a)
		a.memory.stale = true
		change(a)
		if last := a.Last(time.Now()); (last != nil) != (name == "") {
			t.Errorf("%q: %v", name, last)
		}
	}
}

// TestReadyNeedsSomethingKnown: an agent that was never in sync and has no snapshot is not ready.
func TestReadyNeedsSomethingKnown(t *testing.T) {
	a, batch := filtering(t, &cloud{}, nil, 1)
	a.bridges.started, a.bridges.up = true, true
	a.world.Switch(batch)
	if a.Look(time.Now()).Facts(gate.All).Known || a.Look(time.Now()).AgentStatus().Ready {
		t.Error("ready though nothing is known")
	}
	a.reports.firstSync = time.Now()
	if !a.Look(time.Now()).Facts(gate.All).Known {
		t.Error("nothing is known after it was in sync")
	}
}

// TestShut: once everything is in place, and not before, interfaces that nobody knows are shut out.
func TestShut(t *testing.T) {
	ready := func() *host {
		a, batch := filtering(t, &cloud{}, nil, 2)
		a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
		a.bridges.started, a.bridges.up = true, true
		a.world.Switch(batch)
		settle(t, a)
		obeyed(a)
		settle(t, a)
		rowsWritten(a)
		return a
	}
	a := ready()
	if a.world.Closed() || !a.open(gate.Complete) {
		t.Fatalf("closed %v, in sync %v", a.world.Closed(), a.open(gate.Complete))
	}
	a.wakeAt = time.Time{}
	if a.shut(); !a.world.Closed() || a.wakeAt.IsZero() {
		t.Error("not shut although everything is in place")
	}
	for name, change := range map[string]func(*host){
		"no filters": func(a *host) { a.cfg.World.Filter = false }, "open": func(a *host) { a.cfg.World.FailClosed = false }, "asking": func(a *host) { asks(a, pull.Ports, false, "x") }, "asking for groups": func(a *host) { asks(a, pull.Filters, true, "x") },
		"no connection": func(a *host) { a.dataplane.Linked("br-int", nil, nil, time.Now()) }, "not read": func(a *host) { a.dataplane.Linked("br-int", obedient{}, nil, time.Now()) }, "flows to write": func(a *host) { hasFlows(a, "br-int", nil) },
	} {
		a := ready()
		change(a)
		if a.shut(); a.world.Closed() {
			t.Errorf("%s: shut", name)
		}
	}
}

// TestFirewallInTheStatus: which it is, and whether it is switched off.
func TestFirewallInTheStatus(t *testing.T) {
	for want, set := range map[string]func(*world.Config){
		"openvswitch": func(*world.Config) {}, "openvswitch, disabled": func(c *world.Config) { c.Filter = false }, "none": func(c *world.Config) { c.FilterTables = false },
	} {
		a, _ := filtering(t, &cloud{}, nil, 0)
		set(&a.cfg.World)
		if got := a.Look(time.Now()).AgentStatus().Firewall; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestUndecidedPortKeepsWhatItHas: what follows from new details and a wiring of old ones is right for neither.
func TestUndecidedPortKeepsWhatItHas(t *testing.T) {
	a := obeying(t, nil)
	obeyed(a)
	contain, fails := a.world.Contain, true
	a.world.Contain = func(o world.Object, work func()) bool { return !(fails && o == port("p0")) && contain(o, work) }
	details := *a.world.Port("p0").Details
	details.FixedIPs = append(neutron.List[neutron.FixedIP]{{IP: netip.MustParseAddr("192.0.2.77")}}, details.FixedIPs...)
	a.world.Port("p0").Details = &details
	flows := a.dataplane.Flows(port("p0"))
	for _, fails = range []bool{true, false} {
		a.world.Again(port("p0"))
		a.resolve()
		if now := a.dataplane.Flows(port("p0")); (now == flows) != fails {
			t.Errorf("fails %v: %d flows, before %d", fails, now, flows)
		}
	}
}

// TestUndecidedPortThatBecameSomethingElseIsShut: nobody vouches for it any more under the trust or the filters that it had.
func TestUndecidedPortThatBecameSomethingElseIsShut(t *testing.T) {
	a := obeying(t, nil)
	obeyed(a)
	contain := a.world.Contain
	a.world.Contain = func(o world.Object, work func()) bool { return o != port("p0") && contain(o, work) }
	p := a.world.Port("p0")
	details := *p.Details
	details.DeviceOwner = "network:dhcp"
	p.Details = &details
	a.world.Again(port("p0"))
	a.resolve()
	shut := a.contained.held[culprit{object: port("p0")}]
	if n := a.dataplane.Flows(port("p0")); shut == nil || shut.effect != shutOut || n > 2 {
		t.Errorf("held %+v, %d flows", shut, n)
	}
}

// TestStatusOfPorts that are not wired: on a bridge that is only reported, elsewhere, and disabled by its administrator.
func TestStatusOfPorts(t *testing.T) {
	a := obeying(t, nil)
	obeyed(a)
	rowsWritten(a)
	p := a.world.Port("p0")
	p.Ancillary = "anc"
	for state, want := range map[world.State]struct {
		status report.Status
		vif    string
	}{
		world.Ancillary: {report.Up, "anc"}, world.Elsewhere: {report.Down, "elsewhere"}, world.Down: {report.AdminDown, "ip0"}, world.Dead: {report.Unknown, ""},
	} {
		p.Wiring.State = state
		c := a.reports.claim("p0")
		if a.reports.checkApplied(&c, a.dataplane, a.contained.holds(port("p0")), time.Now()); c.Status != want.status || string(c.Interface) != want.vif || !c.Applied {
			t.Errorf("%s: %+v", state, c)
		}
	}
	// An extension may be about to bring a port here that is elsewhere.
	p.Wiring.State = world.Elsewhere
	a.dataplane.Set(port("p0"), pipeline.Want{Waiting: "its trunk"})
	waits := a.reports.claim("p0")
	if a.reports.checkApplied(&waits, a.dataplane, false, time.Now()); waits.Applied {
		t.Errorf("reported while it waits: %+v", waits)
	}
	a.dataplane.Set(port("p0"), pipeline.Want{})
	// Of a port that is held the server is told nothing.
	p.Wiring.State = world.Down
	a.contained.rows[port("p0")] = true
	c := a.reports.claim("p0")
	if a.reports.checkApplied(&c, a.dataplane, a.contained.holds(port("p0")), time.Now()); c.Status != report.Unknown || c.Interface != "" || !c.Applied {
		t.Errorf("held: %+v", c)
	}
}

// TestAnswersAboutGroups: by halves after a refusal; what came is not waited for any longer; a decoder's panic is counted.
func TestAnswersAboutGroups(t *testing.T) {
	a := obeying(t, nil)
	a.event(effect.Pulled{Batch: asks(a, pull.Filters, false, "a", "b", "c"), Err: &messaging.RemoteError{Class: "KeyError"}})
	b := asks(a, pull.Filters, false, "a", "b", "c")
	if len(b.IDs) != 2 || a.pulls.Stats(pull.Filters).Failing != 0 {
		t.Errorf("asks about %v, %+v", b.IDs, a.pulls.Stats(pull.Filters))
	}
	a.event(effect.Pulled{Batch: b, Err: &messaging.RemoteError{Class: "DBConnectionError"}})
	if !a.server.database.Open() || a.pulls.Stats(pull.Filters).Failing != 2 {
		t.Errorf("%+v", a.pulls.Stats(pull.Filters))
	}
	a.heard(nil)
	before := a.contained.panics
	a.event(effect.Pulled{Batch: asks(a, pull.Filters, false, "a", "b"), Reply: effect.Reply{Groups: []neutron.SecurityGroup{{ID: "b"}}, Bad: &neutron.DecodePanic{}}})
	if a.pulls.Stats(pull.Filters).Failing != 1 || a.contained.panics != before+1 {
		t.Errorf("%+v, %d panics", a.pulls.Stats(pull.Filters), a.contained.panics)
	}
	// A deleted group that an answer still has is asked for again, after a pause.
	gone := &neutron.Push{Kind: neutron.KindSecurityGroup, Event: neutron.Deleted, Objects: []neutron.Primitive{told(t, neutron.KindSecurityGroup, map[string]any{"id": "d"})}}
	if err := a.world.Push(gone, time.Now()); err != nil {
		t.Fatal(err)
	}
	a.event(effect.Pulled{Batch: asks(a, pull.Filters, false, "d"), Reply: effect.Reply{Groups: []neutron.SecurityGroup{{ID: "d"}}}})
	if n := a.pulls.Stats(pull.Filters).Failing; n != 1 {
		t.Errorf("%d failing, want the deleted group", n)
	}
	a.event(effect.Pulled{Batch: asks(a, pull.Ports, false, "p0"), Err: &messaging.RemoteError{Class: "DBConnectionError"}})
	if !a.server.database.Open() {
		t.Error("an answer about ports does not say that the database is away")
	}
}
