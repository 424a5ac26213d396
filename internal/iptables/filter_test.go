// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

const (
	port1 = "5e0b7a10-33c2-4f5e-9d1a-000000000001"
	port2 = "c0ffee00-1234-4abc-9def-000000000003"
	group = "911d92f9-da9c-41f6-a519-5b2a6c1d0e01"
)

func ptr(n int) *int { return &n }

// filtered is a port with one address and the rules of a default group.
func filtered(id, ip string, rules ...world.Rule) Port {
	return Port{
		ID: id, MAC: neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}, FixedIPs: []netip.Addr{netip.MustParseAddr(ip)},
		Rules: append([]world.Rule{
			{Direction: world.Egress, IPVersion: 4, Protocol: world.AnyProtocol},
			{Direction: world.Ingress, IPVersion: 4, Protocol: world.AnyProtocol, Remote: group},
		}, rules...),
	}
}

var ssh = world.Rule{Direction: world.Ingress, IPVersion: 4, Protocol: protoTCP, Min: ptr(22), Max: ptr(22)}

func prefixes(all ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range all {
		p, err := parseMember(s)
		if err != nil {
			panic(err)
		}
		out = append(out, p)
	}
	return out
}

// settled has a filter write until nothing is left to write.
func settled(t *testing.T, f *Filter, have State, prune bool) State {
	t.Helper()
	c := f.Next(have, prune)
	next, err := have.apply(c)
	if err != nil {
		t.Fatalf("%v\n%+v", err, c)
	}
	f.Done(c, nil)
	if again := f.Next(next, prune); !again.Empty() {
		t.Fatalf("not settled: %+v", again)
	}
	return next
}

// TestMembersOfOneGroup: without a look at the host one set is written, and the others are known as before.
func TestMembersOfOneGroup(t *testing.T) {
	const other = "0c0ffee0-da9c-41f6-a519-000000000002"
	f := New(Config{})
	f.Set(filtered(port1, "10.0.0.5", world.Rule{Direction: world.Ingress, IPVersion: 4, Protocol: world.AnyProtocol, Remote: other}))
	f.SetMembers(group, prefixes("10.0.0.5"))
	f.SetMembers(other, prefixes("10.0.1.5"))
	have := settled(t, f, fresh(), true)
	next := func(remote string, members ...string) string {
		t.Helper()
		f.SetMembers(remote, prefixes(members...))
		f.NextMembers() // what nobody writes is not forgotten
		c, ok := f.NextMembers()
		if !ok {
			t.Fatalf("%+v", c)
		}
		f.SetMembers("unused", prefixes("10.0.2.5"))
		f.Done(c, nil)
		var err error
		if have, err = have.apply(c); err != nil {
			t.Fatal(err)
		}
		return c.Sets
	}
	for _, got := range []string{next(group, "10.0.0.5", "10.0.0.6"), next(other, "10.0.1.5", "10.0.1.6"), next(group, "10.0.0.6"), next(other)} {
		if n := strings.Count(got, "\n"); n != 1 && got != "del NIPv40c0ffee0-da9c-41f6-a519- 10.0.1.5\ndel NIPv40c0ffee0-da9c-41f6-a519- 10.0.1.6\n" {
			t.Errorf("%d lines: %q", n, got)
		}
	}
	if c := f.Next(have, true); c.Sets != "" || c.Rules != [2]string{} {
		t.Errorf("left to do: %+v", c)
	}
	// Members that change while others are written are written next.
	f.SetMembers(group, prefixes("10.0.0.7"))
	c, _ := f.NextMembers()
	f.SetMembers(group, prefixes("10.0.0.8"))
	f.Done(c, nil)
	if c, ok := f.NextMembers(); !ok || !strings.Contains(c.Sets, " 10.0.0.8\n") {
		t.Errorf("forgotten: %q, %v", c.Sets, ok)
	}
	if lines := f.Lines("nobody"); lines != nil {
		t.Errorf("lines of a port that is not known: %v", lines)
	}
}

