// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// due lists the calls that are due.
func (h *host) due() (out []string) {
	h.resolve()
	for _, c := range h.x.Calls() {
		out = append(out, c.Key.String())
	}
	return out
}

// wired is a host with a trunk of one sub-port, all of which is in place.
func wired(t *testing.T) (*host, *bridge) {
	t.Helper()
	h := newHost(t)
	h.trunk(trunk1, parent1, sub(trunk1, sub1, 101))
	h.plug(trunk1, parent1)
	h.converge()
	h.said()
	return h, h.x.bridges[bridgeName(trunk1)]
}

var asksTrunks = trunksCall{}.String()

// TestPushesOfSubPorts: one that fits is taken, one that does not has the server asked, and one of another host is none of ours. Each counts alone.
func TestPushesOfSubPorts(t *testing.T) {
	mine := sub(trunk1, sub1, 101)
	binds, reports := bindCall{bridgeName(trunk1)}.String(), statusCall{bridgeName(trunk1)}.String()
	for name, c := range map[string]struct {
		event neutron.Event
		subs  []neutron.SubPort
		ports int // of the trunk afterwards
		due   []string
	}{
		"a new one":                         {neutron.Created, []neutron.SubPort{sub(trunk1, sub2, 102)}, 2, []string{binds}},
		"a new one after another host's":    {neutron.Created, []neutron.SubPort{sub(trunk2, sub3, 103), sub(trunk1, sub2, 102)}, 2, []string{binds}},
		"one that is there":                 {neutron.Created, []neutron.SubPort{mine}, 1, []string{asksTrunks}},
		"one that is there, and a new one":  {neutron.Created, []neutron.SubPort{mine, sub(trunk1, sub2, 102)}, 1, []string{asksTrunks}},
		"another host's":                    {neutron.Created, []neutron.SubPort{sub(trunk2, sub3, 103)}, 1, nil},
		"one that goes":                     {neutron.Deleted, []neutron.SubPort{mine}, 0, nil},
		"one that goes and was another":     {neutron.Deleted, []neutron.SubPort{sub(trunk1, sub1, 102)}, 1, []string{asksTrunks}},
		"one that goes and was never there": {neutron.Deleted, []neutron.SubPort{sub(trunk1, sub2, 102)}, 1, []string{asksTrunks}},
		"one that has changed":              {neutron.Updated, []neutron.SubPort{mine}, 1, []string{asksTrunks}},
	} {
		h, b := wired(t)
		p := &neutron.Push{Kind: neutron.KindSubPort, Event: c.event}
		for _, s := range c.subs {
			data, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			p.Objects = append(p.Objects, neutron.Primitive{Name: "SubPort", Version: "1.0", Data: data})
		}
		if err := h.set.OnPush(p); err != nil {
			t.Error(err)
		}
		if got := h.due(); len(b.trunk.SubPorts) != c.ports || !slices.Equal(got, c.due) {
			t.Errorf("%s: %d sub-ports, due %q, want %q", name, len(b.trunk.SubPorts), got, c.due)
		}
		if b.due != (c.ports != 1) {
			t.Errorf("%s: the status is to be reported: %v", name, b.due)
		}
		if c.ports == 0 {
			if _, known := b.macs[sub1]; known || len(b.bound) != 0 {
				t.Errorf("%s: %v, %v", name, b.macs, b.bound)
			}
			for h.apply() {
				h.resolve()
			}
			if got := h.due(); !slices.Equal(got, []string{reports}) {
				t.Errorf("%s: due %q", name, got)
			}
		}
	}
	h, _ := wired(t)
	bad := &neutron.Push{Kind: neutron.KindSubPort, Event: neutron.Created, Objects: []neutron.Primitive{{Name: "SubPort", Data: []byte("7")}}}
	if h.set.OnPush(bad) == nil {
		t.Error("nonsense is taken")
	}
	if h.set.Load(map[string]json.RawMessage{name: []byte("7")}) == nil {
		t.Error("nonsense is loaded")
	}
	if got := New(h.w).Name(); got != name {
		t.Errorf("%q", got)
	}
}

