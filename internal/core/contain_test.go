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
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// A push that deletes a port and a look at connections may come in one batch, before anything is worked out.
func TestADeletedPortAndItsConnections(t *testing.T) {
	a, batch := filtering(t, &cloud{}, &tracker{}, 1)
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.bridges.started, a.bridges.up = true, true
	a.world.Switch(batch)
	settle(t, a)
	p := a.world.Port("p0")
	if !a.world.Filtered(p) {
		t.Fatalf("p0 is %s: %s", p.Wiring.State, p.Wiring.Reason)
	}
	a.receive(effect.Message{Message: &messaging.Message{Topic: "neutron-vo-Port-1.7", Method: "push", Args: []byte(
		`{"event_type":"deleted","resource_list":[{"versioned_object.name":"Port","versioned_object.data":{"id":"p0"}}]}`)}})
	if p.Details != nil {
		t.Fatal("not deleted")
	}
	ip := netip.MustParseAddr("10.0.0.1")
	a.receive(effect.ConnectionsListed{Found: []zones.Connections{{Zone: p.Wiring.VLAN, List: []conntrack.Connection{{Src: ip, Dst: ip, Protocol: 6}}}}})
	if n := a.contained.panics; n != 0 {
		t.Errorf("%d panics: %+v", n, a.contained.quarantined())
	}
}

// refusing is an extension that marks ports with a flow, until it cannot.
type refusing struct {
	idle
	w     *world.World
	value uint64
}

func (*refusing) Name() string { return "refusing" }

func (r *refusing) Compile(o world.Object, want *pipeline.Want) {
	id, _ := world.PortID(o)
	if p := r.w.Port(id); p != nil && p.Wiring.State == world.Wired {
		want.Flow("br-int", "marked", openflow.Flow{Table: 201, Priority: 1, Match: openflow.Match{openflow.FromPort(p.VIF.OFPort), openflow.Num(openflow.EthType, r.value)}})
	}
}

// An error of an extension leaves its last part of an object in force, and does not hold up what others want of it. So does an error of
// the core.
func TestAnExtensionThatCannotExpressItsPart(t *testing.T) {
	a, batch := filtering(t, &cloud{}, nil, 2)
	x := &refusing{w: a.world, value: 0x0800}
	a.extensions.Set = extension.Set{guard(extension.NewMember(x), &a.contained, &a.resyncing)}
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.bridges.started, a.bridges.up = true, true
	a.world.Switch(batch)
	settle(t, a)
	port := world.PortObject("p0")
	b := a.dataplane
	flows := b.Flows(port)
	if shown := shownFlows(a); !slices.ContainsFunc(shown, func(f inspect.Flow) bool { return f.Owner == port.String() && f.Reason == "marked" }) {
		t.Errorf("the reason of an extension's flow is not shown: %+v", shown)
	}
	x.value = 0x10000 // does not fit
	a.contained.round++
	a.compile(port)
	if b.Flows(port) != flows || flows < 10 {
		t.Errorf("%d flows, had %d", b.Flows(port), flows)
	}
	if held := a.contained.quarantined(); len(held) != 1 || held[0].Object != "port p0, extension refusing" || !strings.Contains(held[0].Effect, "last part stays") {
		t.Errorf("held: %+v", held)
	}
	fresh := world.PortObject("p1")
	delete(a.extensions.Set[0].Extension.(*guarded).parts, fresh)
	a.contained.round++
	a.compile(fresh)
	if b.Flows(fresh) != flows-1 {
		t.Errorf("without a last part: %d flows, want %d", b.Flows(fresh), flows-1)
	}
	x.value = 0x0800
	a.contained.round++
	a.compile(port)
	a.compile(fresh)
	if held := a.contained.quarantined(); len(held) > 0 || b.Flows(fresh) != flows {
		t.Errorf("held in the end: %+v", held)
	}
	// The error of what is not guarded is the whole object's.
	x.value, a.extensions.Set = 0x10000, extension.Set{extension.NewMember(x)}
	a.contained.round++
	a.compile(port)
	if held := a.contained.quarantined(); b.Flows(port) != flows || len(held) != 1 || held[0].Effect != asItWas {
		t.Errorf("%d flows, had %d; held: %+v", b.Flows(port), flows, held)
	}
	tag := func() bool {
		r := a.dataplane.Next(dataplane.Input{View: a.world.View, Connected: true, Unflushed: a.zones.unflushedZone}, time.Now())
		a.dataplane.Landed()
		return slices.Contains(r.Owners, world.Object(port))
	}
	if tag() {
		t.Error("rows of a port that stays as it was")
	}
	n := 77 // the interface has another number: what there is is of no use
	was := a.world.View.InterfaceByName("p0")
	a.world.Switch(&ovsdb.Batch{Seq: 9, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: was, New: &ovsdb.Interface{UUID: was.UUID, Name: "p0", OFPort: &n, ExternalIDs: was.ExternalIDs}}}})
	a.contained.round++
	settle(t, a)
	if held := a.contained.quarantined(); b.Flows(port) != 1 || held[0].Effect != shutOut || !tag() {
		t.Errorf("%d flows, held: %+v", b.Flows(port), held)
	}
}

// What an extension asked before it failed does not count once it is mended, also if the loop was not there in between.
func TestAnswersFromBeforeAnExtensionFailed(t *testing.T) {
	a := obeying(t, nil)
	for range 2 {
		a.extensions.Set = append(a.extensions.Set, guard(extension.NewMember(&curious{missing: []string{"q1"}}), &a.contained, &a.resyncing))
	}
	a.pulls.Set(a.pulls.needs(a.extensions.Set))
	calls := a.pulls.Next(a.world.Now(), time.Now(), false)
	a.extensions.Set[1].Extension.(*guarded).owes = true
	a.Core.resolve()
	if n := len(calls); n < 2 || !a.pulls.Counts(calls[n-2]) || a.pulls.Counts(calls[n-1]) {
		t.Errorf("%+v", calls)
	}
}

// The same panic reads the same, so that the log has it once.
func TestFramesOfAPanic(t *testing.T) {
	at := func() string {
		var p *effect.Panic
		err := effect.Try(nil, "", func() error { panic(errors.New("oops")) })
		if !errors.As(err, &p) {
			t.Fatal(err)
		}
		return p.Where
	}
	var all []string
	for range 2 {
		all = append(all, at())
	}
	if all[0] != all[1] || !strings.Contains(all[0], "TestFramesOfAPanic") || strings.Contains(all[0], "0x") {
		t.Errorf("%q", all)
	}
	var log strings.Builder
	a := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Recorder: &Recorder{}}, nil, time.Now())
	for range 10 {
		a.contained.tally(culprit{name: "thing"}, effect.Try(nil, "", func() error { panic("oops") }))
	}
	if n := strings.Count(log.String(), "panic recovered"); n != 1 || a.contained.panics != 10 {
		t.Errorf("%d lines, %d counted:\n%s", n, a.contained.panics, &log)
	}
}
