// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// TestConcerned: which objects of a push have to do with this host.
func TestConcerned(t *testing.T) {
	for _, c := range []struct {
		kind  neutron.Kind
		event neutron.Event
		data  string
		want  string
	}{
		{neutron.KindPort, neutron.Updated, `{"id":"p1","revision_number":9}`, "p1"},
		{neutron.KindPort, neutron.Updated, `{"id":"m1","revision_number":9,"security_group_ids":["other"]}`, "m1"},
		{neutron.KindPort, neutron.Updated, `{"id":"x","revision_number":9,"security_group_ids":["other"]}`, "x"},
		{neutron.KindPort, neutron.Updated, `{"id":"x","revision_number":9,"security_group_ids":["elsewhere"]}`, ""},
		{neutron.KindPort, neutron.Updated, `{"id":"m1","revision_number":9,"security_group_ids":[]}`, ""}, // it is a member no more
		{neutron.KindPort, neutron.Updated, `{"id":"\u0078","revision_number":9}`, ""},                     // read, and nobody's
		{neutron.KindPort, neutron.Updated, `{"id":"\u006d1","revision_number":9,"security_group_ids":["other"]}`, "m1"},
		{neutron.KindPort, neutron.Updated, `{"id":"p1","revision_number":"x"}`, "p1"}, // unreadable
		{neutron.KindPort, neutron.Deleted, `{"id":"p1"}`, "p1"},
		{neutron.KindPort, neutron.Deleted, `{"id":"m1"}`, "m1"},
		{neutron.KindPort, neutron.Deleted, `{"id":"x"}`, ""},
		{neutron.KindPort, neutron.Deleted, `{"id":"p1"`, "p1"}, // unreadable
		{neutron.KindNetwork, neutron.Updated, `{"id":"n1","segments":[{"versioned_object.data":{"network_type":"vxlan","segmentation_id":8}}]}`, "n1"},
		{neutron.KindNetwork, neutron.Updated, `{"id":"n1","segments":[{"versioned_object.data":{"network_type":"gre","segmentation_id":7}}]}`, "n1"},
		{neutron.KindNetwork, neutron.Updated, `{"id":"n1","segments":[{"versioned_object.data":{"network_type":"vxlan","segmentation_id":7}}]}`, ""},
		{neutron.KindNetwork, neutron.Updated, `{"id":"n1","segments":[]}`, ""},
		{neutron.KindNetwork, neutron.Updated, `{"id":"n2","segments":[{"versioned_object.data":{"network_type":"vxlan","segmentation_id":8}}]}`, ""},
		{neutron.KindNetwork, neutron.Updated, `{"id":"n1","segments":7}`, "n1"}, // unreadable
		{neutron.KindNetwork, neutron.Updated, `{"id":"n2","segments":7}`, ""},
		{neutron.KindNetwork, neutron.Deleted, `{"id":"n1"}`, ""},
		{neutron.KindSecurityGroup, neutron.Updated, `{"id":"g"}`, "g"},
		{neutron.KindSecurityGroup, neutron.Updated, `{"id":"h"}`, ""},
		{neutron.KindSecurityGroup, neutron.Updated, `{"id":"g","rules":7}`, "g"}, // unreadable
		{neutron.KindSecurityGroup, neutron.Deleted, `{"id":"g"}`, "g"},
		{neutron.KindSecurityGroup, neutron.Deleted, `{"id":"h"}`, ""},
		{neutron.KindSecurityGroupRule, neutron.Updated, `{"id":"new","security_group_id":"g"}`, "new"},
		{neutron.KindSecurityGroupRule, neutron.Updated, `{"id":"new","security_group_id":"h"}`, ""},
		{neutron.KindSecurityGroupRule, neutron.Deleted, `{"id":"r1"}`, "r1"},
		{neutron.KindSecurityGroupRule, neutron.Deleted, `{"id":"r9"}`, ""},
		{neutron.KindAddressGroup, neutron.Updated, `{"id":"ag"}`, "ag"},
		{neutron.KindAddressGroup, neutron.Updated, `{"id":"x"}`, ""},
		{neutron.KindAddressGroup, neutron.Deleted, `{"id":"ag"}`, "ag"},
		{"Trunk", neutron.Updated, `{"id":"g"}`, ""},
	} {
		s := someServer()
		s.groups["g"] = append(s.groups["g"], rule("r5", "g", "addresses=ag"))
		s.addresses["ag"] = neutron.AddressGroup{ID: "ag"}
		w := wiredWorld(s)
		push := &neutron.Push{Kind: c.kind, Event: c.event, Objects: []neutron.Primitive{{Name: string(c.kind), Data: []byte(c.data)}}}
		for range 2 { // those of the last push, not of all
			_ = w.Push(&neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: []neutron.Primitive{{Name: "Port", Data: []byte(`{"id":"p1","revision_number":6}`)}}}, time.Now())
		}
		_ = w.Push(push, time.Now())
		if got := strings.Join(w.Concerned(), " "); got != c.want {
			t.Errorf("%s %s %s: %q, want %q", c.kind, c.event, c.data, got, c.want)
		}
		if len(w.Missing()) > 0 != (c.kind == neutron.KindNetwork && c.want != "" || strings.Contains(c.data, `"x"}`) && c.want == "p1" || c.data == `{"id":"p1"`) {
			t.Errorf("%s %s %s: asks for %v", c.kind, c.event, c.data, w.Missing())
		}
	}
	again := wiredWorld(someServer())
	for i, want := range []int{1, 0} { // deleted, and once more
		if send(t, again, neutron.KindSecurityGroupRule, neutron.Deleted, map[string]any{"id": "r1"}); len(again.Concerned()) != want {
			t.Errorf("time %d: %v", i, again.Concerned())
		}
	}
	if known, since := again.Standing(Item{neutron.KindSecurityGroup, "h", 0}); known || since != 0 {
		t.Errorf("of a group that no port has: %v, %d", known, since)
	}
	if got := again.Members.PeerConjunctions(SegmentKey{"n2", 7}, peer("10.1.0.1/32")); got != nil {
		t.Errorf("on a segment that no port with the group is on: %v", got)
	}
	off := New(config())
	if send(t, off, neutron.KindSecurityGroup, neutron.Updated, map[string]any{"id": "g"}); len(off.Concerned()) != 0 {
		t.Errorf("without filters: %v", off.Concerned())
	}
	// Taking an object panics: that is an error, and what it names is asked for again.
	w := wiredWorld(someServer())
	w.Contain = func(o Object, work func()) bool { return o != nil }
	if err := w.Push(pushOf(t, neutron.KindPort, neutron.Updated, map[string]any{"id": "p1"}), time.Now()); err == nil || !slices.Equal(w.Missing(), []string{"p1"}) {
		t.Errorf("%v, asks for %v", err, w.Missing())
	}
}