// TestASubPortThatGoesMeanwhile: one that is taken off a trunk whose VM is unplugged is not wired when the VM is back, not even until the server has
// answered. Within the grace the push says so; later nothing is known of the trunk, nor remembered by an agent that has been in sync since it started.
func TestASubPortThatGoesMeanwhile(t *testing.T) {
	for _, c := range []struct{ late, restart bool }{{false, false}, {true, false}, {true, true}} {
		late := c.late
		h := newHost(t)
		h.trunk(trunk1, parent1, sub(trunk1, sub1, 101), sub(trunk1, sub2, 102))
		h.plug(trunk1, parent1)
		h.converge()
		remembered, err := h.set.Save()
		if err != nil {
			t.Fatal(err)
		}
		h.unplug(parent1)
		h.resolve()
		if c.restart {
			h.restart()
			if err := h.set.Load(remembered); err != nil {
				t.Fatal(err)
			}
			h.w.Confirmed()
			h.resolve()
		}
		if late {
			h.pass(patchGrace)
			h.trunk(trunk1, parent1, sub(trunk1, sub2, 102)) // the push was lost
		} else {
			h.remove(parent1, sub(trunk1, sub1, 101))
		}
		h.plug(trunk1, parent1)
		h.away = true
		h.converge()
		if h.w.View.PortByName(patchName(subInner, sub1)) != nil {
			t.Errorf("%+v: the sub-port is wired before the server answers", c)
		}
		if wired := h.w.View.PortByName(patchName(subInner, sub2)) != nil; wired == late {
			t.Errorf("%+v: the other one is wired: %v", c, wired)
		}
		h.away = false
		h.converge()
		if h.w.View.PortByName(patchName(subInner, sub1)) != nil || h.w.View.PortByName(patchName(subInner, sub2)) == nil {
			t.Errorf("%+v: in the end\n%s", c, h.dump())
		}
	}
}

// TestAnswersThatCross: what was heard since a question was asked makes its answer old, and the question is asked again.
func TestAnswersThatCross(t *testing.T) {
	for name, news := range map[string]func(h *host){
		"":                func(*host) {},
		"a push":          func(h *host) { h.push(neutron.Created, sub(trunk1, sub2, 102)) },
		"a resync":        func(h *host) { h.x.Resync() },
		"a VM that comes": func(h *host) { h.unplug(parent1); h.resolve(); h.plug(trunk1, parent1); h.resolve() },
	} {
		h, b := wired(t)
		h.x.Resync()
		if got := h.due(); !slices.Equal(got, []string{asksTrunks}) {
			t.Fatalf("due %q", got)
		}
		call := h.x.Calls()[0]
		result, err := h.run(call)
		news(h)
		h.x.OnCall(call.Key, result, err)
		if h.resolve(); b.answered != (name == "") {
			t.Errorf("%s: the answer counts: %v", name, b.answered)
		}
		h.x.OnCall(call.Key, result, errAway)
	}
	// What the server has bound is news as well: a status that was on its way says nothing about it.
	h, b := wired(t)
	h.push(neutron.Created, sub(trunk1, sub2, 102))
	h.resolve()
	seq := b.seq
	call := h.x.Calls()[0]
	result, err := h.run(call)
	h.x.OnCall(call.Key, result, err)
	if b.seq == seq || !b.due || b.macs[sub2] != macOf(sub2) {
		t.Errorf("%+v", b)
	}
	h.x.OnCall(statusCall{b.name}, seq, nil)
	if !b.due {
		t.Error("the status of before counts")
	}
	h.x.OnCall(statusCall{b.name}, b.seq, nil)
	if b.due {
		t.Error("the status does not count")
	}
	h.x.OnCall(statusCall{"none"}, b.seq, nil)
	h.x.OnCall(bindCall{"none"}, bound{}, nil)
}