func TestOneLine(t *testing.T) {
	f := New(Config{})
	f.Set(filtered(port1, "10.0.0.5"))
	f.Set(filtered(port2, "10.0.0.6"))
	f.SetMembers(group, prefixes("10.0.0.5", "10.0.0.6"))
	have := settled(t, f, fresh(), true)

	f.SetMembers(group, prefixes("10.0.0.5", "10.0.0.6", "10.0.0.7"))
	if c, ok := f.NextMembers(); !ok || c.Sets != "add NIPv4911d92f9-da9c-41f6-a519- 10.0.0.7\n" || c.Rules != [2]string{} || c.Unused != "" || len(c.Connections) > 0 {
		t.Errorf("a member, without a look: %+v", c)
	}
	if c := f.Next(have, true); c.Sets != "add NIPv4911d92f9-da9c-41f6-a519- 10.0.0.7\n" || c.Rules != [2]string{} || c.Unused != "" || len(c.Connections) > 0 {
		t.Errorf("a member: %+v", c)
	}
	f.SetMembers(group, prefixes("10.0.0.5", "10.0.0.6"))

	f.Set(filtered(port1, "10.0.0.5", ssh))
	if f.Applied(port1) || !f.Applied(port2) {
		t.Error("a port whose rule is not written yet")
	}
	if c, ok := f.NextMembers(); ok {
		t.Errorf("a port has changed, and nobody looks: %+v", c)
	}
	c := f.Next(have, true)
	if want := "*filter\n-I neutron-openvswi-i5e0b7a10-3 5 -p tcp -m tcp --dport 22 -j RETURN\nCOMMIT\n"; c.Rules != [2]string{want} || c.Sets != "" {
		t.Errorf("a rule: %+v", c)
	}
	f.Done(c, errors.New("no"))
	if _, ok := f.NextMembers(); ok || f.Applied(port1) {
		t.Error("writing failed")
	}
	have = settled(t, f, have, true)
	if !f.Applied(port1) {
		t.Error("not applied")
	}

	f.Set(filtered(port1, "10.0.0.5"))
	c = f.Next(have, true)
	if want := "*filter\n-D neutron-openvswi-i5e0b7a10-3 5\nCOMMIT\n"; c.Rules != [2]string{want} {
		t.Errorf("a rule is gone: %+v", c)
	}
	want := Connections{
		Zone: 4097, Direction: world.Ingress, Version: 4, Local: netip.MustParsePrefix("10.0.0.5/32"), Protocol: protoTCP, Ported: true, Ports: [2]uint16{22, 22},
	}
	if !slices.Equal(c.Connections, []Connections{want}) {
		t.Errorf("%+v", c.Connections)
	}
	f.Done(c, errors.New("no"))
	if c := f.Next(have, true); !slices.Equal(c.Connections, []Connections{want}) {
		t.Errorf("after a failure: %+v", c.Connections)
	}
}

func TestMemberLeaves(t *testing.T) {
	f := New(Config{})
	f.Set(filtered(port1, "10.0.0.5"))
	f.SetMembers(group, prefixes("10.0.0.5", "10.0.0.9"))
	have := settled(t, f, fresh(), true)
	f.SetMembers(group, prefixes("10.0.0.5", "10.0.0.10"))
	c := f.Next(have, true)
	if c.Sets != "del NIPv4911d92f9-da9c-41f6-a519- 10.0.0.9\nadd NIPv4911d92f9-da9c-41f6-a519- 10.0.0.10\n" {
		t.Errorf("what is gone goes first: %s", c.Sets)
	}
	if len(c.Connections) != 1 {
		t.Fatalf("%+v", c.Connections)
	}
	gone := c.Connections[0]
	from := func(src, dst string) conntrack.Connection {
		return conntrack.Connection{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: protoTCP, DstPort: 80}
	}
	for _, m := range []struct {
		c    conntrack.Connection
		want bool
	}{{from("10.0.0.9", "10.0.0.5"), true}, {from("10.0.0.10", "10.0.0.5"), false}, {from("10.0.0.5", "10.0.0.9"), false}} {
		if gone.Match(m.c) != m.want {
			t.Errorf("%+v: %v", m.c, !m.want)
		}
	}
	f.Done(c, errors.New("no")) // the set may be changed already
	if c, ok := f.NextMembers(); ok {
		t.Errorf("nobody knows what the set has, and nobody looks: %+v", c)
	}
	half := have.clone()
	delete(half.Sets[SetName(group, 4)].Members, netip.MustParsePrefix("10.0.0.9/32"))
	if c := f.Next(half, true); !slices.Contains(c.Connections, gone) {
		t.Error("connections are forgotten when a later step fails")
	}
}