// TestAddresses: those of a remote group, sorted, each once.
func TestAddresses(t *testing.T) {
	s := someServer()
	var want []netip.Prefix
	for i := range 12 {
		id := fmt.Sprint("x", i)
		want = append(want, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}), 32))
		s.members[id] = member1(id, want[i].Addr().String(), 1, "other")
	}
	want = append([]netip.Prefix{netip.MustParsePrefix("10.1.0.1/32"), netip.MustParsePrefix("10.1.0.2/32")}, want...)
	for i := range 2 { // anybody's address with a MAC is one for each MAC
		m := member1(fmt.Sprint("all", i), "10.1.0.1", 1, "other")
		m.AllowedAddressPairs = neutron.List[neutron.AddressPair]{{MAC: neutron.MAC{4, byte(i)}, IP: mustPrefix("0.0.0.0/0")}}
		s.members[m.ID] = m
	}
	want = append([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, want...)
	w := wiredWorld(s)
	if got := w.Members.Addresses("other"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := w.Members.Addresses("third"); got != nil || w.Members.Changed("third") != 0 {
		t.Errorf("of a group that nobody refers to: %v, %d", got, w.Members.Changed("third"))
	}
	before := w.Members.Changed("other")
	for _, c := range []struct {
		add, drop []Peer
		changed   bool
	}{
		{[]Peer{peer("10.1.1.3/32")}, nil, false}, {nil, []Peer{peer("10.1.1.3/32")}, false}, // two members have it
		{nil, []Peer{peer("10.1.1.3/32")}, true}, {[]Peer{peer("10.1.1.3/32")}, nil, true},
	} {
		w.Members.addPeers(w.remotes["other"], c.add)
		w.Members.dropPeers(w.remotes["other"], c.drop)
		after := w.Members.Changed("other")
		if before == 0 || (after != before) != c.changed {
			t.Errorf("%+v: %d, before %d", c, after, before)
		}
		before = after
	}
	if w.Groups.Offsets(Conjunction{Group: "h", Remote: "third"}) != 0 || w.Groups.Rules("h") != nil || w.Groups.AllRules("h") != nil || w.Groups.Stateless("h") {
		t.Error("something is known of a group that no port has")
	}
}

// hybrid is a world whose filters are rules of iptables, with one port, whose interface has a name.
func hybrid(name string, only bool) *World {
	cfg := config()
	cfg.Filter, cfg.Hybrid, cfg.BridgedOnly = true, true, only
	one := 1
	w := pluggedInto(New(cfg), "br-int", &one, ovsdb.Interface{})
	rename(w, name)
	w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5, "g")})
	someServer().answers(w)
	return w
}

// rename gives the interface of the port another name.
func rename(w *World, name string) {
	old := w.View.Interface("i")
	now := *old
	now.Name = name
	w.Switch(&ovsdb.Batch{Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: old, New: &now}}})
	w.Resolve()
}

