// SPDX-License-Identifier: Apache-2.0

package world

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// unread has everything asked that is missing, and of the answers those about the given ids cannot be read.
func unread(w *World, s *server, ids ...string) {
	w.Resolve()
	for _, i := range w.MissingItems() {
		if slices.Contains(ids, i.ID) {
			w.Unread([]Item{i})
		} else {
			s.answer(w, i)
		}
	}
	w.Resolve()
}

func ruleIDs(w *World, group string) (ids []string) {
	for _, r := range w.Groups.Rules(group) {
		ids = append(ids, r.ID)
	}
	return ids
}

// An answer that cannot be read is not the answer that there is no such group: wired ports keep their filters, new ones wait closed.
func TestAnAnswerThatCannotBeRead(t *testing.T) {
	w, s := wired(t)
	w.Resync()
	w.Ports(w.Missing(), []neutron.Port{grouped(1, 1, "g1"), grouped(2, 2, "g1", "g2")})
	s.groups["g2"] = []neutron.SecurityGroupRule{rule("r2", "g2", "udp")}
	unread(w, s, "g1", "g2")
	for _, id := range []string{"p1", "p2"} {
		if p := w.Port(id); !w.Filtered(p) || !slices.Equal(p.Groups, []string{"g1"}) || !slices.Equal(ruleIDs(w, "g1"), []string{"r1"}) {
			t.Errorf("%s is %s under %v, with rules %v", id, p.Wiring.State, p.Groups, ruleIDs(w, "g1"))
		}
	}
	if w.Complete() {
		t.Error("complete without g2, of which nothing is known")
	}
	fresh := filtering(1)
	fresh.Ports(fresh.Missing(), []neutron.Port{grouped(1, 1, "g1")})
	fresh.Resolve()
	fresh.Unread(append([]Item{{neutron.KindSecurityGroup, "nobody's", fresh.Now()}}, fresh.MissingItems()...))
	fresh.Resolve()
	if p := fresh.Port("p1"); p.Wiring.State != Waiting || !strings.Contains(p.Wiring.Reason, "g1 cannot be read") {
		t.Errorf("a new port is %s: %s", p.Wiring.State, p.Wiring.Reason)
	}
	s.answers(fresh)
	if p := fresh.Port("p1"); p.Wiring.State != Wired {
		t.Errorf("the new port is %s: %s", p.Wiring.State, p.Wiring.Reason)
	}
	s.answers(w)
	if p := w.Port("p2"); !slices.Equal(p.Groups, []string{"g1", "g2"}) || !w.Complete() {
		t.Errorf("in the end p2 has %v, complete %v", p.Groups, w.Complete())
	}
	w.Resync()
	w.Ports(w.Missing(), []neutron.Port{grouped(1, 1, "g1"), grouped(2, 2, "g1", "g2")})
	if w.Complete() {
		t.Error("complete, though after a gap nothing was said of the groups")
	}
	if unread(w, s, "g1"); !w.Complete() {
		t.Error("not complete, though g1 is known and only its check cannot be read")
	}
	if len(w.MissingItems()) != 1 {
		t.Error("g1 is not asked for again")
	}
}

