// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

func TestANewPortStaysClosedUntilItsGroupsAreKnown(t *testing.T) {
	w := filtering(1)
	w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5, "g")})
	w.Resolve()
	state := func(want State, reason string) {
		t.Helper()
		w.Resolve()
		if got := w.Port("p1").Wiring; got.State != want || !strings.Contains(got.Reason, reason) {
			t.Fatalf("port is %s (%s), want %s (%s)", got.State, got.Reason, want, reason)
		}
	}
	state(Waiting, "its security group g has not been told yet")
	if w.Complete() {
		t.Error("complete without the group")
	}
	items := w.MissingItems()
	if len(items) != 1 || items[0].String() != "SecurityGroup g" {
		t.Fatalf("asks for %v", items)
	}
	w.Groups.Pulled(w.MissingItems(), nil)
	state(Waiting, "the server does not know its security group g")
	w.Groups.Pulled(w.MissingItems(), []neutron.SecurityGroup{{ID: "g", Rules: neutron.List[neutron.SecurityGroupRule]{
		rule("r1", "g", "remote=other tcp ports=80-80"), rule("r2", "g", "addresses=ag"),
	}}})
	state(Waiting, "the address group ag")
	items = w.MissingItems()
	if len(items) != 2 || items[0].String() != "AddressGroup ag" || items[1].String() != "Port other" {
		t.Fatalf("asks for %v", items)
	}
	w.Members.AddressGroupsPulled(items[:1], nil)
	state(Waiting, "the members of group other, to which its security group g refers, have not been told yet")
	w.Members.Pulled(items[1:], nil)
	state(Waiting, "the server does not know the address group ag")
	w.Members.AddressGroupsPulled(w.MissingItems(), []neutron.AddressGroup{{ID: "ag"}})
	state(Wired, "")
	if p := w.Port("p1"); !w.Filtered(p) || w.Trusted(p) || !slices.Equal(p.Groups, []string{"g"}) || !w.Complete() {
		t.Errorf("filtered %v, groups %v, complete %v", w.Filtered(p), p.Groups, w.Complete())
	}
}

func TestWhoIsFiltered(t *testing.T) {
	for _, c := range []struct {
		name              string
		change            func(*neutron.Port)
		filtered, trusted bool
	}{
		{"ordinary", nil, true, false},
		{"without port security", func(p *neutron.Port) {
			p.Security = neutron.Maybe[neutron.Security]{Value: &neutron.Security{}}
		}, false, true},
		{"of Neutron itself", func(p *neutron.Port) { p.DeviceOwner = "network:dhcp" }, false, true},
		{"switched off", func(p *neutron.Port) { p.AdminStateUp = false }, false, false},
	} {
		w := filtering(1)
		d := grouped(1, 5)
		if c.change != nil {
			c.change(&d)
		}
		w.Ports([]string{"p1"}, []neutron.Port{d})
		w.Resolve()
		if p := w.Port("p1"); w.Filtered(p) != c.filtered || w.Trusted(p) != c.trusted {
			t.Errorf("%s: filtered %v, trusted %v", c.name, w.Filtered(p), w.Trusted(p))
		}
	}
}

// wiredWorld has one filtered port in group g, whose rules refer to the members of "other".
func wiredWorld(s *server) *World {
	w := filtering(1)
	w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5, "g")})
	s.answers(w)
	return w
}

func someServer() *server {
	return &server{
		groups: map[string][]neutron.SecurityGroupRule{
			"g": {rule("r1", "g", "remote=other tcp ports=80-80"), rule("r2", "g", "udp")},
			"h": {rule("r3", "h", "remote=third")},
		},
		members: map[string]neutron.Member{
			"m1": member1("m1", "10.1.0.1", 3, "other"), "m2": member1("m2", "10.1.0.2", 3, "other", "third"),
		},
		addresses: map[string]neutron.AddressGroup{},
	}
}