// TestLearning: what an answer changes has the status reported; sub-ports that are gone are forgotten.
func TestLearning(t *testing.T) {
	active := func(subs ...neutron.SubPort) *neutron.Trunk {
		return &neutron.Trunk{ID: trunk1, PortID: parent1, Status: neutron.TrunkActive, SubPorts: subs}
	}
	for name, c := range map[string]struct {
		now *neutron.Trunk
		due bool
	}{
		"the same":              {active(sub(trunk1, sub1, 101)), false},
		"not active":            {&neutron.Trunk{ID: trunk1, PortID: parent1, Status: "DOWN", SubPorts: []neutron.SubPort{sub(trunk1, sub1, 101)}}, true},
		"a sub-port less":       {active(), true},
		"a sub-port that moved": {active(sub(trunk1, sub1, 102)), true},
	} {
		_, b := wired(t)
		if b.due {
			t.Fatal("due before")
		}
		b.answered = false
		b.learn(c.now)
		_, known := b.macs[sub1]
		if b.due != c.due || !b.answered || !b.confirmed || b.trunk != c.now || known != slices.Contains(c.now.SubPorts, sub(trunk1, sub1, 101)) {
			t.Errorf("%s: %+v", name, b)
		}
	}
	_, b := wired(t)
	if b.learn(nil); b.trunk != nil || b.confirmed || !b.answered {
		t.Errorf("%+v", b)
	}
}

// TestAVMThatMoved: once the server has the parent on another host, nothing of it is touched here until it is unplugged.
func TestAVMThatMoved(t *testing.T) {
	h, b := wired(t)
	p := h.w.Port(parent1)
	if p == nil {
		t.Fatal("the parent's patch is no port")
	}
	p.Wiring.State = world.Wired
	if h.x.Resolve([]world.Object{world.BridgeObject("br-int"), world.PortObject("none"), world.PortObject(parent1)}); b.moved {
		t.Error("moved without a reason")
	}
	p.Wiring.State = world.Moved
	got := h.x.Resolve([]world.Object{world.BridgeObject("br-int"), world.PortObject("none"), world.PortObject(parent1)})
	if !b.moved || !slices.Equal(got, []world.Object{own.Object(ownKey(b.name))}) {
		t.Errorf("moved %v, %v", b.moved, got)
	}
	b.due = true
	b.bound = map[string]bool{}
	if _, wants := h.x.wanted(b); wants || b.reportable() || len(b.unbound()) != 0 {
		t.Errorf("%+v", b)
	}
	if got := h.x.Resolve(nil); len(got) != 0 {
		t.Errorf("looked at again without a reason: %v", got)
	}
	h.unplug(parent1)
	h.resolve()
	if h.plug(trunk1, parent1); b.moved && len(h.due()) == 0 {
		t.Error("a VM that is back is left alone")
	}
	if h.resolve(); b.moved {
		t.Error("moved for ever")
	}
}

// TestAnotherVM: the trunk of the one before does not count for it; what an earlier run knew counts on the bridge that it was about.
func TestAnotherVM(t *testing.T) {
	h, b := wired(t)
	h.unplug(parent1)
	h.resolve()
	h.away = true
	h.others(func(tx *ovsdb.Tx) {
		tx.EnsurePort(ovsdb.PortSpec{Bridge: b.name, Name: tap(parent2), ExternalIDs: map[string]string{"iface-id": parent2, "attached-mac": macOf(parent2).String(), "iface-status": "active"}})
	})
	if h.resolve(); b.trunk != nil || b.confirmed || h.x.parents[parent2] != b.name || h.x.parents[parent1] != "" {
		t.Errorf("%+v, %v", b, h.x.parents)
	}
	for trunk, want := range map[string]bool{trunk1: true, trunk2: false} {
		h := newHost(t)
		h.away = true
		h.x.recalled[parent1] = memory{Parent: parent1, Trunk: trunk, SubPorts: []neutron.SubPort{sub(trunk, sub1, 101)}, MACs: map[string]neutron.MAC{sub1: macOf(sub1)}}
		h.plug(trunk1, parent1)
		h.converge()
		b := h.x.bridges[bridgeName(trunk1)]
		if (b.trunk != nil) != want || b.confirmed || strings.Contains(h.dump(), sub1) != want || len(h.x.recalled) != 0 {
			t.Errorf("what is recalled of %s: %+v\n%s", trunk, b, h.dump())
		}
	}
}