// TestBridged: a port whose interface leads to a Linux bridge of its own is filtered by rules; one without is filtered by flows, or not wired.
func TestBridged(t *testing.T) {
	for _, c := range []struct {
		name   string
		only   bool
		state  State
		rules  bool
		reason string
	}{
		{"qvop1", false, Wired, true, ""}, {"qvop1", true, Wired, true, ""}, {"tap1", false, Wired, false, ""}, {"tap1", true, Dead, false, "without a Linux bridge"}, {"qvop2", true, Dead, false, ""},
	} {
		w := hybrid(c.name, c.only)
		p := w.Port("p1")
		if p.Wiring.State != c.state || w.ByRules(p) != c.rules || !strings.Contains(p.Wiring.Reason, c.reason) {
			t.Errorf("%s, only %v: %s (%s), by rules %v", c.name, c.only, p.Wiring.State, p.Wiring.Reason, w.ByRules(p))
		}
	}
	// A port that loses its bridge is under no filters, and when it has one again it waits for them.
	w := hybrid("qvop1", true)
	p := w.Port("p1")
	rename(w, "tap1")
	if p.Wiring.State != Dead || p.Groups != nil || p.wants != nil || w.Groups.IDs() != nil || w.ByRules(p) {
		t.Errorf("%s under %v, groups %v", p.Wiring.State, p.Groups, w.Groups.IDs())
	}
	rename(w, "qvop1")
	if p.Wiring.State != Waiting || !strings.Contains(p.Wiring.Reason, "has not been told yet") {
		t.Errorf("%s (%s)", p.Wiring.State, p.Wiring.Reason)
	}
	if someServer().answers(w); p.Wiring.State != Wired || !w.ByRules(p) {
		t.Errorf("%s (%s)", p.Wiring.State, p.Wiring.Reason)
	}
	w.Config.Hybrid = false
	if w.ByRules(p) {
		t.Error("by rules without them")
	}
	// Names of interfaces have 14 characters, and a trunk's bridge has that of a port of a VM.
	long := &Port{ID: "0123456789abcdef", VIF: &VIF{Name: "qvo0123456789a"}}
	if !w.Bridged(long) {
		t.Error("a long id is not found")
	}
	if long.VIF.Name = "tpi-1"; w.Bridged(long) {
		t.Error("another interface counts")
	}
	w.Switch(&ovsdb.Batch{Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{UUID: "j", Name: "qvo0123456789a"}}}})
	if w.Bridged(long) {
		t.Error("the bridge of a trunk is that of no VM")
	}
	if long.VIF.VM = true; !w.Bridged(long) {
		t.Error("the bridge of a trunk is not found")
	}
	if long.VIF = nil; w.Bridged(long) || w.InVLAN(long) || w.InVLAN(nil) {
		t.Error("what is not plugged in has a bridge or a VLAN")
	}
}

// TestGuards: what iptables has of a port is kept, and a change has the port compiled again.
func TestGuards(t *testing.T) {
	w := hybrid("qvop1", true)
	w.Resolve()
	for _, c := range []struct {
		id    string
		guard Guard
		want  string
	}{
		{"p1", Unseen, ""}, {"p1", Guarded, "port p1"}, {"p1", Guarded, ""}, {"p1", Admitted, "port p1"}, {"gone", Unguarded, ""}, {"p1", Unseen, "port p1"},
	} {
		w.SetGuard(c.id, c.guard)
		if got := names(w.Resolve()); got != c.want || w.Guard(c.id) != c.guard {
			t.Errorf("%s is %v: touched %q", c.id, w.Guard(c.id), got)
		}
	}
	if len(w.guards) != 1 {
		t.Errorf("remembered: %v", w.guards)
	}
	if w.RulesGone() {
		t.Error("gone from the start")
	}
	w.SetRulesGone()
	if got := names(w.Resolve()); got != "bridge br-int" || !w.RulesGone() {
		t.Errorf("touched %q, gone %v", got, w.RulesGone())
	}
	for value, want := range map[string]bool{"true": true, "false": false, "": false} {
		again := plugged("br-int", new(1), ovsdb.Interface{})
		again.View.BridgeByName("br-int").OtherConfig = map[string]string{RulesGoneKey: value}
		if again.RulesGone() != want {
			t.Errorf("marked %q: %v", value, !want)
		}
	}
	if New(config()).RulesGone() {
		t.Error("gone without a bridge")
	}
}