func TestOneMemberCostsOneMember(t *testing.T) {
	s := someServer()
	for i := range 5000 {
		id := fmt.Sprint("x", i)
		s.members[id] = member1(id, netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}).String(), 1, "other")
	}
	w := wiredWorld(s)
	if got := w.Resolve(); len(got) != 0 {
		t.Fatalf("unsettled: %s", names(got))
	}
	conj := Conjunction{"g", "other", Ingress, 4}
	only := func(what, want string) {
		t.Helper()
		if got := names(w.Resolve()); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("new", 1, "10.9.0.1", "unrelated", "other"))
	only("a member more", "peer n1/7|10.9.0.1/32|-")
	if got := w.Members.PeerConjunctions(segment7, peer("10.9.0.1/32")); !slices.Equal(got, []Conjunction{conj}) {
		t.Errorf("conjunctions of the new member: %v", got)
	}
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("new", 2, "10.9.0.2", "other"))
	only("its address", "peer n1/7|10.9.0.1/32|-; peer n1/7|10.9.0.2/32|-")
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("new", 3, "10.9.0.2", "other", "elsewhere"))
	only("a group that nobody refers to", "")
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("new", 4, "10.9.0.2", "elsewhere"))
	only("it left", "peer n1/7|10.9.0.2/32|-")
	if got := w.Members.PeerConjunctions(segment7, peer("10.9.0.2/32")); got != nil {
		t.Errorf("conjunctions of one who left: %v", got)
	}
	send(t, w, neutron.KindPort, neutron.Deleted, map[string]any{"id": "m1"})
	only("deleted", "peer n1/7|10.1.0.1/32|-")
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("m1", 9, "10.1.0.1", "other"))
	only("pushed after its end", "")
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("m2", 2, "10.1.0.9", "other"))
	only("an old revision", "")
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("stranger", 2, "10.1.0.9", "third"))
	only("of a group that nobody here refers to", "")
	if w.Members.byID["stranger"] != nil {
		t.Error("a stranger is remembered")
	}
}

func TestPushesThatDoNotConcernUsAreNotDecoded(t *testing.T) {
	w := wiredWorld(someServer())
	for data, want := range map[string]concern{
		`{"id": "x", "security_group_ids": ["a", "b"]}`:         nothing,
		`{"security_group_ids": [], "id": "x"}`:                 nothing,
		`{"security_group_ids": ["a","other"], "id": "x"}`:      aMember,
		`{"security_group_ids" : [ "other" ], "id": "x"}`:       aMember,
		`{"id": "m1", "security_group_ids": []}`:                aMember,
		`{"id": "p1"}`:                                          ourPort,
		`{"nested": {"id": "m1"}, "id": "p1"}`:                  ourPort,
		`{"id": "x", "name": "other", "security_group_ids":[]}`: nothing,
		`{"id": "x", "security_group_ids": ["\u006fther"]}`:     aMember,
		`{"id": "\u0078", "security_group_ids": []}`:            ourPort, // it could be
	} {
		if got := w.mayConcern([]byte(data)); got != want {
			t.Errorf("%s: %v", data, got)
		}
	}
}

