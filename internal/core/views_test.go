// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// TestBridgesForPeople: what each is for, and why it cannot be reached.
func TestBridgesForPeople(t *testing.T) {
	a := tunnelHost(t, true)
	a.dataplane.Linked("br-int", obedient{}, nil, time.Now())
	a.dataplane.Linked("br-tun", nil, errors.New("no"), time.Now())
	a.world.View.BridgeByName("br-int").DatapathID = "0000000000000001"
	want := map[string]string{"br-int": "integration  true  0000000000000001", "br-tun": "tunnel  false no "}
	for physnet, name := range a.cfg.World.Physical {
		want[name] = "physical " + physnet + " false  "
	}
	got := a.Look(time.Now()).AllBridges()
	for _, b := range got {
		if text := fmt.Sprintf("%s %s %v %s %s", b.Role, b.Physical, b.Connected, b.Error, b.DatapathID); text != want[b.Name] {
			t.Errorf("%s: %q, want %q", b.Name, text, want[b.Name])
		}
	}
	if len(got) != len(want) || len(want) != 3 {
		t.Errorf("%+v", got)
	}
}

// TestTheStatus: each part from where it belongs.
func TestTheStatus(t *testing.T) {
	a := obeying(t, nil)
	a.world.Port("p1").Wiring.State = world.Waiting
	x := &whole{}
	a.extensions.Set = extension.Set{guard(extension.NewMember(x), &a.contained, &a.resyncing)}
	a.extensions.packets[packetKey{"whole", extension.Answered}] = 7
	a.cfg.Configurations.DatapathType = "netdev"
	s := a.Look(time.Now()).AgentStatus()
	if s.Ports["wired"] != 1 || s.Ports["waiting"] != 1 || s.Totals.Packets["whole"]["answered"] != 7 || s.Switch.Detail != "Open vSwitch 3.1.0, netdev" || len(s.Advisories) == 0 || s.FromSnapshot {
		t.Errorf("%+v", s)
	}
	f := a.Look(time.Now()).Facts(gate.All)
	flows := 0
	for _, b := range f.Bridges {
		flows += b.Flows
	}
	if s.Pending.Flows != flows || flows == 0 || s.Pending.Rows != f.Rows || s.Pending.Reports != f.Reports || f.Extensions[0].Waits != 7 || f.Extensions[0].Failed {
		t.Errorf("%+v, %+v", s.Pending, f)
	}
	before := s.Totals.Apply.Buckets[len(s.Totals.Apply.Buckets)-1].Count
	a.seen.noteRound(&dataplane.Round{})
	if s.Totals.Apply.Buckets[len(s.Totals.Apply.Buckets)-1].Count != before {
		t.Error("a status changes after it was given")
	}
	a.extensions.Set[0].Extension.(*guarded).owes = true
	if f := a.Look(time.Now()).Facts(gate.All); !f.Extensions[0].Failed || f.Extensions[0].Waits != 0 {
		t.Errorf("%+v", f.Extensions)
	}
	a.bridges.up = false
	if s := a.Look(time.Now()).AgentStatus(); s.Switch.Detail != "" {
		t.Errorf("%q of a switch that is away", s.Switch.Detail)
	}
	v := a.Look(time.Now())
	a.reports.lastPlug, a.wakeAt = time.Unix(5, 0), time.Unix(6, 0)
	a.contained.hold(culprit{name: "x"}, errors.New("no"), "y")
	if !v.LastPlug().Equal(time.Unix(5, 0)) || v.NextStep().IsZero() || !slices.Equal(v.Quarantined(), []string{"x"}) {
		t.Errorf("%v, %v, %q", v.LastPlug(), v.NextStep(), v.Quarantined())
	}
	if f := v.Facts(gate.All); len(f.Held) != 1 || f.Held[0] != (gate.Held{Object: "x", Effect: "y"}) {
		t.Errorf("%+v", f.Held)
	}
	for i := range maxRejected + 3 {
		o := port(fmt.Sprint("r", i))
		a.dataplane.Set(o, pipeline.Want{Waiting: "x"})
		rowsRefused(a, o)
		if f := v.Facts(gate.All); len(f.Rejected) != min(i+1, maxRejected) || f.Rejected[0] != (gate.Rejected{Object: "port r0", Times: 1}) {
			t.Errorf("%+v", f.Rejected)
		}
	}
}

// TestACopyOfAPort has what the port has, and stays as it is.
func TestACopyOfAPort(t *testing.T) {
	a := obeying(t, nil)
	x := &whole{}
	a.extensions.Set = extension.Set{guard(extension.NewMember(x), &a.contained, &a.resyncing)}
	p := a.world.Port("p0")
	now := time.Unix(1000, 0)
	*a.reports.of["p0"] = timeline{plugged: now, answered: now.Add(1), applied: now.Add(2), reported: now.Add(3)}
	c := a.Look(now).CopyPort(p)
	got := c.Document()
	if got.Interface != "p0" || got.OFPort != p.VIF.OFPort || got.Segment != "local" || got.VLAN != p.Wiring.VLAN || !got.Filtered || got.Applied || got.Flows != a.dataplane.Flows(port("p0")) || got.Flows == 0 ||
		!got.Timeline.Reported.Equal(now.Add(3)) || !got.Timeline.Plugged.Equal(now) || !slices.Equal(got.Notes, []string{"because"}) || got.Reported != "" {
		t.Errorf("%+v", got)
	}
	obeyed(a)
	rowsWritten(a)
	b := a.reports.Next([]report.Claim{{Port: "p0", Status: report.Up, Interface: "i", Applied: true}}, nil, now)
	a.reports.Done(b[0], report.Result{}, now)
	c = a.Look(now).CopyPort(p)
	name := p.VIF.Name
	p.VIF.Name = "another"
	if got := c.Document(); !got.Applied || got.Reported != "up" || got.Interface != name {
		t.Errorf("%+v", got)
	}
	p.VIF, p.Details, p.Wiring = nil, nil, world.Wiring{}
	delete(a.reports.of, "p0")
	c = a.Look(now).CopyPort(p)
	if got := c.Document(); got.Interface != "" || got.Segment != "" || !got.Timeline.Plugged.IsZero() || got.Role != "" {
		t.Errorf("%+v", got)
	}
}

// TestProgress: an agent is complete when it is idle, has pruned and nothing is missing; before that it says what is.
func TestProgress(t *testing.T) {
	ready := func() *host {
		a := obeying(t, nil)
		a.seen.broker.Up, a.reports.firstSync = true, time.Now()
		obeyed(a)
		settle(t, a)
		rowsWritten(a)
		a.dataplane.Prune(a.now())
		return a
	}
	for name, change := range map[string]func(a *host){
		"":           func(*host) {},
		"not pruned": func(a *host) { a.dataplane.PruneAgain() },
		"not idle":   func(a *host) { fly(a) },
		"asking":     func(a *host) { a.world.Resync() },
	} {
		a := ready()
		change(a)
		p := a.Look(time.Now()).AgentProgress()
		if p.Complete != (name == "") || p.Idle != (name != "not idle") || (len(p.Missing) > 0) != (name == "not idle" || name == "asking") {
			t.Errorf("%q: %+v", name, p)
		}
	}
}