func TestUnplug(t *testing.T) {
	f := New(Config{})
	f.Set(filtered(port1, "10.0.0.5"))
	f.Set(filtered(port2, "10.0.0.6"))
	f.SetMembers(group, prefixes("10.0.0.5"))
	have := settled(t, f, fresh(), true)
	f.Delete(port1)
	c := f.Next(have, true)
	if !slices.Equal(c.Connections, []Connections{{Zone: 4097, Whole: true}}) {
		t.Errorf("%+v", c.Connections)
	}
	have = settled(t, f, have, true)
	text := fmt.Sprint(have)
	if strings.Contains(text, "5e0b7a10") || !strings.Contains(text, "c0ffee00") {
		t.Error(text)
	}
	f.Delete(port2)
	have = settled(t, f, have, true)
	if len(have.Sets) > 0 {
		t.Errorf("%v", have.Sets)
	}
	f.Set(filtered(port1, "10.0.0.5"))
	f.SetMembers(group, prefixes("10.0.0.5"))
	settled(t, f, have, true)
	if f.zones.Of(port1) != 4097 {
		t.Error("a port has got another zone")
	}
}

// TestNothingKnown is an agent that has just started: it knows no port, and must not take away the rules of one.
func TestNothingKnown(t *testing.T) {
	f := New(Config{})
	f.Set(filtered(port1, "10.0.0.5"))
	f.Set(Port{ID: port2, Kind: Open})
	f.SetMembers(group, prefixes("10.0.0.5"))
	have := settled(t, f, fresh(), true)

	g := New(Config{})
	if c := g.Next(have, false); !c.Empty() {
		t.Errorf("nothing is known: %+v", c)
	}
	g.Set(filtered("aaaaaaaa-0000-4000-8000-000000000000", "10.0.0.7"))
	g.SetMembers(group, prefixes("10.0.0.5"))
	next := settled(t, g, have, false)
	for _, chain := range []string{chainForward, chainGroups, chainInput} {
		for _, rule := range have.Rules[0]["filter"][chain] {
			if !slices.Contains(next.Rules[0]["filter"][chain], rule) {
				t.Errorf("%s has lost %s", chain, rule)
			}
		}
	}
	if !slices.Equal(next.Rules[0]["filter"][ingressChain(port1)], have.Rules[0]["filter"][ingressChain(port1)]) {
		t.Error("the chain of a port that is not known yet has changed")
	}
	if g.zones.Of("aaaaaaaa-0000-4000-8000-000000000000") != 4098 {
		t.Error("a zone is used twice")
	}
	settled(t, g, next, true)
	if empty := New(Config{}).Next(fresh(), true); !empty.Empty() {
		t.Errorf("an agent without ports writes: %+v", empty)
	}
}