func TestAddressesOfMembers(t *testing.T) {
	pair := func(mac neutron.MAC, ip string) neutron.AddressPair {
		p, err := neutron.ParsePrefix(ip)
		if err != nil {
			t.Fatal(err)
		}
		return neutron.AddressPair{MAC: mac, IP: p}
	}
	m := member1("m", "10.0.0.1", 1, "g")
	m.FixedIPs = append(m.FixedIPs, neutron.FixedIP{IP: netip.MustParseAddr("2001:db8::1")}, m.FixedIPs[0])
	m.AllowedAddressPairs = neutron.List[neutron.AddressPair]{
		pair(neutron.MAC{4}, "10.0.0.1"), pair(neutron.MAC{4}, "10.5.0.7/16"), pair(neutron.MAC{4}, "0.0.0.0/0"), pair(neutron.MAC{}, "::/0"),
	}
	want := []Peer{
		{netip.MustParsePrefix("0.0.0.0/0"), neutron.MAC{4}}, peer("10.0.0.1/32"), peer("10.5.0.0/16"),
		{netip.MustParsePrefix("::/0"), neutron.MAC{2}}, peer("2001:db8::1/128"),
	}
	if got := peersOf(&m); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNormalisation(t *testing.T) {
	text := func(r Rule) string {
		number := func(n *int) string {
			if n == nil {
				return "-"
			}
			return fmt.Sprint(*n)
		}
		return fmt.Sprintf("%s %d %d %s %s %s %s", r.Direction, r.IPVersion, r.Protocol, number(r.Min), number(r.Max), r.Prefix, r.Remote)
	}
	none := netip.Prefix{}.String()
	for in, want := range map[string]string{
		"":                                   "ingress 4 -1 - - " + none + " ",
		"egress IPv6 tcp ports=1-65535":      "egress 6 6 1 65535 " + none + " ",
		"6 ports=22-22":                      "ingress 4 6 22 22 " + none + " ",
		"icmp":                               "ingress 4 1 - - " + none + " ",
		"icmp type=0":                        "ingress 4 1 0 - " + none + " ",
		"icmp ports=8-0":                     "ingress 4 1 8 0 " + none + " ",
		"IPv6 icmp":                          "ingress 6 58 - - " + none + " ",
		"IPv6 icmpv6":                        "ingress 6 58 - - " + none + " ",
		"IPv6 ipv6-icmp":                     "ingress 6 58 - - " + none + " ",
		"IPv6 1":                             "ingress 6 1 - - " + none + " ",
		"58":                                 "ingress 4 58 - - " + none + " ",
		"0":                                  "ingress 4 0 - - " + none + " ",
		"vrrp ports=1-2":                     "ingress 4 112 - - " + none + " ",
		"ports=1-2":                          "ingress 4 -1 - - " + none + " ",
		"prefix=0.0.0.0/0":                   "ingress 4 -1 - - " + none + " ",
		"IPv6 prefix=0::/0":                  "ingress 6 -1 - - " + none + " ",
		"prefix=10.0.0.7/24":                 "ingress 4 -1 - - 10.0.0.0/24 ",
		"prefix=10.0.0.7 normal=10.0.0.7/32": "ingress 4 -1 - - 10.0.0.7/32 ",
		"prefix=2001:db8::/32":               "",
		"prefix=128.0.0.0/1":                 "ingress 4 -1 - - 128.0.0.0/1 ",
		"normal=10.0.0.0/8":                  "ingress 4 -1 - - " + none + " ",
		"nonsense":                           "",
		"256":                                "",
		"remote=g":                           "ingress 4 -1 - - " + none + " g",
		"addresses=a":                        "ingress 4 -1 - - " + none + " a",
	} {
		n := rule("r", "g", in)
		r, ok := read(&n)
		if got := text(r); ok && got != want || !ok && want != "" {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for _, n := range []neutron.SecurityGroupRule{{Direction: "sideways", EtherType: "IPv4"}, {Direction: "ingress", EtherType: "IPv5"}} {
		if r, ok := read(&n); ok || r != (Rule{}) {
			t.Errorf("%+v is %+v", n, r)
		}
	}
	for in, want := range map[string]int{"": 0, "icmp": 1, "icmp type=3": 2, "icmp ports=3-1": 3, "tcp": 3, "IPv6 icmp": 1, "vrrp": 3} {
		n := rule("r", "g", in)
		if r, _ := read(&n); r.Offset() != want {
			t.Errorf("offset of %q: %d, want %d", in, r.Offset(), want)
		}
	}
	twice := map[string]entry{}
	for _, id := range []string{"b", "a", "c"} {
		n := rule(id, "g", map[string]string{"c": "udp"}[id]+" ")
		twice[id] = entry{rule: &n}
	}
	if got := normalise(twice, read); len(got) != 2 || got[0].ID != "a" || got[1].ID != "c" {
		t.Errorf("equal rules: %v", got)
	}
}

func TestRulesComeAndGo(t *testing.T) {
	s := someServer()
	w := wiredWorld(s)
	conj := Conjunction{"g", "other", Ingress, 4}
	if w.Groups.Offsets(conj) != 1<<3 || w.Members.ConjunctionID(conj) == 0 {
		t.Fatalf("offsets %b, id %d", w.Groups.Offsets(conj), w.Members.ConjunctionID(conj))
	}
	wire := func(id, text string) map[string]any {
		r := map[string]any{"id": id, "security_group_id": "g", "direction": "ingress", "ethertype": "IPv4"}
		for _, word := range strings.Fields(text) {
			key, value, _ := strings.Cut(word, "=")
			r[key] = value
		}
		return r
	}
	send(t, w, neutron.KindSecurityGroupRule, neutron.Updated, wire("r9", "protocol=tcp"))
	if got := names(w.Resolve()); got != "port p1" {
		t.Errorf("a plain rule touched %s", got)
	}
	send(t, w, neutron.KindSecurityGroupRule, neutron.Updated, wire("r9", "protocol=tcp"))
	if got := names(w.Resolve()); got != "" {
		t.Errorf("the same rule again touched %s", got)
	}
	send(t, w, neutron.KindSecurityGroupRule, neutron.Updated, wire("r10", "remote_group_id=other"))
	if got := names(w.Resolve()); got != "port p1; peer n1/7|10.1.0.1/32|-; peer n1/7|10.1.0.2/32|-" {
		t.Errorf("a rule with another priority touched %s", got)
	}
	send(t, w, neutron.KindSecurityGroupRule, neutron.Updated, wire("r11", "remote_group_id=other direction=egress ethertype=IPv6"))
	if got := names(w.Resolve()); got != "port p1" {
		t.Errorf("a rule without members of its family touched %s", got)
	}
	send(t, w, neutron.KindSecurityGroupRule, neutron.Deleted, map[string]any{"id": "r10"})
	send(t, w, neutron.KindSecurityGroupRule, neutron.Updated, wire("r10", "remote_group_id=other"))
	if got := names(w.Resolve()); got != "port p1; peer n1/7|10.1.0.1/32|-; peer n1/7|10.1.0.2/32|-" || w.Groups.Offsets(conj) != 1<<3 {
		t.Errorf("the end of a rule touched %s", got)
	}
	send(t, w, neutron.KindSecurityGroupRule, neutron.Updated, map[string]any{"id": "r12", "security_group_id": "h", "direction": "ingress", "ethertype": "IPv4"})
	if got := names(w.Resolve()); got != "" {
		t.Errorf("a rule of a group that no port here has touched %s", got)
	}
	for _, id := range []string{"r1", "r11"} {
		send(t, w, neutron.KindSecurityGroupRule, neutron.Deleted, map[string]any{"id": id})
	}
	w.Resolve()
	if len(w.remotes) != 0 || len(w.Members.byID) != 0 || len(w.Members.peers) != 0 || w.Members.ConjunctionID(conj) != 0 {
		t.Errorf("remembered: %d remotes, %d members, %d peers, id %d", len(w.remotes), len(w.Members.byID), len(w.Members.peers), w.Members.ConjunctionID(conj))
	}
	send(t, w, neutron.KindSecurityGroup, neutron.Deleted, map[string]any{"id": "g"})
	w.Resolve()
	if len(w.Groups.Rules("g")) != 0 || len(w.Groups.groupOf) != 0 {
		t.Error("a deleted group has rules")
	}
	if g, p := w.groups["g"], w.Port("p1"); g.known || !g.unknown || p.Wiring.State != Wired || len(p.Groups) != 0 {
		t.Errorf("deleted, the group is known %v, unknown %v; the port is %s under %v", g.known, g.unknown, p.Wiring.State, p.Groups)
	}
	send(t, w, neutron.KindSecurityGroup, neutron.Updated, map[string]any{"id": "g"})
	w.Groups.Pulled([]Item{{neutron.KindSecurityGroup, "g", w.Now()}}, []neutron.SecurityGroup{{ID: "g"}})
	if g := w.groups["g"]; g.known || !g.unknown {
		t.Error("a deleted group has come back")
	}
}

func TestExchangeOfGroupsWaitsForTheNewOne(t *testing.T) {
	s := someServer()
	w := wiredWorld(s)
	d := grouped(1, 6, "h")
	w.learn(&d)
	w.Resolve()
	p := w.Port("p1")
	if p.Wiring.State != Wired || !slices.Equal(p.Groups, []string{"g"}) || w.Groups.Rules("g") == nil {
		t.Fatalf("while the new group is asked for: %s, groups %v", p.Wiring.State, p.Groups)
	}
	w.Groups.Pulled(w.MissingItems(), []neutron.SecurityGroup{{ID: "h", Rules: s.groups["h"]}})
	if w.Resolve(); !slices.Equal(p.Groups, []string{"g"}) {
		t.Fatalf("members of the group that the new one refers to are not known, but %v are in force", p.Groups)
	}
	s.answers(w)
	if !slices.Equal(p.Groups, []string{"h"}) || w.groups["g"] != nil || w.remotes["other"] != nil {
		t.Errorf("in force %v", p.Groups)
	}
	if got := w.Members.PeerConjunctions(segment7, peer("10.1.0.2/32")); len(got) != 1 || got[0].Group != "h" {
		t.Errorf("conjunctions %v", got)
	}
	d = grouped(1, 7, "h", "nowhere")
	w.learn(&d)
	s.answers(w)
	if p.Wiring.State != Wired || !slices.Equal(p.Groups, []string{"h"}) {
		t.Errorf("with a group that the server does not have: %s, in force %v", p.Wiring.State, p.Groups)
	}
	// As long as something will come nothing changes; after that what the server has is in force.
	d = grouped(1, 8, "k", "nowhere", "g")
	w.learn(&d)
	w.Resolve()
	w.Groups.Pulled([]Item{{neutron.KindSecurityGroup, "k", w.Now()}}, []neutron.SecurityGroup{{ID: "k"}})
	w.Groups.Pulled([]Item{{neutron.KindSecurityGroup, "nowhere", w.Now()}}, nil)
	if w.Resolve(); !slices.Equal(p.Groups, []string{"h"}) {
		t.Errorf("while g will come: in force %v", p.Groups)
	}
	s.groups["k"] = nil
	if s.answers(w); p.Wiring.State != Wired || !slices.Equal(p.Groups, []string{"g", "k"}) {
		t.Errorf("when all has come that there is: %s, in force %v", p.Wiring.State, p.Groups)
	}
	// An address group that the server does not have lets nobody in, and is no reason to keep what was before.
	s.groups["a"] = []neutron.SecurityGroupRule{rule("r9", "a", "addresses=nobody")}
	d = grouped(1, 9, "a")
	w.learn(&d)
	if s.answers(w); p.Wiring.State != Wired || !slices.Equal(p.Groups, []string{"a"}) {
		t.Errorf("with an address group that is not there: %s, in force %v", p.Wiring.State, p.Groups)
	}
	s.groups["b"] = []neutron.SecurityGroupRule{rule("r9", "b", "addresses=nobody"), rule("r8", "b", "remote=later")}
	d = grouped(1, 10, "b")
	w.learn(&d)
	w.Resolve()
	s.answer(w, Item{neutron.KindSecurityGroup, "b", w.Now()})
	w.Resolve()
	s.answer(w, Item{neutron.KindAddressGroup, "nobody", w.Now()})
	if w.Resolve(); !slices.Equal(p.Groups, []string{"a"}) {
		t.Errorf("while members will come: in force %v", p.Groups)
	}
	if s.answers(w); !slices.Equal(p.Groups, []string{"b"}) {
		t.Errorf("when they have come: in force %v", p.Groups)
	}
}

func TestAnAnswerIsOlderThanWhatCameAfterTheQuestion(t *testing.T) {
	s := someServer()
	w := filtering(1)
	w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5, "g")})
	w.Resolve()
	question := w.MissingItems()
	// While the server thinks: a rule comes, one goes.
	send(t, w, neutron.KindSecurityGroupRule, neutron.Updated, map[string]any{"id": "late", "security_group_id": "g", "direction": "egress", "ethertype": "IPv4"})
	send(t, w, neutron.KindSecurityGroupRule, neutron.Deleted, map[string]any{"id": "r2"})
	w.Groups.Pulled(question, []neutron.SecurityGroup{{ID: "g", Rules: s.groups["g"]}})
	w.Resolve()
	var ids []string
	for _, r := range w.Groups.Rules("g") {
		ids = append(ids, r.ID)
	}
	if slices.Sort(ids); !slices.Equal(ids, []string{"late", "r1"}) {
		t.Errorf("rules %v", ids)
	}
	question = w.MissingItems()
	w.Members.KeepRevisions(true)
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("m1", 4, "10.1.0.1"))
	send(t, w, neutron.KindPort, neutron.Deleted, map[string]any{"id": "m2"})
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("m3", 1, "10.1.0.3", "other"))
	for i := range 2 * lateness { // however many come
		send(t, w, neutron.KindPort, neutron.Updated, wirePort(fmt.Sprint("other", i), 1, "10.9.0.1", "elsewhere"))
	}
	w.Members.Pulled(question, []neutron.Member{s.members["m1"], s.members["m2"]})
	w.Members.KeepRevisions(false)
	w.Resolve()
	if len(w.Members.peers) != 1 || w.Members.peers[peer("10.1.0.3/32")] == nil {
		t.Errorf("peers %v", w.Members.peers)
	}
	// After a gap what is not in the answer is gone.
	w.Resync()
	w.Resolve()
	if w.Complete() {
		t.Error("complete in doubt")
	}
	s.groups["g"] = s.groups["g"][:1]
	s.members = map[string]neutron.Member{"m4": member1("m4", "10.1.0.4", 1, "other")}
	s.answers(w)
	if len(w.Members.peers) != 1 || w.Members.peers[peer("10.1.0.4/32")] == nil || len(w.Groups.Rules("g")) != 1 {
		t.Errorf("after a gap: peers %v, rules %v", w.Members.peers, w.Groups.Rules("g"))
	}
}

