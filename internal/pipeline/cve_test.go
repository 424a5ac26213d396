// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// The holes that were published for the Python agent, each with the packet or the object that it was about; docs/explanation/security-model.md lists them.
// The flows are those that a switch would get; a packet is looked up in them as a switch does.

// decide returns what the flows of a table do with a packet, written like a match: the actions of the flow that matches with the highest
// priority. Fields that the packet does not have are 0.
func (c *cloud) decide(t *testing.T, table uint8, packet string) string {
	t.Helper()
	p, err := of.ParseFlow("table=0,priority=1," + packet + " actions=drop")
	if err != nil {
		t.Fatalf("%s: %v", packet, err)
	}
	flows := []of.Flow{}
	for _, f := range c.all(t, func(world.Object) bool { return true }) {
		flow, err := f.Entry.Flow()
		if err != nil {
			t.Fatal(err)
		}
		if flow.Table == table && matchesPacket(flow.Match, p.Match) {
			flows = append(flows, flow)
		}
	}
	if len(flows) == 0 {
		return "drop"
	}
	best := slices.MaxFunc(flows, func(a, b of.Flow) int { return cmp.Compare(a.Priority, b.Priority) })
	return cmp.Or(string(of.AppendActions(nil, best.Actions)), "drop")
}

func matchesPacket(m, packet of.Match) bool {
	for _, term := range m {
		have, _ := packet.Lookup(term.Field)
		if have.Value.Hi&term.Mask.Hi != term.Value.Hi&term.Mask.Hi || have.Value.Lo&term.Mask.Lo != term.Value.Lo&term.Mask.Lo {
			return false
		}
	}
	return true
}

const macOfA, macOfB = "fa:16:3e:00:00:0a", "fa:16:3e:00:00:0b"

// dropped is what table 71 does with a packet of port A that it does not let pass.
const dropped = "ct_clear,resubmit(,93)"