// TestForeign has rules of others in the chains of the kernel and chains of their own.
func TestForeign(t *testing.T) {
	have := fresh()
	filter := have.Rules[0]["filter"]
	filter["INPUT"] = []string{"-p tcp -m tcp --dport 22 -j ACCEPT"}
	filter["neutron-l3-agent-FORWARD"] = []string{"-j DROP"}
	filter["FORWARD"] = []string{"-j neutron-filter-top", "-j neutron-l3-agent-FORWARD", "-j DOCKER"}
	filter["neutron-filter-top"] = []string{"-j neutron-l3-agent-local"}
	filter["neutron-l3-agent-local"], filter["DOCKER"] = nil, []string{"-s 172.17.0.0/16 -j ACCEPT"}
	have.Sets["mine"] = Set{Type: "hash:ip"}
	f := New(Config{})
	f.Set(filtered(port1, "10.0.0.5"))
	f.SetMembers(group, prefixes("10.0.0.5"))
	next := settled(t, f, have, true).Rules[0]["filter"]
	for chain, want := range map[string][]string{
		"INPUT":                    {"-j neutron-openvswi-INPUT", "-p tcp -m tcp --dport 22 -j ACCEPT"},
		"FORWARD":                  {"-j neutron-filter-top", "-j neutron-openvswi-FORWARD", "-j neutron-l3-agent-FORWARD", "-j DOCKER"},
		"neutron-filter-top":       {"-j neutron-openvswi-local", "-j neutron-l3-agent-local"},
		"neutron-l3-agent-FORWARD": {"-j DROP"},
		"DOCKER":                   {"-s 172.17.0.0/16 -j ACCEPT"},
	} {
		if !slices.Equal(next[chain], want) {
			t.Errorf("%s: %v", chain, next[chain])
		}
	}
}

// TestLeave takes a host over to another driver: port by port, before all ports are known, then what is left.
func TestLeave(t *testing.T) {
	have := fresh()
	have.Rules[0]["filter"]["mine"] = []string{"-j " + ingressChain(port2), "-j DROP"}
	have.Rules[0]["filter"]["FORWARD"] = []string{"-m set --match-set NIPv4mine src -j DROP"}
	have.Sets["NIPv4mine"] = Set{Type: setType, Family: "inet"}
	f := New(Config{})
	f.Set(filtered(port1, "10.0.0.5"))
	f.Set(filtered(port2, "10.0.0.6"))
	f.SetMembers(group, prefixes("10.0.0.5"))
	have = settled(t, f, have, false)

	g := New(Config{})
	g.Set(Port{ID: port1, Kind: Absent})
	have = settled(t, g, have, false)
	if text := fmt.Sprint(have.Rules); strings.Contains(text, "5e0b7a10") || !strings.Contains(text, "c0ffee00") {
		t.Error(text)
	}
	next, err := have.apply(Leave(have))
	if err != nil {
		t.Fatal(err)
	}
	want := fresh()
	for i := range want.Rules {
		want.Rules[i]["filter"][chainTop] = []string{}
		want.Rules[i]["filter"]["FORWARD"], want.Rules[i]["filter"]["OUTPUT"] = []string{"-j " + chainTop}, []string{"-j " + chainTop}
	}
	want.Rules[0]["filter"]["FORWARD"] = append(want.Rules[0]["filter"]["FORWARD"], have.Rules[0]["filter"]["FORWARD"][2])
	want.Rules[0]["filter"]["mine"] = []string{"-j DROP"}
	if fmt.Sprint(next.Rules) != fmt.Sprint(want.Rules) || len(next.Sets) != 1 {
		t.Errorf("%v\n%v\n%v", next.Rules, want.Rules, next.Sets)
	}
}