func TestAnAnswerToAForgottenQuestionDoesNotCount(t *testing.T) {
	w := filtering(1)
	w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5, "g")})
	w.Resolve()
	old := w.MissingItems()
	d := grouped(1, 6)
	w.learn(&d)
	w.Resolve()
	if w.groups["g"] != nil {
		t.Fatal("a group that no port has is remembered")
	}
	send(t, w, neutron.KindSecurityGroupRule, neutron.Deleted, map[string]any{"id": "r1"})
	d = grouped(1, 7, "g")
	w.learn(&d)
	w.Resolve()
	next := w.MissingItems()
	w.Groups.Pulled(old, []neutron.SecurityGroup{{ID: "g", Rules: neutron.List[neutron.SecurityGroupRule]{rule("gone", "g", "")}}})
	if w.Resolve(); len(w.Groups.Rules("g")) != 0 {
		t.Errorf("an old answer counted: %v", w.Groups.Rules("g"))
	}
	w.Groups.Pulled(next, []neutron.SecurityGroup{{ID: "g"}})
	if w.Resolve(); !slices.Equal(w.Port("p1").Groups, []string{"g"}) {
		t.Error("the answer did not count")
	}
}

func TestAddressGroupsChange(t *testing.T) {
	s := someServer()
	s.groups["g"] = []neutron.SecurityGroupRule{rule("r1", "g", "addresses=ag"), rule("r2", "g", "remote=other")}
	prefixes := func(revision int64, list ...string) neutron.AddressGroup {
		g := neutron.AddressGroup{ID: "ag", Revision: revision}
		for _, p := range list {
			g.Addresses = append(g.Addresses, neutron.Address{Prefix: neutron.Prefix{Prefix: netip.MustParsePrefix(p)}})
		}
		return g
	}
	s.addresses["ag"] = prefixes(1, "10.1.0.1/32", "192.0.2.0/24", "2001:db8::/32", "0.0.0.0/0")
	w := wiredWorld(s)
	if got := w.Members.PeerConjunctions(segment7, peer("10.1.0.1/32")); len(got) != 2 {
		t.Errorf("an address in both: %v", got)
	}
	if got := w.Members.PeerConjunctions(segment7, peer("0.0.0.0/0")); len(got) != 1 {
		t.Errorf("everyone: %v", got)
	}
	wire := func(revision int, list ...string) map[string]any {
		var addresses []any
		for _, p := range list {
			addresses = append(addresses, map[string]any{"versioned_object.data": map[string]any{"address": p}})
		}
		return map[string]any{"id": "ag", "revision_number": revision, "addresses": addresses}
	}
	send(t, w, neutron.KindAddressGroup, neutron.Updated, wire(2, "192.0.2.0/24", "198.51.100.0/24"))
	if got := names(w.Resolve()); got != "peer n1/7|0.0.0.0/0|-; peer n1/7|10.1.0.1/32|-; peer n1/7|198.51.100.0/24|-" {
		t.Errorf("touched %s", got)
	}
	send(t, w, neutron.KindAddressGroup, neutron.Updated, wire(1, "10.9.0.0/16"))
	if got := names(w.Resolve()); got != "" {
		t.Errorf("an old revision touched %s", got)
	}
	send(t, w, neutron.KindAddressGroup, neutron.Deleted, map[string]any{"id": "ag"})
	if got := names(w.Resolve()); got != "peer n1/7|192.0.2.0/24|-; peer n1/7|198.51.100.0/24|-" {
		t.Errorf("the end touched %s", got)
	}
	// What is told of it after its end is from before.
	send(t, w, neutron.KindAddressGroup, neutron.Updated, wire(9, "192.0.2.0/24"))
	w.Members.AddressGroupsPulled([]Item{{neutron.KindAddressGroup, "ag", w.Now()}}, []neutron.AddressGroup{prefixes(9, "192.0.2.0/24")})
	if r := w.remotes["ag"]; r.known || !r.unknown || len(r.peers) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestConjunctionIDs(t *testing.T) {
	ids := newConjunctionIDs()
	c := Conjunction{"g", "r", Ingress, 4}
	if ids.take(c); ids.of[c] == 0 || ids.of[c]%8 != 0 || ids.of[c] >= 1<<31 {
		t.Errorf("id %d", ids.of[c])
	}
	first := ids.of[c]
	ids.release(c)
	if ids.take(c); ids.of[c] != first {
		t.Error("an id depends on history")
	}
	// Another comes to the same id: neither keeps it, whoever was first.
	other := newConjunctionIDs()
	d := Conjunction{"x", "y", Egress, 6}
	other.of[d], other.owner[first] = first, d
	if moved := other.take(c); !slices.Equal(moved, []Conjunction{d}) || other.of[c] == first || other.of[d] == first || other.of[c] == other.of[d] {
		t.Errorf("moved %v, ids %v", moved, other.of)
	}
	// An id that another agent's flows bear is left alone.
	w := wiredWorld(someServer())
	conj := Conjunction{"g", "other", Ingress, 4}
	before := w.Members.ConjunctionID(conj)
	w.Members.Avoid([]uint32{16, before + 7})
	if got := names(w.Resolve()); w.Members.ConjunctionID(conj) == before || got != "port p1; peer n1/7|10.1.0.1/32|-; peer n1/7|10.1.0.2/32|-" {
		t.Errorf("id %d after %d, touched %s", w.Members.ConjunctionID(conj), before, got)
	}
}

func TestInterfacesThatAreNoPorts(t *testing.T) {
	w := filtering(1)
	number, local := 9, 65534
	br := *w.View.BridgeByName("br-int")
	next := br
	next.Ports = append(slices.Clone(br.Ports), "pt", "pl")
	w.Switch(&ovsdb.Batch{
		Seq: 2, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{Old: &br, New: &next}},
		Ports: []ovsdb.Diff[ovsdb.Port]{
			{New: &ovsdb.Port{UUID: "pt", Name: "mytap", Interfaces: []ovsdb.UUID{"it"}}},
			{New: &ovsdb.Port{UUID: "pl", Name: "br-int", Interfaces: []ovsdb.UUID{"il"}}},
		},
		Interfaces: []ovsdb.Diff[ovsdb.Interface]{
			{New: &ovsdb.Interface{UUID: "it", Name: "mytap", OFPort: &number}},
			{New: &ovsdb.Interface{UUID: "il", Name: "br-int", OFPort: &local}},
		},
	})
	if got := names(w.Resolve()); got != "bridge br-int; interface br-int; interface mytap" {
		t.Errorf("touched %s", got)
	}
	if n, ok := w.PlainPort("mytap"); !ok || n != 9 {
		t.Errorf("mytap: %d, %v", n, ok)
	}
	if _, ok := w.PlainPort("tap1"); ok {
		t.Error("a port passes as plain")
	}
	for name, i := range map[string]ovsdb.Interface{"not made": {}, "number 0": {OFPort: new(0)}, "failed": {OFPort: new(-1)}} {
		old := w.View.Interface("it")
		i.UUID, i.Name = "it", "mytap"
		w.Switch(&ovsdb.Batch{Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: old, New: &i}}})
		if n, ok := w.PlainPort("mytap"); ok || n != 0 {
			t.Errorf("%s: %d", name, n)
		}
		w.Switch(&ovsdb.Batch{Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: &i, New: old}}})
	}
	if n, ok := w.PlainPort("none"); ok || n != 0 {
		t.Error("one that is not there passes as plain")
	}
	w.Switch(&ovsdb.Batch{Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{UUID: "lost", Name: "lost", OFPort: &number}}}})
	if n, ok := w.PlainPort("lost"); ok || n != 0 {
		t.Error("one on no bridge passes as plain")
	}
	elsewhere := plugged("br-ex", &number, ovsdb.Interface{})
	elsewhere.View.Interface("i").ExternalIDs = nil
	if n, ok := elsewhere.PlainPort("tap1"); ok || n != 0 {
		t.Error("one of another bridge passes as plain")
	}
	w.Resolve()
	if w.Closed() {
		t.Error("closed from the start")
	}
	w.Close()
	if got := names(w.Resolve()); got != "bridge br-int" || !w.Closed() {
		t.Errorf("closing touched %s", got)
	}
}