func TestSpoofedSenders(t *testing.T) {
	const ownLocal, otherLocal = "fe80::f816:3eff:fe00:a", "fe80::f816:3eff:fe00:b"
	c := play(t, "option permitted_ethertypes 0x8863\nnetwork N vxlan 42\ngroup g\nrule any4 egress ipv4\nrule any6 egress ipv6\nport A 11 N 10.0.0.10 2001:db8::a group g\nport B 12 N 10.0.0.11 2001:db8::b group g\n").cloud()
	c.converge(t)
	for _, tc := range []struct {
		cve, what, packet string
		pass              bool
	}{
		{"CVE-2016-5363", "ARP under its own addresses", "dl_src=" + macOfA + ",arp,arp_spa=10.0.0.10,arp_sha=" + macOfA, true},
		{"CVE-2016-5363", "ARP from another MAC", "dl_src=" + macOfB + ",arp,arp_spa=10.0.0.10", false},
		{"CVE-2016-5363", "ARP for another address", "dl_src=" + macOfA + ",arp,arp_spa=10.0.0.11", false},
		{"CVE-2016-5363", "RARP from its own MAC: what QEMU sends after a live migration", "dl_src=" + macOfA + ",rarp", true},
		{"CVE-2016-5363", "RARP from another MAC", "dl_src=" + macOfB + ",rarp", false},
		{"CVE-2016-5363", "no IP at all, from another MAC", "dl_src=" + macOfB + ",dl_type=0x88cc", false},
		{"CVE-2016-5363", "a permitted ethertype from its own MAC", "dl_src=" + macOfA + ",dl_type=0x8863", true},
		{"CVE-2016-5363", "a permitted ethertype from another MAC", "dl_src=" + macOfB + ",dl_type=0x8863", false},
		{"CVE-2021-38598", "IPv4 from another MAC", "dl_src=" + macOfB + ",ip,nw_src=10.0.0.10", false},
		{"CVE-2021-38598", "IPv4 under its own addresses", "dl_src=" + macOfA + ",ip,nw_src=10.0.0.10", true},
		{"CVE-2021-38598", "IPv4 from another address", "dl_src=" + macOfA + ",ip,nw_src=10.0.0.11", false},
		{"CVE-2016-5362", "DHCP discover from its own MAC", "dl_src=" + macOfA + ",udp,nw_src=0.0.0.0,tp_src=68,tp_dst=67", true},
		{"CVE-2016-5362", "DHCP discover from another MAC", "dl_src=" + macOfB + ",udp,nw_src=0.0.0.0,tp_src=68,tp_dst=67", false},
		{"CVE-2016-5362", "DHCP request from another address", "dl_src=" + macOfA + ",udp,nw_src=10.0.0.11,tp_src=68,tp_dst=67", false},
		{"CVE-2016-5362", "DHCPv6 from another address", "dl_src=" + macOfA + ",udp6,ipv6_src=" + otherLocal + ",tp_src=546,tp_dst=547", false},
		{"CVE-2015-8914", "neighbour solicitation from its link-local address", "dl_src=" + macOfA + ",icmp6,icmp_type=135,ipv6_src=" + ownLocal, true},
		{"CVE-2015-8914", "neighbour solicitation from another link-local address", "dl_src=" + macOfA + ",icmp6,icmp_type=135,ipv6_src=" + otherLocal, false},
		{"CVE-2015-8914", "router solicitation from another link-local address", "dl_src=" + macOfA + ",icmp6,icmp_type=133,ipv6_src=" + otherLocal, false},
		{"CVE-2015-8914", "listener query from another link-local address", "dl_src=" + macOfA + ",icmp6,icmp_type=130,ipv6_src=" + otherLocal, false},
		{"CVE-2021-20267", "advertisement of its own address", "dl_src=" + macOfA + ",icmp6,icmp_type=136,ipv6_src=2001:db8::a,nd_target=2001:db8::a", true},
		{"CVE-2021-20267", "advertisement of its own address from another of its own", "dl_src=" + macOfA + ",icmp6,icmp_type=136,ipv6_src=" + ownLocal + ",nd_target=2001:db8::a", true},
		{"CVE-2021-20267", "advertisement of its own address from another's", "dl_src=" + macOfA + ",icmp6,icmp_type=136,ipv6_src=2001:db8::b,nd_target=2001:db8::a", false},
		{"CVE-2021-20267", "advertisement of another's address", "dl_src=" + macOfA + ",icmp6,icmp_type=136,ipv6_src=2001:db8::a,nd_target=2001:db8::b", false},
		{"CVE-2021-20267", "advertisement of its own address from another MAC", "dl_src=" + macOfB + ",icmp6,icmp_type=136,ipv6_src=2001:db8::a,nd_target=2001:db8::a", false},
		{"CVE-2021-20267", "advertisement of the unspecified address", "dl_src=" + macOfA + ",icmp6,icmp_type=136,ipv6_src=" + ownLocal, false},
		{"CVE-2021-20267", "IPv6 from another address", "dl_src=" + macOfA + ",ipv6,nw_proto=6,ipv6_src=2001:db8::b", false},
		{"CVE-2021-20267", "solicitation from another MAC", "dl_src=" + macOfB + ",icmp6,icmp_type=135,ipv6_src=" + ownLocal, false},
	} {
		got := c.decide(t, fwBaseEgress, "in_port=11,reg5=11,"+tc.packet)
		// What is under its own address, and of no special kind, is up to the rules. Connection tracking takes neighbour discovery for no
		// connection: either for nothing that it knows or for invalid.
		if strings.HasPrefix(got, "ct(table=72") && strings.Contains(tc.packet, "icmp6") {
			tracked := c.decide(t, fwRulesEgress, "reg5=11,ct_state=+trk,"+tc.packet)
			if invalid := c.decide(t, fwRulesEgress, "reg5=11,ct_state=+inv+trk,"+tc.packet); tracked == "resubmit(,93)" && invalid == tracked {
				got = dropped
			}
		}
		if got == "resubmit(,24)" && c.decide(t, intARPSpoof, "in_port=11,reg5=11,"+tc.packet) == "drop" {
			got = dropped
		}
		if pass := got != dropped; pass != tc.pass {
			t.Errorf("%s: %s: %s", tc.cve, tc.what, got)
		}
	}
	for what, packet := range map[string]string{
		"CVE-2016-5362: answer of a DHCP server":   "dl_src=" + macOfA + ",udp,nw_src=10.0.0.10,tp_src=67,tp_dst=68",
		"CVE-2016-5362: answer of a DHCPv6 server": "dl_src=" + macOfA + ",udp6,ipv6_src=2001:db8::a,tp_src=547,tp_dst=546",
		"CVE-2015-8914: advertisement of a router": "dl_src=" + macOfA + ",icmp6,icmp_type=134,ipv6_src=" + ownLocal,
	} {
		if got := c.decide(t, fwBaseEgress, "in_port=11,reg5=11,"+packet); got != "resubmit(,93)" {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// CVE-2016-5363, CVE-2021-20267 and CVE-2021-38598 where no firewall is used: senders are checked by tables 24 and 25.
func TestSpoofedSendersWithoutFirewall(t *testing.T) {
	cfg := filterConfig()
	cfg.Filter, cfg.FilterTables, cfg.AntiSpoof = false, false, true
	s := &scripted{t: t, cfg: cfg}
	for _, line := range []string{"network N vxlan 42", "port A 11 N 10.0.0.10 2001:db8::a", "port B 12 N"} {
		s.Tell(strings.Fields(line))
	}
	c := s.cloud()
	c.converge(t)
	// walk follows a packet through the tables that check senders.
	walk := func(packet string) string {
		table, got := uint8(intEntry), ""
		for range 5 {
			got = c.decide(t, table, packet)
			switch got {
			case "goto_table:24", "resubmit(,24)":
				table = intARPSpoof
			case "goto_table:25", "resubmit(,25)":
				table = intMACSpoof
			default:
				return got
			}
		}
		return got
	}
	for _, tc := range []struct {
		what, packet string
		pass         bool
	}{
		{"ARP under its own addresses", "in_port=11,dl_src=" + macOfA + ",arp,arp_spa=10.0.0.10", true},
		{"ARP for another address", "in_port=11,dl_src=" + macOfA + ",arp,arp_spa=10.0.0.11", false},
		{"ARP from another MAC", "in_port=11,dl_src=" + macOfB + ",arp,arp_spa=10.0.0.10", false},
		{"IPv4 from another MAC", "in_port=11,dl_src=" + macOfB + ",ip,nw_src=10.0.0.10", false},
		{"advertisement of its own address from another MAC", "in_port=11,dl_src=" + macOfB + ",icmp6,icmp_type=136,nd_target=2001:db8::a", false},
		{"no IP at all, from another MAC", "in_port=11,dl_src=" + macOfB + ",dl_type=0x88cc", false},
		{"advertisement of another's address", "in_port=11,dl_src=" + macOfA + ",icmp6,icmp_type=136,nd_target=2001:db8::b", false},
		{"CVE-2018-14635: ARP of a port without addresses", "in_port=12,dl_src=" + macOfB + ",arp,arp_spa=10.0.0.10", false},
	} {
		if got := walk(tc.packet); (got != "drop") != tc.pass {
			t.Errorf("%s: %s", tc.what, got)
		}
	}
}

// CVE-2018-14635: a port without an address, on which the Linux bridge agent then checked none.
func TestPortWithoutAddresses(t *testing.T) {
	c := play(t, "network N vxlan 42\ngroup g\nrule any4 egress ipv4\nrule any6 egress ipv6\nport A 11 N group g\n").cloud()
	c.converge(t)
	for _, packet := range []string{"ip,nw_src=10.0.0.10", "arp,arp_spa=10.0.0.10", "arp", "ipv6,ipv6_src=2001:db8::a", "udp,nw_src=10.0.0.10,tp_src=68,tp_dst=67"} {
		if got := c.decide(t, fwBaseEgress, "in_port=11,reg5=11,dl_src="+macOfA+","+packet); got != dropped {
			t.Errorf("%s: %s", packet, got)
		}
	}
}

// CVE-2018-14636: a port that is down, or whose binding is on another host while its VM arrives here, was in every VLAN.
func TestPortThatMustNotPass(t *testing.T) {
	for what, change := range map[string]func(*neutron.Port){
		"down":                func(p *neutron.Port) { p.AdminStateUp = false },
		"bound to the source": func(p *neutron.Port) { p.Bindings[0].Host = "hv2" },
		"two bindings": func(p *neutron.Port) {
			p.Bindings = neutron.List[neutron.Binding]{{Host: "hv2", Status: "ACTIVE"}, {Host: "hv1", Status: "INACTIVE"}}
		},
		"no segment": func(p *neutron.Port) { p.BindingLevels = nil },
	} {
		s := play(t, "network N vxlan 42\ngroup g\nrule any4 egress ipv4\nport A 11 N 10.0.0.10 group g\n")
		c := s.cloud()
		change(c.ports["A"])
		c.converge(t)
		s.out.Reset()
		s.state("A")
		if got := s.out.String(); !strings.Contains(got, "tag 4095 before the flows") {
			t.Errorf("%s: %s", what, got)
		}
		if got := c.decide(t, intEntry, "in_port=11,dl_src="+macOfA+",ip,nw_src=10.0.0.10"); got != "drop" {
			t.Errorf("%s: sends %s", what, got)
		}
		if got := c.decide(t, intTransient, "dl_vlan=1,dl_dst="+macOfA); strings.Contains(got, "71") || strings.Contains(got, "81") {
			t.Errorf("%s: receives %s", what, got)
		}
	}
}

// CVE-2019-9735: ports in a rule for a protocol that has none; CVE-2014-0187: a prefix that makes no sense. One rule must not cost the
// others, nor other ports.
func TestRuleThatMakesNoSense(t *testing.T) {
	s := play(t, "network N vxlan 42\ngroup bad\nrule vrrp ingress ipv4 112 80\nrule wrong ingress ipv4 tcp 81 prefix 2001:db8::/32\n"+
		"rule nonsense ingress ipv4 nonsense 5\nrule ssh ingress ipv4 tcp 22\ngroup good\nrule web ingress ipv4 tcp 80\n"+
		"port A 11 N 10.0.0.10 group bad\nport B 12 N 10.0.0.11 group good\n")
	c := s.cloud()
	c.converge(t)
	for id, want := range map[string]map[string]bool{
		"11": {"tcp,tp_dst=22": true, "tcp,tp_dst=80": false, "tcp,tp_dst=81": false, "udp,tp_dst=5": false, "ip,nw_proto=112": true},
		"12": {"tcp,tp_dst=80": true, "tcp,tp_dst=22": false},
	} {
		for packet, pass := range want {
			if got := c.decide(t, fwRulesIngress, "reg5="+id+",ct_state=+new+trk,"+packet); (got != "resubmit(,93)") != pass {
				t.Errorf("port %s, %s: %s", id, packet, got)
			}
		}
	}
}

// CVE-2019-10876: groups whose port ranges overlap. Both are allowed, and when one goes the other is still allowed whole.
func TestOverlappingGroups(t *testing.T) {
	s := play(t, "network N vxlan 42\ngroup one\nrule a ingress ipv4 tcp 80-90\ngroup two\nrule b ingress ipv4 tcp 85-95\nrule c ingress ipv4 tcp 80-90\n"+
		"port A 11 N 10.0.0.10 group one group two\nport B 12 N 10.0.0.11 group two\n")
	c := s.cloud()
	c.converge(t)
	check := func(when string, groups map[string]string) {
		t.Helper()
		for number, allowed := range groups {
			for port := 78; port <= 97; port++ {
				got := c.decide(t, fwRulesIngress, fmt.Sprintf("reg5=%s,ct_state=+new+trk,tcp,tp_dst=%d", number, port))
				var from, to int
				if _, err := fmt.Sscanf(allowed, "%d-%d", &from, &to); err != nil {
					t.Fatal(err)
				}
				if pass := got != "resubmit(,93)"; pass != (port >= from && port <= to) {
					t.Errorf("%s: port %s, tcp %d: %s", when, number, port, got)
				}
			}
		}
	}
	check("both", map[string]string{"11": "80-95", "12": "80-95"})
	p := *c.ports["A"]
	p.SecurityGroupIDs, p.Revision = []string{"one"}, 2
	c.ports["A"] = &p
	c.w.Resync()
	c.converge(t)
	check("one left", map[string]string{"11": "80-90", "12": "80-95"})
}

// CVE-2015-3221: an address pair of length 0, which a tool of the iptables firewall refused, and with it everything after it.
func TestAddressPairForEverything(t *testing.T) {
	s := play(t, "network N vxlan 42\ngroup g\nrule any4 egress ipv4\nport A 11 N 10.0.0.10 group g pair fa:16:3e:00:00:0a 0.0.0.0/0 pair fa:16:3e:00:00:0a ::/0\nport B 12 N 10.0.0.11 group g\n")
	c := s.cloud()
	c.converge(t)
	for packet, want := range map[string]bool{
		"in_port=11,reg5=11,dl_src=" + macOfA + ",ip,nw_src=192.0.2.1": true, // it was allowed to
		"in_port=11,reg5=11,dl_src=" + macOfB + ",ip,nw_src=192.0.2.1": false,
		"in_port=12,reg5=12,dl_src=" + macOfB + ",ip,nw_src=10.0.0.11": true,
		"in_port=12,reg5=12,dl_src=" + macOfB + ",ip,nw_src=192.0.2.1": false,
	} {
		if got := c.decide(t, fwBaseEgress, packet); (got != dropped) != want {
			t.Errorf("%s: %s", packet, got)
		}
	}
}

// CVE-2026-34956 is in helpers of connection tracking (alg=ftp): no flow asks for one.
func TestNoHelpers(t *testing.T) {
	c := play(t, "network N vxlan 42\ngroup g\nrule ftp ingress ipv4 tcp 21\nrule out egress ipv4\nport A 11 N 10.0.0.10 group g\n").cloud()
	c.converge(t)
	flows := c.all(t, func(world.Object) bool { return true })
	for _, f := range flows {
		if strings.Contains(f.Entry.String(), "alg=") {
			t.Errorf("%s", f.Entry)
		}
	}
	if len(flows) < 20 {
		t.Errorf("%d flows only", len(flows))
	}
}

// A port of one network writes the local VLAN of another one into a frame. Direct delivery must not take it there.
func TestFrameUnderAnotherNetworksVLAN(t *testing.T) {
	const networks = "option explicitly_egress_direct\nnetwork N vxlan 42\nnetwork M vxlan 43\n"
	for _, driver := range []struct {
		name, script string
		table        uint8
		elsewhere    string // what becomes of frames that are for no port of their network
	}{
		{"openvswitch", networks + "group g\nport A 11 N 10.0.0.10 group g\nport B 12 M 10.0.1.11 group g\n", fwAcceptedNormal, "NORMAL"},
		{"noop", "option no_firewall\n" + networks + "port A 11 N 10.0.0.10\nport B 12 M 10.0.1.11\n", intDirect, "goto_table:62"},
	} {
		c := play(t, driver.script).cloud()
		c.converge(t)
		for _, tc := range []struct{ what, packet, want string }{
			{"from another host", "dl_vlan=2,dl_dst=" + macOfB, "pop_vlan,output:12"},
			{"from a port of its own network", "reg6=2,dl_dst=" + macOfB, "output:12"},
			{"from a port of another network, untagged", "reg6=1,dl_dst=" + macOfB, driver.elsewhere},
			{"from a port of another network, tagged", "reg6=1,dl_vlan=2,dl_dst=" + macOfB, driver.elsewhere},
		} {
			if got := c.decide(t, driver.table, tc.packet); got != tc.want {
				t.Errorf("%s, a frame to B %s: %s, want %s", driver.name, tc.what, got, tc.want)
			}
		}
	}
}