func TestDrift(t *testing.T) {
	f := New(Config{})
	f.Set(filtered(port1, "10.0.0.5", ssh))
	f.SetMembers(group, prefixes("10.0.0.5", "10.0.0.9"))
	good := settled(t, f, fresh(), true)
	chain := ingressChain(port1)
	for name, spoil := range map[string]func(s State){
		"a rule is gone": func(s State) { s.Rules[0]["filter"][chain] = slices.Delete(s.Rules[0]["filter"][chain], 1, 2) },
		"a rule more": func(s State) {
			s.Rules[0]["filter"][chain] = append([]string{"-j RETURN"}, s.Rules[0]["filter"][chain]...)
		},
		"chains are emptied": func(s State) { s.Rules[1]["filter"][chainGroups] = nil },
		"a jump is gone":     func(s State) { s.Rules[0]["filter"]["FORWARD"] = nil },
		"a rule above ours": func(s State) {
			s.Rules[0]["filter"]["FORWARD"] = append([]string{"-j ACCEPT"}, s.Rules[0]["filter"]["FORWARD"]...)
		},
		"a table is empty":     func(s State) { s.Rules[0]["raw"] = map[string][]string{"PREROUTING": nil, "OUTPUT": nil} },
		"a table is not there": func(s State) { delete(s.Rules[0], "nat") }, // with nftables, until somebody writes into it
		"the note is gone":     func(s State) { delete(s.Rules[0]["raw"], chainZones) },
		"a member is gone":     func(s State) { delete(s.Sets[SetName(group, 4)].Members, netip.MustParsePrefix("10.0.0.9/32")) },
		"a member more":        func(s State) { s.Sets[SetName(group, 4)].Members[netip.MustParsePrefix("10.9.9.9/32")] = true },
		"a set is left behind": func(s State) { s.Sets[SetName(group, 4)+"-n"] = Set{Type: setType, Family: "inet"} },
		"a set is too small":   func(s State) { set := s.Sets[SetName(group, 4)]; set.MaxElem = 1; s.Sets[SetName(group, 4)] = set },
	} {
		bad := good.clone()
		spoil(bad)
		c := f.Next(bad, true)
		next, err := bad.apply(c)
		if err != nil || c.Empty() {
			t.Errorf("%s: %v, %+v", name, err, c)
			continue
		}
		if again := f.Next(next, true); !again.Empty() {
			t.Errorf("%s: not repaired: %+v", name, again)
		}
		if name == "a rule more" && !slices.Contains(c.Connections, Connections{Zone: 4097, Whole: true}) {
			t.Errorf("what a stranger's rule let in stays: %+v", c.Connections)
		}
	}
}

// TestSpellings has the same rules as other releases and back ends of iptables print them.
func TestSpellings(t *testing.T) {
	p := ReadProtocols([]byte("ipencap 4 IP-ENCAP\nvrrp 112 # x\nipv4 4\n"))
	for _, same := range [][2]string{
		{"-s 10.0.0.5/32 -m mac --mac-source fa:16:3e:00:00:0a -j RETURN", "-s 10.0.0.5 -m mac --mac-source FA:16:3E:00:00:0A -j RETURN"},
		{"-s 0.0.0.0/0 -j RETURN", "-j RETURN"},
		{"-p 4 -j RETURN", "-p ipencap -j RETURN"},
		{"-p ipv6-icmp -j RETURN", "-p icmpv6 -j RETURN"},
		{`-m comment --comment "a b" -j DROP`, `-m comment --comment "a b" -j DROP`},
		{"-s 2001:DB8::5 -j RETURN", "-s 2001:db8::5/128 -j RETURN"},
		{"-p icmp -m icmp --icmp-type 255/0 -j RETURN", "-p icmp -m icmp --icmp-type any -j RETURN"},
	} {
		if p.normal(same[0]) != p.normal(same[1]) {
			t.Errorf("%s\n%s\n%q\n%q", same[0], same[1], p.normal(same[0]), p.normal(same[1]))
		}
	}
	for _, differ := range [][2]string{
		{"-s 10.0.0.5/32 -j RETURN", "-d 10.0.0.5/32 -j RETURN"},
		{"! -s 0.0.0.0/0 -j RETURN", "-j RETURN"},
		{"-p icmp -m icmp --icmp-type 25/5 -j RETURN", "-p icmp -m icmp --icmp-type any -j RETURN"},
		{`-m comment --comment "-s 0.0.0.0/0" -j DROP`, `-m comment --comment "" -j DROP`},
	} {
		if p.normal(differ[0]) == p.normal(differ[1]) {
			t.Errorf("%s is not %s", differ[0], differ[1])
		}
	}
}