// The same for address groups and members: addresses stay.
func TestMembersThatCannotBeRead(t *testing.T) {
	for name, answer := range map[string]func(w *World, i Item){
		"named":    func(w *World, i Item) { w.Members.Pulled([]Item{i}, nil, "m1") },
		"nameless": func(w *World, i Item) { w.Members.Pulled([]Item{i}, nil, "") },
	} {
		w := filtering(1)
		s := &server{
			groups:    map[string][]neutron.SecurityGroupRule{"g1": {rule("r1", "g1", "tcp remote=g2"), rule("r2", "g1", "udp addresses=a1")}},
			members:   map[string]neutron.Member{"m1": member1("m1", "10.1.0.1", 1, "g2"), "m2": member1("m2", "10.1.0.2", 1, "g2")},
			addresses: map[string]neutron.AddressGroup{"a1": {ID: "a1", Addresses: neutron.List[neutron.Address]{{Prefix: mustPrefix("10.2.0.0/24")}}}},
		}
		w.Ports(w.Missing(), []neutron.Port{grouped(1, 1, "g1")})
		s.answers(w)
		w.Resync()
		w.Resolve()
		for _, i := range w.MissingItems() {
			switch i.Kind {
			case neutron.KindPort:
				answer(w, i)
			case neutron.KindAddressGroup:
				w.Unread([]Item{i})
			default:
				s.answer(w, i)
			}
		}
		w.Resolve()
		kept := func(p string) int { return len(w.Members.PeerConjunctions(segment7, peer(p))) }
		if kept("10.1.0.1/32") != 1 || kept("10.2.0.0/24") != 1 || w.Port("p1").Wiring.State != Wired {
			t.Errorf("%s: the member has %d conjunctions, the address group %d", name, kept("10.1.0.1/32"), kept("10.2.0.0/24"))
		}
		if left := kept("10.1.0.2/32"); left != map[string]int{"named": 0, "nameless": 1}[name] {
			t.Errorf("%s: the member that is not in the answer has %d conjunctions", name, left)
		}
		if items := w.MissingItems(); len(items) != 2 {
			t.Errorf("%s: asked again: %v", name, items)
		}
	}
	// Of a list that was never known what can be read counts: a new port is not held up by one member of a group.
	w := filtering(1)
	w.Ports(w.Missing(), []neutron.Port{grouped(1, 1, "g1")})
	s := &server{groups: map[string][]neutron.SecurityGroupRule{"g1": {rule("r1", "g1", "tcp remote=g2")}}}
	unread(w, s)
	for _, i := range w.MissingItems() {
		w.Members.Pulled([]Item{i}, []neutron.Member{member1("m2", "10.1.0.2", 1, "g2")}, "m1")
	}
	if w.Resolve(); w.Port("p1").Wiring.State != Wired || len(w.Members.PeerConjunctions(segment7, peer("10.1.0.2/32"))) != 1 {
		t.Errorf("a new port is %s: %s", w.Port("p1").Wiring.State, w.Port("p1").Wiring.Reason)
	}
}

// Each object of a push counts alone, and what cannot be read is asked for again if it is known here.
func TestAPushThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		kind neutron.Kind
		bad  string
		asks string
	}{
		{neutron.KindPort, `{"id":"p1","revision_number":"seven"}`, "p1"},
		{neutron.KindPort, `{"revision_number":7,"name":"\xzz","id":"p1"}`, "p1"},
		{neutron.KindPort, `{"id":"m1","security_group_ids":7}`, "Port g2"},
		{neutron.KindPort, `{"id":"new","security_group_ids":["g2"],"revision_number":{}}`, "Port g2"},
		{neutron.KindSecurityGroup, `{"id":"g1","rules":7}`, "SecurityGroup g1"},
		{neutron.KindSecurityGroupRule, `{"id":"r9","security_group_id":"g1","port_range_min":"x"}`, "SecurityGroup g1"},
		{neutron.KindSecurityGroupRule, `{"id":"r1","port_range_min":"x"}`, "SecurityGroup g1"},
		{neutron.KindAddressGroup, `{"id":"a1","addresses":7}`, "AddressGroup a1"},
		{neutron.KindNetwork, `{"id":"n1","segments":7}`, "p1 p2"},
		{neutron.KindNetwork, `{"id":"n2","segments":7}`, ""},
		{neutron.KindSecurityGroup, `{"id":"somebody's","rules":7}`, ""},
		{neutron.KindPort, `{"id":7,"revision_number":7}`, ""}, // the caller checks everything
	} {
		w, s := wired(t)
		s.groups["g1"] = []neutron.SecurityGroupRule{rule("r1", "g1", "tcp remote=g2"), rule("r2", "g1", "udp addresses=a1")}
		s.members["m1"] = member1("m1", "10.1.0.1", 1, "g2")
		s.addresses["a1"] = neutron.AddressGroup{ID: "a1"}
		w.markFiltersStale()
		s.answers(w)
		push := &neutron.Push{Kind: c.kind, Event: neutron.Updated, Objects: []neutron.Primitive{
			{Name: string(c.kind), Data: []byte(c.bad)},
			{Name: string(c.kind), Data: []byte(`{"id":"p2","revision_number":9,"name":"heard"}`)},
		}}
		if err := w.Push(push, time.Now()); err == nil {
			t.Errorf("%s: no error", c.bad)
		}
		var asks []string
		for _, i := range w.MissingItems() {
			asks = append(asks, i.String())
		}
		asks = append(asks, w.Missing()...)
		if got := strings.Join(asks, " "); got != c.asks {
			t.Errorf("%s: asks for %q, want %q", c.bad, got, c.asks)
		}
		if p := w.Port("p1"); p.Details == nil || p.Wiring.State != Wired {
			t.Errorf("%s: p1 is %s", c.bad, p.Wiring.State)
		}
		if p := w.Port("p2"); c.kind == neutron.KindPort && p.Details.Name != "heard" {
			t.Errorf("%s: the next object of the push was not taken", c.bad)
		}
	}
}

