// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// replug has the port's interface go and come again.
func replug(w *World) {
	i, p, br := w.View.InterfaceByName("tap1"), w.View.PortByName("tap1"), w.View.BridgeByName("br-int")
	empty := *br
	empty.Ports = nil
	w.Switch(&ovsdb.Batch{
		Seq: w.View.Seq() + 1, Kind: ovsdb.Update, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{Old: br, New: &empty}},
		Ports: []ovsdb.Diff[ovsdb.Port]{{Old: p}}, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: i}},
	})
	w.Resolve()
	w.Switch(&ovsdb.Batch{
		Seq: w.View.Seq() + 1, Kind: ovsdb.Update, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{Old: &empty, New: br}},
		Ports: []ovsdb.Diff[ovsdb.Port]{{New: p}}, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: i}},
	})
	w.Resolve()
}

// What a port was before it was deleted may be told late, when no tombstone is left of it: the server has the last word.
func TestTheServerHasTheLastWordAboutAPort(t *testing.T) {
	data, err := json.Marshal(map[string]any{
		"id": "p1", "network_id": "n1", "mac_address": "fa:16:3e:00:00:01", "admin_state_up": true, "device_owner": "compute:nova", "revision_number": 5,
		"bindings": []any{map[string]any{"versioned_object.data": map[string]any{"host": "hv1", "status": "ACTIVE", "profile": "{}"}}},
		"binding_levels": []any{map[string]any{"versioned_object.data": map[string]any{"host": "hv1", "level": 0, "segment": map[string]any{
			"versioned_object.data": map[string]any{"network_type": "vxlan", "segmentation_id": 7},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	push := func(w *World) {
		if err := w.Push(&neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: []neutron.Primitive{{Name: "Port", Data: data}}}, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		w.Resolve()
		if got := w.Port("p1").Wiring; got.State != Wired {
			t.Fatalf("pushed, it is %s (%s)", got.State, got.Reason)
		}
	}
	unknown := func(w *World) { w.Ports(w.Missing(), nil) }
	one := 1
	for name, late := range map[string]func(w *World){
		"pushed before it was asked about": push,
		"pushed while the question was on its way": func(w *World) {
			ids, then := w.Missing(), w.Now()
			push(w)
			if w.PortsAsked(then, ids, nil); w.Port("p1").Details == nil || w.Port("p1").Answered {
				t.Error("what was pushed after the question does not count")
			}
		},
		"pushed after the answer": func(w *World) {
			unknown(w)
			push(w)
		},
		"answered before it was plugged in anew": func(w *World) {
			ids, then := w.Missing(), w.Now()
			replug(w)
			w.PortsAsked(then, ids, []neutron.Port{bound(nil)})
			if p := w.Port("p1"); p.Details != nil || p.Answered {
				t.Errorf("it has the answer to another's question: %+v", p)
			}
		},
		"answered after a later question": func(w *World) {
			ids, then := w.Missing(), w.Now()
			replug(w)
			unknown(w)
			w.PortsAsked(then, ids, []neutron.Port{bound(nil)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := plugged("br-int", &one, ovsdb.Interface{})
			late(w)
			w.Resolve()
			if p := w.Port("p1"); !p.Answered {
				unknown(w)
			}
			w.Resolve()
			if p := w.Port("p1"); p.Wiring.State != Dead || !p.Answered {
				t.Errorf("the server does not know the port, and it is %s (%s), answered: %v", p.Wiring.State, p.Wiring.Reason, p.Answered)
			}
		})
	}
}

// An older list of endpoints does not bring one back.
func TestALateListBringsNoEndpointBack(t *testing.T) {
	e := endpoint("vxlan/10.0.0.2")
	list := []netip.Addr{e.IP}
	for name, c := range map[string]struct {
		play func(w *World)
		up   bool
	}{
		"taken back while the list was on its way": {func(w *World) {
			w.Tunnels.Up(e)
			asked := w.Now()
			w.Tunnels.Gone(e)
			w.Tunnels.Sync("vxlan", list, asked)
		}, false},
		"taken back unknown": {func(w *World) {
			asked := w.Now()
			w.Tunnels.Gone(e)
			w.Tunnels.Sync("vxlan", list, asked)
		}, false},
		"announced again": {func(w *World) {
			asked := w.Now()
			w.Tunnels.Gone(e)
			w.Tunnels.Up(e)
			w.Tunnels.Sync("vxlan", nil, asked)
		}, true},
		"lists in the wrong order": {func(w *World) {
			first := w.Now()
			w.Resync()
			w.Tunnels.Sync("vxlan", nil, w.Now())
			w.Tunnels.Sync("vxlan", list, first)
		}, false},
		"lists in the right order, the first late": {func(w *World) {
			first := w.Now()
			w.Resync()
			second := w.Now()
			w.Tunnels.Sync("vxlan", list, first)
			w.Tunnels.Sync("vxlan", nil, second)
		}, false},
		"gone from the first list, and in the second": {func(w *World) {
			w.Tunnels.Up(e)
			first := w.Now()
			w.Resync()
			second := w.Now()
			w.Tunnels.Sync("vxlan", nil, first)
			w.Resync()
			w.Tunnels.Sync("vxlan", list, second)
		}, true},
		"asked for later": {func(w *World) {
			w.Tunnels.Gone(e)
			w.Tunnels.Sync("vxlan", list, w.Now())
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.L2Population = false
			w := New(cfg)
			c.play(w)
			if got := slices.Contains(w.Tunnels.WantedEndpoints(), e); got != c.up {
				t.Errorf("a tunnel is wanted: %v, want %v", got, c.up)
			}
		})
	}
}

// A push about a port that comes after the push that it was deleted makes it a member of its groups for nobody who listens only since then. The
// list is asked for once more, when such pushes have come in; and only once, however many come later.
func TestALatePushMakesNoMember(t *testing.T) {
	begin := time.Unix(1000, 0)
	listed := func(w *World) []Item {
		return slices.DeleteFunc(w.MissingItems(), func(i Item) bool { return i.Kind != neutron.KindPort })
	}
	push := func(w *World, id, ip string) {
		send(t, w, neutron.KindPort, neutron.Updated, wirePort(id, 5, ip, "g2"))
		if w.Resolve(); w.Members.byID[id] == nil {
			t.Fatalf("%s is no member", id)
		}
	}
	for _, lost := range []bool{false, true} {
		w := filtering(1)
		w.Time = begin
		s := &server{groups: map[string][]neutron.SecurityGroupRule{"g1": {rule("r", "g1", "remote=g2")}}}
		w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 1, "g1")})
		s.answers(w)
		if lost {
			w.Time = begin.Add(time.Hour)
			w.Resync()
			w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 1, "g1")})
			s.answers(w)
		}
		push(w, "gone", "10.1.0.1")
		push(w, "stays", "10.1.0.2")
		s.members = map[string]neutron.Member{"stays": member1("stays", "10.1.0.2", 5, "g2")}
		if w.Expire(w.Time.Add(latePush - 1)); len(listed(w)) != 0 {
			t.Errorf("lost %v: asks before late pushes are in", lost)
		}
		w.Time = w.Time.Add(latePush)
		if w.Expire(w.Time); len(listed(w)) != 1 {
			t.Errorf("lost %v: asks for %v", lost, w.MissingItems())
		}
		if s.answers(w); w.Members.byID["gone"] != nil || w.Members.byID["stays"] == nil {
			t.Errorf("lost %v: members %v", lost, w.Members.byID)
		}
		push(w, "new", "10.1.0.3")
		if w.Expire(w.Time.Add(time.Hour)); len(listed(w)) != 0 {
			t.Errorf("lost %v: asks again for %v", lost, w.MissingItems())
		}
	}
}

// A port that was plugged in here and deleted is pushed late: asked about it, the server does not know it, and it is no member either.
func TestALatePushOfAPortHereMakesNoMember(t *testing.T) {
	w := filtering(2)
	s := &server{groups: map[string][]neutron.SecurityGroupRule{"g1": {rule("r", "g1", "remote=g1")}}}
	w.Ports([]string{"p1", "p2"}, []neutron.Port{grouped(1, 1, "g1")})
	s.members = map[string]neutron.Member{"p1": member1("p1", "10.0.0.1", 1, "g1")}
	s.answers(w)
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("p2", 5, "10.0.0.2", "g1"))
	w.Resolve()
	if w.Members.byID["p2"] == nil || !slices.Equal(w.Missing(), []string{"p2"}) {
		t.Fatalf("members %v, missing %v", w.Members.byID, w.Missing())
	}
	w.Ports([]string{"p2"}, nil)
	if w.Resolve(); w.Members.byID["p2"] != nil || w.Members.byID["p1"] == nil {
		t.Errorf("members %v", w.Members.byID)
	}
}