// TestTakeExposed: a port that is shut is exposed until its row has it in no network; then it is forgotten.
func TestTakeExposed(t *testing.T) {
	w := filtering(2)
	w.Close()
	for _, id := range []string{"p1", "p2", "gone"} {
		w.Shut(id)
	}
	w.Resolve()
	tag := func(id string, n int) {
		old := w.View.Port(w.Port(id).VIF.Port)
		now := *old
		now.Tag = &n
		w.Switch(&ovsdb.Batch{Ports: []ovsdb.Diff[ovsdb.Port]{{Old: old, New: &now}}})
		w.Resolve()
	}
	tag("p1", 7)
	if !w.TakeExposed() || len(w.exposed) != 1 || !w.exposed["p1"] {
		t.Errorf("exposed %v", w.exposed)
	}
	tag("p1", DeadVLAN)
	if len(w.exposed) != 1 || w.Exposed() || w.TakeExposed() || len(w.exposed) != 0 {
		t.Errorf("exposed %v", w.exposed)
	}
}

// TestComingUnderFilters: a port that was wired without filters is shut until its groups are known.
func TestComingUnderFilters(t *testing.T) {
	w := filtering(1)
	w.Close()
	trusted := grouped(1, 5, "g")
	trusted.Security = neutron.Maybe[neutron.Security]{Value: &neutron.Security{}}
	w.Ports([]string{"p1"}, []neutron.Port{trusted})
	w.Resolve()
	p := w.Port("p1")
	if p.Wiring.State != Wired || !w.Trusted(p) {
		t.Fatalf("%s (%s)", p.Wiring.State, p.Wiring.Reason)
	}
	filtered := grouped(1, 6, "g")
	w.learn(&filtered)
	if w.Resolve(); p.Wiring.State != Waiting || !w.IsShut(p) || !w.exposed["p1"] {
		t.Errorf("%s, shut %v", p.Wiring.State, w.IsShut(p))
	}
	if someServer().answers(w); p.Wiring.State != Wired || w.IsShut(p) || !w.Filtered(p) {
		t.Errorf("%s, shut %v", p.Wiring.State, w.IsShut(p))
	}
	again := trusted
	again.Revision = 7
	w.learn(&again)
	if w.Resolve(); p.Groups != nil || p.wants != nil || p.filtered != "" || len(w.Groups.IDs()) != 0 || !w.Trusted(p) {
		t.Errorf("trusted again, under %v, groups %v", p.Groups, w.Groups.IDs())
	}
}

// TestWhyAPortWaits: of several groups the one that will come is the reason; what the server does not have comes last.
func TestWhyAPortWaits(t *testing.T) {
	for _, unknown := range []string{"a", "c"} {
		w := filtering(1)
		w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5, "a", "c")})
		w.Resolve()
		other := map[string]string{"a": "c", "c": "a"}[unknown]
		w.Groups.Pulled([]Item{{neutron.KindSecurityGroup, unknown, w.Now()}}, nil)
		w.Resolve()
		if got := w.Port("p1").Wiring; got.State != Waiting || got.Reason != "its security group "+other+" has not been told yet" {
			t.Errorf("%s (%s)", got.State, got.Reason)
		}
		w.Groups.Pulled([]Item{{neutron.KindSecurityGroup, other, w.Now()}}, nil)
		w.Resolve()
		if got := w.Port("p1").Wiring; got.State != Waiting || got.Reason != "the server does not know its security group a" {
			t.Errorf("%s (%s)", got.State, got.Reason)
		}
	}
	// What is asked for comes in order, and an answer about several counts for each that is needed.
	many := filtering(1)
	many.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5, "e", "b", "d", "a", "c")})
	many.Resolve()
	var asked []string
	for _, i := range many.MissingItems() {
		asked = append(asked, i.ID)
	}
	if got := strings.Join(asked, ""); got != "abcde" {
		t.Errorf("asks for %s", got)
	}
	items := append([]Item{{neutron.KindSecurityGroup, "nobody's", many.Now()}}, many.MissingItems()...)
	many.Groups.Pulled(items, []neutron.SecurityGroup{{ID: "b"}, {ID: "d"}, {ID: "e"}})
	for id, want := range map[string]bool{"a": false, "b": true, "c": false, "d": true, "e": true} {
		if g := many.groups[id]; g.known != want || g.unknown == want {
			t.Errorf("%s is known: %v, unknown: %v", id, g.known, g.unknown)
		}
	}
	// Of several remote groups that are not known the first by name, whatever the order of a map.
	for range 10 {
		w := filtering(1)
		w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5, "g")})
		w.Resolve()
		w.Groups.Pulled(w.MissingItems(), []neutron.SecurityGroup{{ID: "g", Rules: neutron.List[neutron.SecurityGroupRule]{
			rule("r1", "g", "remote=c"), rule("r2", "g", "remote=b"), rule("r3", "g", "remote=d"),
		}}})
		w.Resolve()
		if got := w.Port("p1").Wiring.Reason; !strings.HasPrefix(got, "the members of group b,") {
			t.Fatal(got)
		}
		w.Unread(w.MissingItems())
		w.Resolve()
		if got := w.Port("p1").Wiring.Reason; got != "what the server tells about b, to which its security group g refers, cannot be read" {
			t.Fatal(got)
		}
	}
}

