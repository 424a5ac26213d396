// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// settle has an agent take everything that has happened, outside its loop.
func settle(t *testing.T, a *host) {
	t.Helper()
	for {
		for _, o := range a.world.Resolve() {
			a.compile(o)
		}
		a.turn.begin(time.Now())
		a.pulls.ask(a.extensions.Set, a.server.versions, a.server.database.Open())
		a.reportPorts()
		if a.carryOut(t) == 0 {
			return
		}
	}
}

// obeyed tells an agent that its bridge has exactly what is wanted.
func obeyed(a *host) {
	var have []openflow.Entry
	for _, o := range a.world.Everything() {
		for _, f := range pipeline.Compile(a.world, &a.cfg.Settings, o).Flows {
			have = append(have, f.Entry)
		}
	}
	hasFlows(a, "br-int", have)
}

// hasFlows tells an agent that one of its bridges has flows. It is connected to it if it is not yet.
func hasFlows(a *host, name string, flows []openflow.Entry) {
	if !a.dataplane.Bridge(name).Connected {
		a.dataplane.Linked(name, obedient{}, nil, time.Now())
	}
	a.dataplane.Read(dataplane.Reading{Bridge: name, Conn: obedient{}, Flows: flows, MaxMeters: 9}, time.Now())
}

// rowsWritten tells an agent that all rows of what has its flows are as wanted.
func rowsWritten(a *host) {
	contain := a.dataplane.Contain
	a.dataplane.Contain = func(world.Object, func()) bool { return true }
	a.dataplane.Next(dataplane.Input{View: a.world.View, Connected: true, Unflushed: a.zones.unflushedZone}, time.Now())
	a.dataplane.Landed()
	a.dataplane.Contain = contain
}

func TestAPortThatTheServerPutDownIsReportedAgain(t *testing.T) {
	c := &cloud{}
	a, batch := filtering(t, c, nil, 1)
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.bridges.started, a.bridges.up = true, true
	a.world.Switch(batch)
	settle(t, a)
	if len(c.status) != 0 {
		t.Fatalf("reported before its filters were in place: %v", c.status)
	}
	obeyed(a)
	push := func(revision int, status string) {
		t.Helper()
		p := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: []neutron.Primitive{told(t, neutron.KindPort, fake.PluggedPort("p0", revision, status))}}
		if err := a.world.Push(p, time.Now()); err != nil {
			t.Fatal(err)
		}
		settle(t, a)
	}
	const report = "up [p0] down []"
	settle(t, a)
	want := []string{report}
	for _, step := range []struct {
		revision int
		status   string
		again    bool
	}{{5, "DOWN", false}, {6, "ACTIVE", false}, {7, "DOWN", true}, {7, "DOWN", false}, {6, "DOWN", false}, {8, "ACTIVE", false}, {9, "BUILD", true}} {
		push(step.revision, step.status)
		if step.again {
			want = append(want, report)
		}
		if !slices.Equal(c.status, want) {
			t.Fatalf("after %s at revision %d: %v, want %v", step.status, step.revision, c.status, want)
		}
	}
}

func TestConnectionTrackingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ct := &tracker{began: time.Now()}
		a, batch := filtering(t, &cloud{}, ct, 2)
		a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
		a.bridges.started = true
		batch.Ports[0].New.OtherConfig = nil // nothing says that its network had VLAN 1
		batch.Ports[1].New.OtherConfig = nil
		a.world.Switch(batch)
		settle(t, a)
		makeRound(t, a, nil)
		if !slices.Equal(ct.calls, []string{"flush 1 at 0s"}) {
			t.Fatalf("a VLAN with a new network: %v", ct.calls)
		}
		if r := makeRound(t, a, nil); len(r.Flush) > 0 {
			t.Errorf("emptied again: %v", r.Flush)
		}
		if !a.zones.TakeChanged()[1] {
			t.Error("filters of VLAN 1 changed, and it is not due")
		}
		ct.calls = nil
		// The rules of g0 let in who is 10.0.0.1, and nobody else.
		allowed := conntrack.Connection{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.5.0"), Protocol: 6, DstPort: 80}
		refused := allowed
		refused.Src = netip.MustParseAddr("10.0.0.2")
		ct.marked = []conntrack.Connection{refused, allowed}
		a.zones.Committed(map[uint16]bool{1: true}, time.Now())
		for range 100 {
			a.turn.begin(time.Now())
			a.zones.listConnections()
			a.carryOut(t)
			a.carryOut(t) // a listing is followed by a release
			time.Sleep(100 * time.Millisecond)
		}
		if !slices.Equal(ct.released, []conntrack.Connection{allowed}) {
			t.Errorf("released %v", ct.released)
		}
		if want := []string{"list 1 at 0s", "release 1 at 0s", "list 1 at 1s", "list 1 at 5s"}; !slices.Equal(ct.calls, want) {
			t.Errorf("looked for connections that are allowed again: %v, want %v", ct.calls, want)
		}
	})
}

func TestWhatIsFoundOnTheBridge(t *testing.T) {
	entry := func(text string) openflow.Entry {
		f, err := openflow.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	const normal = "table=0,priority=0,actions=NORMAL"
	const drop, open, high = "table=0,priority=0,actions=drop", "table=0,priority=0,cookie=0x7,actions=resubmit(,59)", "table=0,priority=1,actions=drop"
	for _, c := range []struct {
		flows  []string
		closed bool
	}{{nil, true}, {[]string{drop}, true}, {[]string{open}, false}, {[]string{high}, true}, {[]string{high, open}, false}, {[]string{normal}, true}} {
		a, _ := filtering(t, &cloud{}, nil, 0)
		var entries []openflow.Entry
		for _, f := range c.flows {
			entries = append(entries, entry(f))
		}
		if a.bridges.adopt(entries); a.world.Closed() != c.closed {
			t.Errorf("%v: closed is %v", c.flows, a.world.Closed())
		}
	}
	got := conjunctionIDs(entry("table=72,priority=73,reg6=1,actions=conjunction(18,1/2),conjunction(27,1/2)"))
	got = append(got, conjunctionIDs(entry("table=72,priority=73,conj_id=43,ip,actions=resubmit(,73)"))...)
	if !slices.Equal(got, []uint32{18, 27, 43}) {
		t.Errorf("conjunction ids %v", got)
	}
	// An id that another agent's flows bear is given up; one that our own bear stays.
	a := obeying(t, nil)
	c := world.Conjunction{Group: "g0", Remote: "m0", Direction: world.Ingress, IPVersion: 4}
	id := a.world.Members.ConjunctionID(c)
	bears := func(cookie uint64) openflow.Entry {
		return entry(fmt.Sprintf("table=72,priority=73,cookie=%#x,conj_id=%d,ip,actions=resubmit(,73)", cookie, id))
	}
	if a.bridges.adopt([]openflow.Entry{bears(pipeline.Cookie)}); id == 0 || a.world.Members.ConjunctionID(c) != id {
		t.Errorf("id %d, and %d beside a flow of ours that bears it", id, a.world.Members.ConjunctionID(c))
	}
	if a.bridges.adopt([]openflow.Entry{bears(7)}); a.world.Members.ConjunctionID(c) == id {
		t.Error("the id stays beside a flow of another agent that bears it")
	}
}