// A port that is shut is so until it is wired; its row says where it was until the switch has told otherwise.
func TestAPortThatIsShut(t *testing.T) {
	w := filtering(1)
	w.Shut("p1")
	w.Resolve()
	p := w.Port("p1")
	if w.IsShut(p) || w.Exposed() {
		t.Error("shut on a bridge that is open")
	}
	w.Close()
	w.Shut("p1")
	if got := names(w.Resolve()); !strings.Contains(got, "port p1") || !w.IsShut(p) {
		t.Errorf("shutting touched %s, shut: %v", got, w.IsShut(p))
	}
	row := *w.View.Port(p.VIF.Port)
	tag := func(n int) {
		old := *w.View.Port(row.UUID)
		row.Tag = &n
		now := row
		w.Switch(&ovsdb.Batch{Ports: []ovsdb.Diff[ovsdb.Port]{{Old: &old, New: &now}}})
		w.Resolve()
	}
	tag(7)
	if !w.Exposed() {
		t.Error("not exposed in its network of before")
	}
	tag(DeadVLAN)
	if w.Exposed() {
		t.Error("exposed on the dead VLAN")
	}
	w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5)})
	w.Resolve()
	if p.Wiring.State != Wired || w.IsShut(p) || p.shut != "" {
		t.Errorf("%+v, shut: %q", p.Wiring, p.shut)
	}
}