// TestPeersOfASegment: what a group refers to is compiled on a segment when the first port there has the group, and when the last has it no more.
func TestPeersOfASegment(t *testing.T) {
	const peers = "; peer n1/7|10.1.0.1/32|-; peer n1/7|10.1.0.2/32|-"
	s := someServer()
	w := filtering(2)
	w.Ports([]string{"p1", "p2"}, []neutron.Port{grouped(1, 5, "g"), grouped(2, 5)})
	s.answers(w)
	step := func(what string, n int, revision int64, want string, groups ...string) {
		t.Helper()
		d := grouped(n, revision, groups...)
		w.learn(&d)
		if got := names(w.Resolve()); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		if broken := invariants(w); len(broken) > 0 {
			t.Errorf("%s: %q", what, broken)
		}
	}
	step("a second port", 2, 6, "port p2", "g")
	step("the second leaves", 2, 7, "port p2")
	step("the second is back", 2, 8, "port p2", "g")
	step("the first leaves", 1, 9, "port p1")
	step("the last leaves", 2, 10, "port p2"+peers)
	// A port that is plugged out leaves as well.
	w = filtering(2)
	w.Ports([]string{"p1", "p2"}, []neutron.Port{grouped(1, 5, "g"), grouped(2, 5, "g")})
	s.answers(w)
	w.Switch(&ovsdb.Batch{Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: w.View.InterfaceByName("tap1")}}})
	if got, broken := names(w.Resolve()), invariants(w); len(broken) > 0 || w.groups["g"].segments[segment7] != 1 || strings.Contains(got, "peer") {
		t.Errorf("touched %s, on %v, %q", got, w.groups["g"].segments, broken)
	}
}

// TestARuleOfBefore: an older revision of a rule does not count.
func TestARuleOfBefore(t *testing.T) {
	w := wiredWorld(someServer())
	push := func(revision int, protocol string) string {
		send(t, w, neutron.KindSecurityGroupRule, neutron.Updated, map[string]any{
			"id": "r2", "security_group_id": "g", "direction": "ingress", "ethertype": "IPv4", "protocol": protocol, "revision_number": revision,
		})
		w.Resolve()
		return w.Groups.groups["g"].rules["r2"].rule.Protocol
	}
	for _, c := range []struct {
		revision       int
		protocol, want string
	}{{5, "tcp", "tcp"}, {4, "udp", "tcp"}, {5, "sctp", "sctp"}, {6, "udp", "udp"}} {
		if got := push(c.revision, c.protocol); got != c.want {
			t.Errorf("revision %d: %s", c.revision, got)
		}
	}
}

// TestAncillary: a bridge whose owner has marked it is one whose ports are reported, unless it is ours.
func TestAncillary(t *testing.T) {
	one := 1
	for _, c := range []struct {
		bridge, mark string
		want         State
	}{{"br-own", "br-own", Ancillary}, {"br-own", "", Elsewhere}, {"br-own", "other", Elsewhere}, {"br-ex", "br-ex", Elsewhere}, {"br-int", "br-int", Waiting}} {
		w := plugged(c.bridge, &one, ovsdb.Interface{})
		w.View.BridgeByName(c.bridge).ExternalIDs = map[string]string{"bridge-id": c.mark}
		w.Again(PortObject("p1"))
		if got := names(w.Resolve()); got != "port p1" {
			t.Errorf("touched %s", got)
		}
		if p := w.Port("p1"); p.Wiring.State != c.want || (p.Ancillary == "i") != (c.want == Ancillary) || (p.VIF != nil) != (c.want == Waiting) {
			t.Errorf("%s marked %q: %s, %+v", c.bridge, c.mark, p.Wiring.State, p)
		}
	}
}

// TestWhatIsAPort: an interface with the id and the address of a port is one, as soon as a port row of a bridge has it.
func TestWhatIsAPort(t *testing.T) {
	one := 1
	for ids, want := range map[string]bool{"p1 fa:16:3e:00:00:01": true, "p1 ": false, "p1 nonsense": false, " fa:16:3e:00:00:01": false} {
		id, mac, _ := strings.Cut(ids, " ")
		if _, ok := vifOf(&ovsdb.Interface{ExternalIDs: map[string]string{"iface-id": id, "attached-mac": mac}}); ok != want {
			t.Errorf("%q: %v", ids, ok)
		}
	}
	w := plugged("br-int", &one, ovsdb.Interface{})
	full := w.View.Port("p")
	empty := *full
	empty.Interfaces = nil
	rows := func(old, now *ovsdb.Port) State {
		w.Switch(&ovsdb.Batch{Ports: []ovsdb.Diff[ovsdb.Port]{{Old: old, New: now}}})
		if got := names(w.Resolve()); got != "port p1" {
			t.Errorf("touched %q", got)
		}
		return w.Port("p1").Wiring.State
	}
	if got := rows(full, &empty); got != Elsewhere {
		t.Errorf("an interface of no port is %s", got)
	}
	if got := rows(&empty, full); got != Waiting {
		t.Errorf("an interface that came to a port is %s", got)
	}
	with := w.View.BridgeByName("br-int")
	without := *with
	without.Ports = nil
	for _, c := range []struct {
		old, now *ovsdb.Bridge
		want     State
	}{{with, &without, Elsewhere}, {&without, with, Waiting}} {
		w.Switch(&ovsdb.Batch{Bridges: []ovsdb.Diff[ovsdb.Bridge]{{Old: c.old, New: c.now}}})
		if got := names(w.Resolve()); got != "bridge br-int; port p1" || w.Port("p1").Wiring.State != c.want {
			t.Errorf("touched %q, the port is %s, want %s", got, w.Port("p1").Wiring.State, c.want)
		}
	}
}