// A port about which nothing can be decided stays as it was, and holds up no other; if it was plugged in anew it is dead.
func TestAPortThatPanics(t *testing.T) {
	for _, late := range []bool{false, true} { // the panic comes before or after the decision
		for _, anew := range []bool{false, true} {
			w, s := wired(t)
			failed := map[Object]int{}
			fail := true
			w.Contain = func(o Object, work func()) (ok bool) {
				defer func() {
					if recover() != nil {
						failed[o]++
						ok = false
					}
				}()
				bad := fail && o == PortObject("p1")
				if bad && !late {
					panic("early")
				}
				if work(); bad {
					panic("late")
				}
				return true
			}
			down := grouped(1, 9, "g1")
			down.AdminStateUp = false
			w.learn(&down)
			other := grouped(2, 9, "g1")
			other.AdminStateUp = false
			w.learn(&other)
			if anew {
				n := 7
				was := w.View.InterfaceByName("tap1")
				w.Switch(&ovsdb.Batch{Seq: 2, Interfaces: []ovsdb.Diff[ovsdb.Interface]{
					{Old: was, New: &ovsdb.Interface{UUID: was.UUID, Name: "tap1", OFPort: &n, ExternalIDs: was.ExternalIDs}},
				}})
			}
			w.Resolve()
			want := map[bool]State{false: Wired, true: Dead}[anew]
			if p := w.Port("p1"); p.Wiring.State != want || w.Port("p2").Wiring.State != Down || failed[PortObject("p1")] != 1 {
				t.Errorf("late %v, anew %v: p1 is %s, p2 %s, failed %v", late, anew, p.Wiring.State, w.Port("p2").Wiring.State, failed)
			}
			if w.Port("p1").Undecided() == anew || w.Port("p2").Undecided() {
				t.Errorf("late %v, anew %v: undecided: p1 %v, p2 %v", late, anew, w.Port("p1").Undecided(), w.Port("p2").Undecided())
			}
			if g := w.groups["g1"]; g != nil && g.segments[segment7] != map[bool]int{false: 1, true: 0}[anew] {
				t.Errorf("late %v, anew %v: the group is in force on %v", late, anew, g.segments)
			}
			if in := slices.Contains(w.Segments.Get(segment7).PortIDs(), "p1"); in == anew || len(invariants(w)) > 0 {
				t.Errorf("late %v, anew %v: on its segment %v, %q", late, anew, in, invariants(w))
			}
			fail = false
			w.Again(PortObject("p1"))
			s.answers(w)
			if p := w.Port("p1"); p.Wiring.State != Down || p.Undecided() || !slices.Equal(w.Segments.Get(segment7).PortIDs(), []string{"p1", "p2"}) {
				t.Errorf("late %v, anew %v: in the end p1 is %s, the segment has %v", late, anew, p.Wiring.State, w.Segments.Get(segment7).PortIDs())
			}
			// What follows is as if it had never failed.
			up := grouped(1, 10, "g1")
			w.learn(&up)
			if s.answers(w); !w.Filtered(w.Port("p1")) || w.groups["g1"].segments[segment7] != 1 {
				t.Errorf("late %v, anew %v: filtered %v, %d ports on the segment", late, anew, w.Filtered(w.Port("p1")), w.groups["g1"].segments[segment7])
			}
		}
	}
}