func TestFreshVLANs(t *testing.T) {
	w := wiredWorld(someServer())
	if got := w.Segments.TakeFreshVLANs(); !slices.Equal(got, []uint16{1}) {
		t.Errorf("fresh %v", got)
	}
	if got := w.Segments.TakeFreshVLANs(); got != nil {
		t.Errorf("fresh again: %v", got)
	}
	one := 1
	w = plugged("br-int", &one, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	if w.Resolve(); w.Port("p1").Wiring.State != Wired || w.Segments.TakeFreshVLANs() != nil {
		t.Error("fresh without filters, which track nothing")
	}
	w = filtering(1)
	w.Segments.vlans.keep(segment7, 5)
	w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 1)})
	if w.Resolve(); w.Port("p1").Wiring.VLAN != 5 || w.Segments.TakeFreshVLANs() != nil {
		t.Errorf("VLAN %d of before is fresh", w.Port("p1").Wiring.VLAN)
	}
}

func TestALatePushDoesNotMakeAMember(t *testing.T) {
	w := wiredWorld(someServer())
	for i := range 2*lateness + 10 { // others in between
		send(t, w, neutron.KindPort, neutron.Updated, wirePort(fmt.Sprint("before", i), 1, "10.9.0.1", "elsewhere"))
	}
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("x", 7, "10.9.0.1", "elsewhere")) // nobody looks at it
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("y", 3, "10.9.0.2", "other"))
	send(t, w, neutron.KindPort, neutron.Updated, wirePort("y", 5, "10.9.0.2"))
	for i := range lateness - 1 {
		send(t, w, neutron.KindPort, neutron.Updated, wirePort(fmt.Sprint("after", i), 1, "10.9.0.1", "elsewhere"))
	}
	for _, id := range []string{"x", "y"} {
		send(t, w, neutron.KindPort, neutron.Updated, wirePort(id, 4, "10.9.0.1", "other"))
		if w.Members.byID[id] != nil {
			t.Errorf("%s is a member because of an old push", id)
		}
		send(t, w, neutron.KindPort, neutron.Updated, wirePort(id, 8, "10.9.0.1", "other"))
		if w.Members.byID[id] == nil {
			t.Errorf("%s is not a member in spite of a new push", id)
		}
	}
}