// TestAnAnswerAboutAnotherIncarnation says nothing of the port, and all the same which groups it is in.
func TestAnAnswerAboutAnotherIncarnation(t *testing.T) {
	w := filtering(2)
	s := &server{groups: map[string][]neutron.SecurityGroupRule{"g": {rule("r", "g", "remote=g")}}}
	w.Ports([]string{"p2"}, []neutron.Port{grouped(2, 1, "g")})
	s.answers(w)
	then := w.Now()
	for _, plug := range []bool{false, true} {
		old := w.View.InterfaceByName("tap1")
		d := ovsdb.Diff[ovsdb.Interface]{Old: old}
		if plug {
			d = ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{UUID: "tap1", Name: "tap1", OFPort: new(1), ExternalIDs: map[string]string{"iface-id": "p1", "attached-mac": "fa:16:3e:00:00:01"}}}
		}
		w.Switch(&ovsdb.Batch{Interfaces: []ovsdb.Diff[ovsdb.Interface]{d}})
		w.Resolve()
	}
	w.PortsAsked(then, []string{"p1"}, []neutron.Port{grouped(1, 1, "g")})
	if p := w.Port("p1"); p.Details != nil || p.Answered || w.Members.byID["p1"] == nil {
		t.Errorf("%+v, member %v", p, w.Members.byID["p1"])
	}
	// The same answer counts for a port that was not plugged in anew.
	if w.PortsAsked(w.Port("p1").Since(), []string{"p1"}, []neutron.Port{grouped(1, 1, "g")}); w.Port("p1").Details == nil {
		t.Error("an answer to a question of the same moment does not count")
	}
}

// TestNoVLANLeft: a port of one network more than there are VLANs is dead, and says why.
func TestNoVLANLeft(t *testing.T) {
	one := 1
	w := plugged("br-int", &one, ovsdb.Interface{})
	for i := range maxVLAN {
		w.Segments.vlans.take(SegmentKey{"n", i})
	}
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	if got := w.Port("p1").Wiring; got.State != Dead || got.Reason != "all 4094 local VLANs of this host are in use" || len(w.Segments.byKey) != 0 {
		t.Errorf("%+v", got)
	}
	for kind, want := range map[string]State{"local": Wired, "fantasy": Dead} {
		w := plugged("br-int", &one, ovsdb.Interface{})
		w.Ports([]string{"p1"}, numbered(kind, nil))
		if w.Resolve(); w.Port("p1").Wiring.State != want {
			t.Errorf("%s: %+v", kind, w.Port("p1").Wiring)
		}
	}
}

// TestEntriesThatAreNotOurs: among entries of ourselves and of networks that are not here, those that count are found, whatever the order of a map.
func TestEntriesThatAreNotOurs(t *testing.T) {
	for range 20 {
		w, entry := stations(t)
		s := w.Segments.Get(segment7)
		m := entry("10.0.0.2", 2, "192.168.0.2")
		m.Networks["n1"].Ports[netip.MustParseAddr("10.0.0.1")] = []neutron.FDBEntry{{MAC: neutron.MAC{9}, IP: netip.MustParseAddr("192.168.0.9")}} // ourselves
		for i := range 4 {
			m.Networks[fmt.Sprint("x", i)] = m.Networks["n1"]
		}
		w.Tunnels.FDBAdd(m)
		if s.StationCount() != 1 || len(s.Endpoints()) != 1 {
			t.Fatalf("%d stations, endpoints %v", s.StationCount(), s.Endpoints())
		}
		at := func(ip string) []neutron.FDBEntry {
			return []neutron.FDBEntry{{MAC: neutron.MAC{2}, IP: netip.MustParseAddr(ip)}}
		}
		change := neutron.IPChange{Before: at("192.168.0.2"), After: at("192.168.0.3")}
		endpoints := map[netip.Addr]neutron.IPChange{netip.MustParseAddr("10.0.0.1"): change, netip.MustParseAddr("10.0.0.2"): change}
		for i := range 4 { // segments of other networks, and of no tunnel
			key := SegmentKey{fmt.Sprint("y", i), none}
			w.Segments.byKey[key] = &Segment{Key: key, Type: "flat", fdb: newFDB()}
		}
		w.Tunnels.FDBChange(&neutron.FDBChange{Networks: map[string]map[netip.Addr]neutron.IPChange{"n1": endpoints, "x1": endpoints, "y1": endpoints}})
		if found, _ := s.Station(neutron.MAC{2}); len(found.IPs) != 1 || found.IPs[0] != netip.MustParseAddr("192.168.0.3") {
			t.Fatalf("%+v", found)
		}
		// An endpoint that is gone takes what is behind it along, and nothing else.
		w.Tunnels.FDBAdd(entry("10.0.0.4", 4, "192.168.0.4"))
		w.Tunnels.Gone(endpoint("vxlan/10.0.0.2"))
		if got := s.Endpoints(); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("10.0.0.4")}) || s.StationCount() != 1 {
			t.Fatalf("endpoints %v, %d stations", got, s.StationCount())
		}
	}
}