func TestRefused(t *testing.T) {
	for _, r := range []world.Rule{
		{Direction: world.Ingress, IPVersion: 4, Protocol: protoTCP, Min: ptr(90), Max: ptr(80)},
		{Direction: world.Ingress, IPVersion: 4, Protocol: protoTCP, Min: ptr(1), Max: ptr(70000)},
		{Direction: world.Ingress, IPVersion: 4, Protocol: protoUDP, Min: ptr(-1), Max: ptr(5)},
		{Direction: world.Ingress, IPVersion: 4, Protocol: protoICMP, Min: ptr(300)},
		{Direction: world.Ingress, IPVersion: 6, Protocol: protoICMPv6, Min: ptr(1), Max: ptr(256)},
	} {
		if got := (&Config{}).ruleText(&r, &Port{}, nil); got != nil {
			t.Errorf("%+v: %q: one rule that iptables refuses would keep all others out", r, got)
		}
	}
	wrong := world.Rule{Direction: world.Ingress, IPVersion: 6, Protocol: protoICMP, Min: ptr(8)}
	if got := (&Config{}).ruleText(&wrong, &Port{}, nil); !slices.Equal(got, []string{"-p icmp -j RETURN"}) {
		t.Errorf("%q: ip6tables has no match for types of ICMP", got)
	}
}

func TestClash(t *testing.T) {
	f := New(Config{})
	f.Set(filtered(port1, "10.0.0.5"))
	other := port1[:11] + "ff-4000-8000-000000000000"
	f.Set(filtered(other, "10.0.0.6"))
	f.SetMembers(group, prefixes("10.0.0.5"))
	settled(t, f, fresh(), true)
	if f.Unfit(other) == "" || f.Applied(other) || f.Unfit(port1) != "" || !f.Applied(port1) {
		t.Errorf("%q", f.Unfit(other))
	}
}