// A push passes that is about a port with which the host has nothing to do. It does the same as one with nothing but what is remembered of it.
func TestPassed(t *testing.T) {
	w, short := wiredWorld(someServer()), wiredWorld(someServer())
	for i, c := range []struct {
		event  neutron.Event
		port   map[string]any
		passes bool
	}{
		{neutron.Updated, wirePort("x", 7, "10.9.0.1", "elsewhere"), true},
		{neutron.Updated, wirePort("y", 7, "10.9.0.2", "elsewhere"), true},
		{neutron.Updated, wirePort("x", 4, "10.9.0.1", "other"), false}, // too late to make it a member
		{neutron.Updated, wirePort("x", 8, "10.9.0.1", "other"), false},
		{neutron.Updated, wirePort("x", 9, "10.9.0.1", "elsewhere"), false}, // no longer a member
		{neutron.Updated, wirePort("p1", 9, "10.9.0.1", "g"), false},
		{neutron.Deleted, map[string]any{"id": "y"}, false},
	} {
		push := pushOf(t, neutron.KindPort, c.event, c.port)
		if err := w.Push(push, time.Now()); err != nil {
			t.Fatal(err)
		}
		if w.Passed() != c.passes {
			t.Errorf("push %d passes: %v", i, w.Passed())
		}
		if id, revision, ok := Stranger(push.Objects[0].Data); w.Passed() {
			if !ok {
				t.Fatalf("push %d: nothing is remembered", i)
			}
			push = pushOf(t, neutron.KindPort, c.event, map[string]any{"id": id, "revision_number": revision})
		}
		if err := short.Push(push, time.Now()); err != nil {
			t.Fatal(err)
		}
		if short.Passed() != w.Passed() || (short.Members.byID["x"] != nil) != (w.Members.byID["x"] != nil) {
			t.Errorf("push %d: what is remembered leads to something else", i)
		}
	}
	off := New(Config{IntegrationBridge: "br-int"})
	if send(t, off, neutron.KindPort, neutron.Updated, wirePort("x", 7, "10.9.0.1", "other")); !off.Passed() {
		t.Error("without filters a port of another host does not pass")
	}
	if send(t, off, neutron.KindNetwork, neutron.Updated, map[string]any{"id": "n"}); off.Passed() {
		t.Error("a network passes")
	}
}

func TestStranger(t *testing.T) {
	for text, want := range map[string]bool{
		`{"id":"a","revision_number":95}`: true, `{"x":{"id":"b"},"revision_number":95,"id":"a","y":[`: true, `{"id":"a"}`: false, `{"id":5,"revision_number":95}`: false, `{"x":5 6,"id":"a","revision_number":95}`: false,
		`{"id":"a","revision_number":null}`: false, ``: false, `[]`: false,
	} {
		if id, revision, ok := Stranger([]byte(text)); ok != want || ok && (id != "a" || revision != 95) {
			t.Errorf("%s: %q %d %v", text, id, revision, ok)
		}
	}
}

// TestRevisionsAreKeptWhileAnAnswerMayCome: and not longer.
func TestRevisionsAreKeptWhileAnAnswerMayCome(t *testing.T) {
	w := filtering(1)
	w.Members.KeepRevisions(true)
	w.Members.passed["m"] = 3
	if w.Members.KeepRevisions(true); w.Members.passed["m"] != 3 {
		t.Errorf("%v", w.Members.passed)
	}
	if w.Members.KeepRevisions(false); w.Members.passed != nil {
		t.Errorf("%v", w.Members.passed)
	}
}