// TestObjectsOfAWorld: all that there are, by asking; and nothing changes by that.
func TestObjectsOfAWorld(t *testing.T) {
	w := wiredWorld(someServer())
	const want = "bridge br-ex; bridge br-int; bridge br-tun; port p1; segment n1/7; peer n1/7|10.1.0.1/32|-; peer n1/7|10.1.0.2/32|-; interface tap1"
	if got := names(w.Objects()); got != want || w.HasChanges() {
		t.Errorf("%s, changes %v", got, w.HasChanges())
	}
	w.mark(PortObject("x"))
	w.Again(PortObject("p1"))
	if w.Objects(); !w.dirty[PortObject("x")] || !w.touched["p1"] || len(w.dirty) != 2 {
		t.Error("what is to be worked out is lost by asking")
	}
	w.Resolve()
	for _, touch := range []func(){func() { w.touched["p1"] = true }, func() { w.touchedGroups["g"] = true }} {
		touch()
		if !w.HasChanges() {
			t.Error("a port or a group has changed, and nothing is to be worked out")
		}
		if w.mark(PortObject("x")); !w.HasChanges() {
			t.Error("two changes are none")
		}
		w.Resolve()
	}
	tunnels, _, _ := oneStation(t)
	if got := names(tunnels.Objects()); !strings.Contains(got, "; segment n1/7; tunnel vxlan/10.0.0.2; station n1/7|02:00:00:00:00:00") {
		t.Error(got)
	}
	if got := names(w.Everything()); got != want || w.HasChanges() {
		t.Errorf("%s, changes %v", got, w.HasChanges())
	}
}

// TestConfirmed: entries of an earlier run that the server has not told again go when it has told everything of the segment, and not before.
func TestConfirmed(t *testing.T) {
	before, entry := stations(t)
	before.Tunnels.FDBAdd(entry("10.0.0.2", 2, "192.168.0.2"))
	before.Tunnels.FDBAdd(entry("10.0.0.3", 3, "192.168.0.3"))
	m := before.Memory()
	for _, told := range []bool{false, true} {
		one := 1
		w := New(config())
		w.Recall(m)
		pluggedInto(w, "br-int", &one, ovsdb.Interface{})
		if got := w.Remembered(); got != 1 {
			t.Errorf("%d ports are remembered", got)
		}
		w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
		w.Resolve()
		if got := w.Remembered(); got != 0 {
			t.Errorf("%d ports are remembered after the answer", got)
		}
		if told {
			w.Tunnels.FDBAdd(entry("10.0.0.3", 3, "192.168.0.3"))
			w.Resolve()
		}
		w.Confirmed()
		want, touched := 2, ""
		if told {
			want, touched = 1, "tunnel vxlan/10.0.0.2; station n1/7|02:00:00:00:00:00"
		}
		if got := names(w.Resolve()); got != touched || w.Segments.Get(segment7).StationCount() != want {
			t.Errorf("told %v: %d stations, touched %s", told, w.Segments.Get(segment7).StationCount(), got)
		}
		// After a gap the same: what is not told again goes.
		if told {
			w.Tunnels.FDBAdd(entry("10.0.0.4", 4, "192.168.0.4"))
			w.Resync()
			if w.Segments.Get(segment7).FDBReceived() {
				t.Error("entries from before a gap count as all")
			}
			w.Tunnels.FDBAdd(entry("10.0.0.3", 3, "192.168.0.3"))
			if w.Confirmed(); w.Segments.Get(segment7).StationCount() != 1 {
				t.Errorf("after a gap %d stations", w.Segments.Get(segment7).StationCount())
			}
			w.Resolve()
		}
		if w.recalled.ports != nil || w.recalled.segments != nil {
			t.Error("the memory is kept")
		}
	}
}