// A group that cannot be worked out leaves what its ports have, and is worked out completely the next time.
func TestAGroupThatPanics(t *testing.T) {
	w, s := wired(t)
	s.groups["g1"] = []neutron.SecurityGroupRule{rule("r9", "g1", "tcp remote=g2")}
	s.members["m1"] = member1("m1", "10.1.0.1", 1, "g2")
	fail := true
	w.Contain = func(o Object, work func()) (ok bool) {
		defer func() { ok = recover() == nil }()
		if work(); fail && o == GroupObject("g1") {
			panic("late")
		}
		return true
	}
	w.markFiltersStale()
	s.answers(w)
	if p := w.Port("p1"); !w.Filtered(p) {
		t.Errorf("p1 is %s", p.Wiring.State)
	}
	fail = false
	w.Again(GroupObject("g1"))
	if !w.touchedGroups["g1"] || !w.touched["p1"] || !w.touched["p2"] || w.dirty[GroupObject("g1")] {
		t.Errorf("to be worked out: groups %v, ports %v, objects %v", w.touchedGroups, w.touched, w.dirty)
	}
	s.answers(w)
	fresh := filtering(2)
	fresh.Ports([]string{"p1", "p2"}, []neutron.Port{grouped(1, 1, "g1"), grouped(2, 1, "g1")})
	s.answers(fresh)
	if got, want := portrait(w), portrait(fresh); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// After a batch of rows was taken half-way only, everything is there again.
func TestRebuild(t *testing.T) {
	w, s := wired(t)
	want := portrait(w)
	clear(w.vifs.rows)
	clear(w.vifs.of)
	w.Rebuild()
	if !w.touchedGroups["g1"] || !w.touched["p1"] || !w.touched["p2"] {
		t.Errorf("to be worked out: groups %v, ports %v", w.touchedGroups, w.touched)
	}
	if got, all := names(w.Resolve()), names(w.Objects()); got != all {
		t.Errorf("compiled again: %s, of %s", got, all)
	}
	if s.answers(w); portrait(w) != want {
		t.Errorf("%s\nwant\n%s", portrait(w), want)
	}
}

// What is missing is said as often as one asks, and nothing changes by asking: what is on its way is not the world's business.
func TestQueriesDoNotWrite(t *testing.T) {
	w, _ := wired(t)
	w.Resync()
	now, before := w.Now(), portrait(w)
	ports, items := w.Missing(), w.MissingItems()
	if len(ports) == 0 || len(items) == 0 || w.Tunnels.Listed("vxlan") {
		t.Fatalf("after a gap %v and %v are missing", ports, items)
	}
	w.Complete()
	w.Unspoken()
	if got := w.Missing(); !slices.Equal(got, ports) {
		t.Errorf("first %v, then %v", ports, got)
	}
	if got := w.MissingItems(); !slices.Equal(got, items) {
		t.Errorf("first %v, then %v", items, got)
	}
	if w.Now() != now || w.HasChanges() || portrait(w) != before {
		t.Error("the queries changed something")
	}
	w.Tunnels.Sync("vxlan", nil, now)
	if w.Resync(); w.Tunnels.Listed("vxlan") {
		t.Error("a list from before messages were lost is good enough")
	}
	if w.Tunnels.Sync("vxlan", nil, w.Now()); !w.Tunnels.Listed("vxlan") {
		t.Error("the list does not count")
	}
}

// An answer to a question that is older than one that was answered does not count, nor does one from before a push that could not
// be read.
func TestAnOlderAnswerDoesNotCount(t *testing.T) {
	w, s := wired(t)
	old := w.Now()
	w.Resync()
	s.answers(w)
	w.Ports(w.Missing(), []neutron.Port{grouped(1, 1, "g1"), grouped(2, 2, "g1")})
	w.Groups.Pulled([]Item{{neutron.KindSecurityGroup, "g1", old}}, nil)
	w.PortsAsked(old, []string{"p1"}, nil)
	if w.Resolve(); w.Port("p1").Wiring.State != Wired || len(w.Groups.Rules("g1")) == 0 || !w.Complete() {
		t.Errorf("p1 is %s, rules %v", w.Port("p1").Wiring.State, w.Groups.Rules("g1"))
	}
	item := Item{neutron.KindSecurityGroup, "g1", w.Now()}
	w.markMentionedStale(neutron.KindSecurityGroup, []byte(`"g1"`))
	w.Groups.Pulled([]Item{item}, nil)
	if known, since := w.Standing(item); len(w.Groups.Rules("g1")) == 0 || since <= item.Asked || !known {
		t.Error("an answer from before a push that could not be read counts")
	}
}

func mustPrefix(s string) neutron.Prefix {
	p, err := neutron.ParsePrefix(s)
	if err != nil {
		panic(err)
	}
	return p
}