// A port that is plugged in here is made a member by a push in the same way.
func TestALatePushOfAPortHereIsConfirmed(t *testing.T) {
	w := filtering(2)
	w.Time = time.Unix(1000, 0)
	s := &server{groups: map[string][]neutron.SecurityGroupRule{"g1": {rule("r", "g1", "remote=g2")}}}
	w.Ports([]string{"p1", "p2"}, []neutron.Port{grouped(1, 1, "g1"), grouped(2, 1)})
	s.answers(w)
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("p2", 5, "10.0.0.2", "g2"))
	if w.Resolve(); w.Members.byID["p2"] == nil {
		t.Fatal("p2 is no member")
	}
	w.Expire(w.Time.Add(latePush))
	if !slices.ContainsFunc(w.MissingItems(), func(i Item) bool { return i.String() == "Port g2" }) {
		t.Errorf("asks for %v", w.MissingItems())
	}
}

// The same with a rule, told alone or with its group.
func TestALatePushBringsNoRuleBack(t *testing.T) {
	wire := func(r neutron.SecurityGroupRule) map[string]any {
		return map[string]any{"id": r.ID, "security_group_id": r.SecurityGroupID, "direction": r.Direction, "ethertype": r.EtherType, "protocol": r.Protocol}
	}
	gone := rule("gone", "g1", "tcp")
	for name, late := range map[string]func(w *World){
		"rule": func(w *World) { send(t, w, neutron.KindSecurityGroupRule, neutron.Created, wire(gone)) },
		"group": func(w *World) {
			send(t, w, neutron.KindSecurityGroup, neutron.Updated, map[string]any{"id": "g1", "rules": []any{map[string]any{"versioned_object.data": wire(gone)}}})
		},
	} {
		w := filtering(1)
		w.Time = time.Unix(1000, 0)
		s := &server{groups: map[string][]neutron.SecurityGroupRule{"g1": {rule("stays", "g1", "udp")}}}
		w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 1, "g1")})
		s.answers(w)
		if late(w); w.Groups.groups["g1"].rules["gone"].rule == nil {
			t.Fatalf("%s: the rule is not taken", name)
		}
		s.answers(w)
		w.Time = w.Time.Add(latePush)
		w.Expire(w.Time)
		if s.answers(w); w.Groups.groups["g1"].rules["gone"].rule != nil || w.Groups.groups["g1"].rules["stays"].rule == nil {
			t.Errorf("%s: rules %v", name, w.Groups.groups["g1"].rules)
		}
		if late(w); len(w.MissingItems()) != 0 {
			t.Errorf("%s: asks at once for %v", name, w.MissingItems())
		}
		if w.Expire(w.Time.Add(time.Hour)); len(w.MissingItems()) != 0 {
			t.Errorf("%s: asks again for %v", name, w.MissingItems())
		}
	}
}