// TestMeterIDs: an id follows from what a meter is for, and no two have the same.
func TestMeterIDs(t *testing.T) {
	ids := MeterIDs{}
	free := func(uint32) bool { return false }
	a, b, c := MeterUse{"qos", "a"}, MeterUse{"qos", "b"}, MeterUse{"qos", "c"}
	first := ids.Choose(a, 100, free)
	if first == 0 || first > 100 || ids.Choose(a, 100, free) != first || !ids.Free(first, a) || ids.Free(first, b) {
		t.Errorf("%d, %v", first, ids)
	}
	if next := ids.Choose(MeterUse{"log", "a"}, 100, free); next != first%100+1 { // the same text of another extension
		t.Errorf("%d after %d", next, first)
	}
	if got := (MeterIDs{}).Choose(a, 100, func(id uint32) bool { return id == first }); got != first%100+1 {
		t.Errorf("%d, although %d is taken", got, first)
	}
	two := MeterIDs{}
	one, other := two.Choose(a, 2, free), two.Choose(b, 2, free)
	if one+other != 3 || two.Choose(c, 2, free) != 0 || (MeterIDs{}).Choose(a, 0, free) != 0 {
		t.Errorf("%d and %d of two, %v", one, other, two)
	}
	two.Release(one, b)
	if len(two) != 2 {
		t.Error("somebody else's id was given back")
	}
	two.Release(one, a)
	if got := two.Choose(c, 2, free); got != one || len(two) != 2 {
		t.Errorf("%d, want %d", got, one)
	}
}

// TestRecall: what an earlier run wrote down is in force for what is plugged in, before the server has said anything.
func TestRecall(t *testing.T) {
	s := someServer()
	s.groups["g"] = append(s.groups["g"], rule("r5", "g", "addresses=ag"), rule("r6", "g", "remote=unheard"))
	s.addresses["ag"] = neutron.AddressGroup{ID: "ag", Revision: 4, Addresses: neutron.List[neutron.Address]{{Prefix: mustPrefix("192.0.2.0/24")}}}
	before := filtering(2)
	eight := 8
	other := grouped(2, 5, "g")
	other.NetworkID, other.BindingLevels[0].Segment.Value.SegmentationID = "n2", &eight
	before.Ports([]string{"p1", "p2"}, []neutron.Port{grouped(1, 5, "g"), other})
	s.answers(before)
	flood := []neutron.FDBEntry{{IP: netip.IPv4Unspecified()}, {MAC: neutron.MAC{2}, IP: netip.MustParseAddr("192.168.0.2")}}
	before.Tunnels.FDBAdd(&neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"n2": { // of the second segment alone something was heard
		NetworkType: "vxlan", SegmentationID: &eight, Ports: map[netip.Addr][]neutron.FDBEntry{netip.MustParseAddr("10.0.0.2"): flood},
	}}})
	before.Resolve()
	text, err := json.Marshal(before.Memory())
	if err != nil {
		t.Fatal(err)
	}
	var m Memory
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Ports) != 2 || len(m.Groups) != 1 || len(m.Groups[0].Rules) != 4 || len(m.Remotes) != 3 || len(m.Members) != 2 || len(m.Segments) != 1 || m.Segments[0].Network != "n2" {
		t.Errorf("written down: %s", text)
	}
	w := New(before.Config)
	w.Recall(&m)
	b := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}
	for br := range before.View.Bridges() {
		b.Bridges = append(b.Bridges, ovsdb.Diff[ovsdb.Bridge]{New: br})
	}
	for p := range before.View.Ports() {
		b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{New: p})
	}
	for i := range before.View.Interfaces() {
		b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: i})
	}
	w.Switch(b)
	w.Resolve()
	for _, id := range []string{"p1", "p2"} {
		if p := w.Port(id); !w.Filtered(p) || !slices.Equal(p.Groups, []string{"g"}) || p.Answered {
			t.Errorf("%s is %s (%s) under %v", id, p.Wiring.State, p.Wiring.Reason, p.Groups)
		}
	}
	if got, want := ruleIDs(w, "g"), ruleIDs(before, "g"); !slices.Equal(got, want) {
		t.Errorf("rules %v, want %v", got, want)
	}
	for _, group := range []string{"other", "ag", "unheard"} {
		if got, want := w.Members.Addresses(group), before.Members.Addresses(group); !slices.Equal(got, want) {
			t.Errorf("addresses of %s: %v, want %v", group, got, want)
		}
	}
	if w.remotes["ag"].revision != 4 {
		t.Errorf("the address group is of revision %d", w.remotes["ag"].revision)
	}
	two := w.Segments.Get(SegmentKey{"n2", 8})
	if got := w.Tunnels.FloodTo(two); two.StationCount() != 1 || two.FDBReceived() || !two.fdb.known || len(got) != 1 {
		t.Errorf("%d stations, flood to %v", two.StationCount(), got)
	}
	if ports, items := w.Unspoken(); ports != 2 || items != 4 {
		t.Errorf("%d ports and %d items are to be told", ports, items)
	}
}