func TestZones(t *testing.T) {
	z := NewZones()
	rules, err := ParseRules(`*raw
:PREROUTING ACCEPT [0:0]
:neutron-openvswi-PREROUTING - [0:0]
:patchbay-zones - [0:0]
:other - [0:0]
-A PREROUTING -j neutron-openvswi-PREROUTING
-A neutron-openvswi-PREROUTING -m physdev --physdev-in qvb5e0b7a10-33 -m comment --comment "Set zone for x" -j CT --zone 4200
-A neutron-openvswi-PREROUTING -i qvb5e0b7a10-33 -m comment --comment "Set zone for x" -j CT --zone 4200
-A patchbay-zones -m physdev --physdev-in tapfee00-1234- -j CT --zone 4300
-A other -m physdev --physdev-in tapdeadbeef-01 -j CT --zone 70
COMMIT
`)
	if err != nil {
		t.Fatal(err)
	}
	z.Read(rules)
	all := func(string) bool { return true }
	for _, c := range []struct {
		id   string
		want uint16
	}{
		{port1, 4200}, {port2, 4300}, {"deadbeef-01aa-4000-8000-000000000000", 70},
		{"aaaaaaaa-0000-4000-8000-000000000000", 4301}, {"aaaaaaaa-0000-4000-8000-000000000000", 4301},
	} {
		if got, err := z.Take(c.id, all); got != c.want || err != nil {
			t.Errorf("%s: %d, %v", c.id, got, err)
		}
	}
	full := NewZones()
	for zone := firstZone; zone <= lastZone; zone++ {
		full.of[fmt.Sprint(zone)] = uint16(zone)
	}
	if _, err := full.Take(port1, all); !errors.Is(err, errNoZone) {
		t.Errorf("%v", err)
	}
	if got, err := full.Take(port1, func(part string) bool { return part != "5000" }); got != 5000 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"*filter\n:INPUT ACCEPT [0:0]\n", "-A INPUT -j DROP\n", "*filter\n-A INPUT -j DROP\nCOMMIT\n", "*filter\nwhat\nCOMMIT\n",
	} {
		if got, err := ParseRules(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, text := range []string{"create x\n", "flush a b\n", "create NIPv4x hash:net family inet\nadd NIPv4x what\n"} {
		if got, err := ParseSets(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	got, err := ParseRules("# Warning\n*filter\n:INPUT ACCEPT [5:6]\n[1:84] -A INPUT -p icmp -j DROP\nCOMMIT\n")
	if err != nil || !slices.Equal(got["filter"]["INPUT"], []string{"-p icmp -j DROP"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestHistories changes ports and members at random: what iptables would make of the changes is what a host has that got the last facts at
// once, and nothing is left to write.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := New(Config{NoSets: rapid.Bool().Draw(t, "no sets")})
		have := fresh()
		ids := []string{port1, port2, "aaaaaaaa-0000-4000-8000-000000000000"}
		groups := []string{group, "a22e03fa-eb0d-4207-b62a-6c3b7d2e1f02"}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			id := rapid.SampledFrom(ids).Draw(t, "port")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				f.Delete(id)
			case 1:
				var members []netip.Prefix
				for _, n := range rapid.SliceOfDistinct(rapid.IntRange(0, 20), rapid.ID[int]).Draw(t, "members") {
					members = append(members, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 32))
				}
				slices.SortFunc(members, netip.Prefix.Compare)
				f.SetMembers(rapid.SampledFrom(groups).Draw(t, "group"), append([]netip.Prefix{}, members...))
			default:
				p := Port{ID: id, Kind: rapid.SampledFrom([]Kind{Filtered, Filtered, Open, Trusted}).Draw(t, "kind")}
				for range rapid.IntRange(0, 3).Draw(t, "addresses") {
					p.FixedIPs = append(p.FixedIPs, netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 9).Draw(t, "address"))}))
				}
				for range rapid.IntRange(0, 5).Draw(t, "rules") {
					r := world.Rule{IPVersion: rapid.SampledFrom([]uint8{4, 6}).Draw(t, "version"), Protocol: protoTCP, Direction: world.Ingress}
					r.Min = ptr(rapid.IntRange(1, 9).Draw(t, "port number"))
					r.Max = r.Min
					if rapid.Bool().Draw(t, "remote") {
						r.Remote = rapid.SampledFrom(groups).Draw(t, "group")
					}
					p.Rules = append(p.Rules, r)
				}
				f.Set(p)
			}
			c, blind := f.NextMembers()
			if !blind || rapid.Bool().Draw(t, "read") {
				c = f.Next(have, true)
			}
			next, err := have.apply(c)
			if err != nil {
				t.Fatalf("%v\n%s", err, c.Rules)
			}
			f.Done(c, nil)
			have = next
			if again := f.Next(have, true); !again.Empty() {
				t.Fatalf("not settled: %+v", again)
			}
		}
		want := f.wanted()
		if len(want.Ports) == 0 {
			return
		}
		for i, tables := range want.Families {
			for _, table := range tables {
				for _, c := range table.Ports {
					d := &differ{}
					if got := have.Rules[i][table.Name][c.Name]; !slices.Equal(d.arrange(c, d.normalAll(got)), got) {
						t.Fatalf("%s: %q is not %q", c.Name, got, c.Rules)
					}
				}
				for _, s := range table.Shared {
					d := &differ{}
					if got := have.Rules[i][table.Name][s.Name]; !slices.Equal(d.arrange(s.chain(), d.normalAll(got)), got) {
						t.Fatalf("%s: %q", s.Name, got)
					}
				}
			}
		}
	})
}