// A member that an earlier run knew comes into force when rules refer to its group again, unless something newer was heard of it since.
func TestARecalledMemberIsTheOldest(t *testing.T) {
	known := member1("m", "10.1.0.1", 5, "g2", "g3")
	before := filtering(1)
	s := &server{groups: map[string][]neutron.SecurityGroupRule{"g1": {rule("r2", "g1", "remote=g2"), rule("r3", "g1", "remote=g3")}}, members: map[string]neutron.Member{"m": known}}
	before.Ports([]string{"p1"}, []neutron.Port{grouped(1, 1, "g1")})
	s.answers(before)
	memory := before.Memory()
	begin := func() *World {
		w := filtering(1)
		w.Recall(memory)
		return w
	}
	memory.Members = append(memory.Members, MemberMemory{ID: "other", Revision: 1, Groups: []string{"g9"}, Peers: []Peer{peer("10.1.0.9/32")}})
	in := func(w *World, group string) bool { return w.remotes[group].peers[peer("10.1.0.1/32")] > 0 }
	wire := func(w *World, rules ...neutron.SecurityGroupRule) {
		w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 1, "g1")})
		w.Resolve()
		w.Groups.Pulled([]Item{{neutron.KindSecurityGroup, "g1", w.Now()}}, []neutron.SecurityGroup{{ID: "g1", Rules: rules}})
		w.Resolve()
	}
	w := begin()
	if wire(w, rule("r2", "g1", "remote=g2")); !in(w, "g2") || w.Members.byID["other"] != nil {
		t.Error("nothing newer was heard, and it is not in force; or one of another group is")
	}
	w = begin()
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("m", 6, "10.1.0.1"))
	if wire(w, rule("r2", "g1", "remote=g2")); in(w, "g2") {
		t.Error("it left its groups, and is in force")
	}
	// It was in another list, in use, no more, and is again with the answer about this one.
	w = begin()
	wire(w, rule("r3", "g1", "remote=g3"))
	w.Members.Pulled([]Item{{neutron.KindPort, "g3", w.Now()}}, nil)
	wire(w, rule("r2", "g1", "remote=g2"), rule("r3", "g1", "remote=g3"))
	if !in(w, "g2") || in(w, "g3") {
		t.Errorf("in g2 %v, in g3 %v", in(w, "g2"), in(w, "g3"))
	}
	w.Members.Pulled([]Item{{neutron.KindPort, "g2", w.Now()}}, []neutron.Member{known})
	if !in(w, "g2") || !in(w, "g3") {
		t.Errorf("answered: in g2 %v, in g3 %v", in(w, "g2"), in(w, "g3"))
	}
}