// TestDeadlines: the earliest counts, whatever the order, and what has passed is done once.
func TestDeadlines(t *testing.T) {
	for range 20 { // in any order
		h := newHost(t)
		h.x.bridges["tbr-a"] = &bridge{name: "tbr-a", empty: h.now}
		h.x.bridges["tbr-b"] = &bridge{name: "tbr-b", empty: h.now.Add(-time.Second)}
		h.x.bridges["tbr-c"] = &bridge{name: "tbr-c"}
		for name := range h.x.bridges {
			h.x.busy[name] = true
		}
		h.x.strays["tpi-x"] = &stray{since: h.now.Add(time.Second)}
		if got := h.x.Deadline(); !got.Equal(h.now.Add(patchGrace - time.Second)) {
			t.Fatalf("%v", got.Sub(h.now))
		}
		h.x.OnTime(h.now.Add(patchGrace))
		if a, c := h.x.bridges["tbr-a"], h.x.bridges["tbr-c"]; !a.patchesGo || a.bridgeGoes || c.patchesGo || h.x.strays["tpi-x"].goes || len(h.x.suspects) != 0 || len(h.x.touched) != 2 {
			t.Fatalf("%+v, %+v, %v", a, h.x.strays["tpi-x"], h.x.suspects)
		}
		h.x.OnTime(h.now.Add(patchGrace + time.Second))
		if s := h.x.strays["tpi-x"]; !s.goes || !h.x.suspects["tpi-x"] {
			t.Fatalf("%+v", s)
		}
		clear(h.x.suspects)
		if h.x.OnTime(h.now.Add(bridgeGrace)); len(h.x.suspects) != 0 || !h.x.bridges["tbr-a"].bridgeGoes {
			t.Fatalf("%v", h.x.suspects)
		}
		if !h.x.Deadline().IsZero() {
			t.Fatalf("%v", h.x.Deadline())
		}
	}
}

// TestExplainingSubPorts: what the server has bound, could not bind, and has not been asked for.
func TestExplainingSubPorts(t *testing.T) {
	h, b := wired(t)
	h.x.bridges["tbr-other"] = &bridge{name: "tbr-other", parent: parent{id: "other"}} // of which nothing is known
	for _, c := range []struct {
		bound map[string]bool
		want  string
	}{
		{map[string]bool{sub1: true}, "trunk: VLAN 101 is sub-port " + sub1}, {map[string]bool{sub1: false}, "trunk: VLAN 101 is sub-port " + sub1 + ", which the server could not bind"},
		{map[string]bool{}, "trunk: VLAN 101 is sub-port " + sub1 + ", which the server has not bound yet"},
	} {
		b.bound = c.bound
		for range 5 { // bridges come in any order
			if got := h.set.Explain(world.PortObject(parent1)); len(got) != 2 || got[1] != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if got := h.set.Explain(world.PortObject(sub1)); len(got) != 1 || !strings.Contains(got[0], "VLAN 101") {
				t.Errorf("%q", got)
			}
		}
	}
	if got := h.set.Explain(world.BridgeObject("br-int")); len(got) != 0 {
		t.Errorf("%q", got)
	}
	var _ extension.Explainer = h.x
}
