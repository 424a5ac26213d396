// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// TestAllRules looks at what the flows do not need: ports of DCCP, stateless groups, the addresses of a remote group.
func TestAllRules(t *testing.T) {
	no := false
	w := filtering(1)
	w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 1, "g")})
	w.Resolve()
	tell := func(revision int64, ports string) {
		t.Helper()
		r := rule("r1", "g", "dccp ports="+ports)
		r.Revision = revision
		asked := slices.DeleteFunc(w.MissingItems(), func(i Item) bool { return i.Kind != neutron.KindSecurityGroup })
		w.Groups.Pulled(asked, []neutron.SecurityGroup{{ID: "g", Stateful: &no, Rules: neutron.List[neutron.SecurityGroupRule]{
			r, rule("r2", "g", "tcp remote=h"),
		}}})
	}
	tell(1, "7-8")
	w.Resolve()
	for _, i := range w.MissingItems() {
		pair := neutron.AddressPair{IP: neutron.Prefix{Prefix: netip.MustParsePrefix("0.0.0.0/0")}}
		m := member1("m", "10.0.0.9", 1, "h")
		m.AllowedAddressPairs = neutron.List[neutron.AddressPair]{pair, pair}
		w.Members.Pulled([]Item{i}, []neutron.Member{m})
	}
	w.Resolve()
	flows, all := w.Groups.Rules("g"), w.Groups.AllRules("g")
	if len(all) != 2 || all[1].Protocol != protoDCCP || *all[1].Min != 7 || *all[1].Max != 8 || flows[1].Min != nil {
		t.Errorf("%+v, %+v", all, flows)
	}
	if !w.Groups.Stateless("g") || w.Groups.Stateless("none") || w.Groups.AllRules("none") != nil || w.Members.Addresses("none") != nil {
		t.Error("groups")
	}
	later := filtering(1)
	later.Recall(w.Memory())
	later.Ports([]string{"p1"}, []neutron.Port{grouped(1, 1, "g")})
	later.Resolve()
	if !later.Groups.Stateless("g") {
		t.Error("after a restart its connections are tracked until the server answers")
	}
	want := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.0.0.9/32")}
	if got := w.Members.Addresses("h"); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for protocol, want := range map[string][2]bool{"dccp": {false, true}, "udplite": {false, true}, "tcp": {true, true}, "udp": {true, true}, "sctp": {true, true}, "gre": {false, false}, "135": {false, false}, "137": {false, false}} {
		n := rule("r", "g", protocol+" ports=7-8")
		flows, _ := read(&n)
		all, _ := readAll(&n)
		if got := [2]bool{flows.Max != nil, all.Max != nil}; got != want {
			t.Errorf("%s has ports for flows, and for rules: %v, want %v", protocol, got, want)
		}
		n.PortRangeMax = nil
		if flows, _ := read(&n); flows.Min != nil {
			t.Errorf("%s has half a range", protocol)
		}
		if all, _ := readAll(&n); all.Min != nil {
			t.Errorf("%s has half a range", protocol)
		}
	}
	w.Resync()
	tell(2, "7-9")
	if changed := w.Resolve(); !slices.Contains(changed, Object(PortObject("p1"))) || *w.Groups.AllRules("g")[1].Max != 9 {
		t.Errorf("a port of DCCP has changed: %s", names(changed))
	}
}
