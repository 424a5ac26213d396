// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

// withRemote is the scenario of one port in G1, and of a member of G2 that is bound to another host.
func withRemote(name, doc string, rules ...attrs) *scenario {
	return &scenario{
		name: name, config: firewall, hosts: 1, doc: doc,
		steps: []step{
			network("N1", "46", segment("vlan", 203)),
			group("G2"),
			group("G1", rules...),
			port("B", "N1", 2, groups("G2")),
			port("A", "N1", 1, groups("G1")),
			plug(1, "A"),
			check("plugged", "A=ACTIVE"),
		},
	}
}

// withAddresses is the scenario of one port in G1, whose rules name the address group L1.
func withAddresses(name, doc string, prefixes []string, rules ...attrs) *scenario {
	return &scenario{
		name: name, config: firewall, hosts: 1, doc: doc,
		steps: []step{
			network("N1", "46", segment("vlan", 204)),
			addressGroup("L1", prefixes...),
			group("G1", rules...),
			port("A", "N1", 1, groups("G1")),
			plug(1, "A"),
			check("plugged", "A=ACTIVE"),
		},
	}
}

// remoteScenarios are about rules that name the other side by a group.
func remoteScenarios() []*scenario {
	icmp4, icmp6 := proto("icmp"), proto("ipv6-icmp")
	return []*scenario{
		withRemote("fw-remote-any", "Members of another group may be talked to, over both IP versions, in both directions.",
			rule(in, members("G2")), rule(out, members("G2")), rule(in, v6, members("G2")), rule(out, v6, members("G2"))),
		withRemote("fw-remote-tcp", "Members of another group by tcp over IPv4: all ports, one, a range.",
			rule(in, tcp, members("G2")), rule(in, tcp, ports(80, 80), members("G2")), rule(out, tcp, ports(1000, 1999), members("G2"))),
		withRemote("fw-remote-udp-ipv6", "Members of another group by udp over IPv6: all ports, one, a range.",
			rule(in, v6, udp, ports(53, 53), members("G2")), rule(out, v6, udp, members("G2")), rule(out, v6, udp, ports(100, 200), members("G2"))),
		withRemote("fw-remote-icmp-ipv4", "Members of another group by ICMP: all, a type, a type and a code, which differ in priority.",
			rule(in, icmp4, members("G2")), rule(in, icmp4, icmp(8, -1), members("G2")), rule(in, icmp4, icmp(3, 4), members("G2"))),
		withRemote("fw-remote-icmp-ipv6", "Members of another group by ICMPv6: all, a type, a type and a code, which differ in priority.",
			rule(out, v6, icmp6, members("G2")), rule(out, v6, icmp6, icmp(128, -1), members("G2")), rule(in, v6, icmp6, icmp(1, 4), members("G2"))),
		withRemote("fw-remote-protocols", "Members of another group by protocols that have no ports, and by sctp.",
			rule(in, proto("47"), members("G2")), rule(in, proto("esp"), members("G2")), rule(out, v6, proto("vrrp"), members("G2")),
			rule(in, proto("sctp"), ports(7, 7), members("G2"))),
		withRemote("fw-remote-all-priorities", "Rules of all four priorities towards the members of one group.",
			rule(in, members("G2")), rule(in, icmp4, members("G2")), rule(in, icmp4, icmp(8, -1), members("G2")), rule(in, tcp, ports(22, 22), members("G2"))),
		withRemote("fw-remote-ranges-overlap", "Ranges of ports that overlap, contain and touch each other, for the members of one group.",
			rule(in, tcp, ports(80, 95), members("G2")), rule(in, tcp, ports(88, 103), members("G2")), rule(in, tcp, ports(90, 90), members("G2")),
			rule(in, tcp, ports(104, 111), members("G2"))),
		withRemote("fw-remote-and-plain", "The same traffic is allowed to members and to everyone, and some to members only.",
			rule(in, tcp, ports(80, 80)), rule(in, tcp, ports(80, 81), members("G2")), rule(in, udp, members("G2")), rule(out)),
		{
			name: "fw-remote-same-host", config: firewall, hosts: 1,
			doc: "Members of another group may come in; both ports are on one host and the same network.",
			steps: []step{
				network("N1", "46", segment("vlan", 203)),
				group("G2"),
				group("G1", rule(in, members("G2")), rule(in, v6, members("G2"))),
				port("A", "N1", 1, groups("G1")), port("B", "N1", 1, groups("G2")),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "fw-remote-other-host", config: firewall, hosts: 2, doc: "Ports of two groups on two hosts: one lets the other in, which may go there.",
			steps: []step{
				network("N1", "4", segment("vxlan", 802)),
				group("G1"), group("G2", rule(out, tcp, ports(80, 80), members("G1"))),
				addRule("R", "G1", rule(in, tcp, ports(80, 80), members("G2"))),
				port("A", "N1", 1, groups("G1")), port("B", "N1", 2, groups("G2")),
				plug(1, "A"), plug(2, "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "fw-remote-other-host-ipv6", config: firewall, hosts: 2, doc: "Ports of two groups on two hosts and an IPv6 network: one lets the other in.",
			steps: []step{
				network("N1", "6", segment("vxlan", 803)),
				group("G1"), group("G2", rule(out, v6, members("G1"))),
				addRule("R", "G1", rule(in, v6, members("G2"))),
				port("A", "N1", 1, groups("G1")), port("B", "N1", 2, groups("G2")),
				plug(1, "A"), plug(2, "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "fw-remote-itself", config: firewall, hosts: 2, doc: "A group whose members may talk to each other, in both directions, on two hosts.",
			steps: []step{
				network("N1", "4", segment("vlan", 205)),
				group("G1", rule(in, members("G1")), rule(out, members("G1"))),
				port("A", "N1", 1, groups("G1")), port("B", "N1", 2, groups("G1")),
				plug(1, "A"), plug(2, "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "fw-group-leaves-network", config: firewall, hosts: 1, doc: "Members of one group on two networks may come in to each other; the only one of a network goes.",
			steps: []step{
				network("N1", "4", segment("vlan", 207)), network("N2", "4", segment("vlan", 208)),
				group("G1", rule(in, members("G1"))),
				port("A", "N1", 1, groups("G1")), port("B", "N2", 1, groups("G1")),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
				unplug(1, "B"),
				check("one gone", "B=DOWN"),
			},
		},
		{
			name: "fw-default-group", config: firewall, hosts: 1, doc: "Two ports of the default group, whose members may come in.",
			noise: defaultKnown,
			steps: []step{
				network("N1", "4", segment("vxlan", 801)),
				defaultGroup(),
				port("A", "N1", 1), port("B", "N1", 1),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "fw-default-group-two-hosts", config: firewall, hosts: 2, doc: "Ports of the default group on two hosts; the third one is not plugged.",
			noise: defaultKnown,
			steps: []step{
				network("N1", "4", segment("vxlan", 804)),
				defaultGroup(),
				port("A", "N1", 1), port("B", "N1", 2), port("C", "N1", 2),
				plug(1, "A"), plug(2, "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "fw-remote-two-remotes", config: firewall, hosts: 1, doc: "Ranges of ports that overlap, for the members of two groups; one port is a member of both.",
			steps: []step{
				network("N1", "4", segment("vlan", 206)),
				group("G2"), group("G3"),
				group("G1", rule(in, tcp, ports(80, 95), members("G2")), rule(in, tcp, ports(88, 103), members("G3"))),
				port("B", "N1", 2, groups("G2")), port("C", "N1", 2, groups("G3")), port("D", "N1", 2, groups("G2", "G3")),
				port("A", "N1", 1, groups("G1")),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
		{
			name: "fw-remote-two-groups", config: firewall, hosts: 1, doc: "A port in two groups that let the members of a third in, by ranges of ports that overlap.",
			steps: []step{
				network("N1", "4", segment("vlan", 207)),
				group("G3"),
				group("G1", rule(in, tcp, ports(80, 95), members("G3")), rule(out, udp, members("G3"))),
				group("G2", rule(in, tcp, ports(88, 103), members("G3")), rule(out, udp, ports(7, 7), members("G3"))),
				port("B", "N1", 2, groups("G3")), port("A", "N1", 1, groups("G1", "G2")),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
		{
			name: "fw-remote-two-groups-alike", config: firewall, hosts: 1, doc: "A port in two groups that have the same rules for the members of a third.",
			steps: []step{
				network("N1", "4", segment("vlan", 208)),
				group("G3"),
				group("G1", rule(in, tcp, ports(80, 80), members("G3"))), group("G2", rule(in, tcp, ports(80, 80), members("G3"))),
				port("B", "N1", 2, groups("G3")), port("A", "N1", 1, groups("G1", "G2")),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
		{
			name: "fw-remote-two-ports", config: firewall, hosts: 1,
			doc: "Two ports of different groups let the same members in, so that they share the flows of the members; one port goes, then the other.",
			steps: []step{
				network("N1", "4", segment("vlan", 209)),
				group("G3"),
				group("G1", rule(in, tcp, ports(80, 80), members("G3"))), group("G2", rule(in, udp, ports(53, 53), members("G3"))),
				port("C", "N1", 2, groups("G3")), port("A", "N1", 1, groups("G1")), port("B", "N1", 1, groups("G2")),
				plug(1, "A", "B"),
				check("both", "A=ACTIVE", "B=ACTIVE"),
				unplug(1, "A"),
				check("one", "A=DOWN"),
				unplug(1, "B"),
				check("none", "B=DOWN"),
			},
		},
		{
			name: "fw-remote-two-networks", config: firewall, hosts: 1, doc: "Members of one group on two networks of a host: each network knows all addresses.",
			steps: []step{
				network("N1", "4", segment("vlan", 210)), network("N2", "4", segment("vxlan", 805)),
				group("G1", rule(in, members("G1"))),
				port("A", "N1", 1, groups("G1")), port("B", "N2", 1, groups("G1")),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		withRemoteMember("fw-remote-nobody", "A rule for the members of a group that has none."),
		withRemoteMember("fw-remote-member-pairs", "A member with address pairs: an address, a range, one with another MAC.",
			pairs(pair("192.168.100.200", ""), pair("10.9.0.0/16", ""), pair("192.168.100.201", "00:00:5e:00:01:07"), pair("fd00:9::/48", ""))),
		withRemoteMember("fw-remote-member-everything", "A member whose address pairs are everything: only its MAC tells it from others.",
			pairs(pair("0.0.0.0/0", ""), pair("::/0", ""))),
		withRemoteMember("fw-remote-member-without-address", "A member without an address cannot be told from others.", attrs{"fixed_ips": []attrs{}}),
		withAddresses("fw-address-group-ipv4", "The addresses of an address group over IPv4, in both directions.",
			[]string{"10.1.0.0/16", "192.0.2.7/32"}, rule(in, listed("L1")), rule(out, tcp, ports(443, 443), listed("L1"))),
		withAddresses("fw-address-group-ipv6", "The addresses of an address group over IPv6, which also lists IPv4 addresses.",
			[]string{"2001:db8::/32", "fd00::7/128", "10.1.0.0/16"}, rule(in, v6, listed("L1")), rule(out, v6, udp, ports(53, 54), listed("L1"))),
		withAddresses("fw-address-group-everything", "An address group that lists everything, of both IP versions.",
			[]string{"0.0.0.0/0", "::/0"}, rule(in, listed("L1")), rule(in, v6, listed("L1"))),
		withAddresses("fw-address-group-empty", "An address group that lists nothing lets nobody in.", []string{}, rule(in, listed("L1"))),
		{
			name: "fw-address-group-and-group", config: firewall, hosts: 1, doc: "The same address is in an address group and that of a member of a group.",
			steps: []step{
				network("N1", "4", segment("vlan", 211)),
				addressGroup("L1", "192.168.100.11/32", "192.168.100.0/24"), group("G2"),
				group("G1", rule(in, tcp, ports(80, 80), listed("L1")), rule(in, tcp, ports(443, 443), members("G2"))),
				port("B", "N1", 2, groups("G2")), port("A", "N1", 1, groups("G1")),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
		{
			name: "fw-address-group-changed", config: firewall, hosts: 1, doc: "Addresses are added to an address group and taken from it.",
			steps: []step{
				network("N1", "4", segment("vlan", 212)),
				addressGroup("L1", "10.1.0.0/16"),
				group("G1", rule(in, listed("L1"))),
				port("A", "N1", 1, groups("G1")),
				plug(1, "A"),
				check("one", "A=ACTIVE"),
				listAddresses("L1", "10.2.0.0/16", "10.3.0.3/32"),
				check("three"),
				unlistAddresses("L1", "10.1.0.0/16", "10.2.0.0/16"),
				check("another one"),
			},
		},
	}
}

// withRemoteMember is the scenario of one port that lets the members of G2 in, and of a member with attributes of its own;
// of none without attributes.
func withRemoteMember(name, doc string, more ...attrs) *scenario {
	steps := []step{
		network("N1", "46", segment("vlan", 213)),
		group("G2"),
		group("G1", rule(in, members("G2")), rule(in, v6, members("G2")), rule(out, members("G2"))),
	}
	if len(more) > 0 {
		steps = append(steps, port("B", "N1", 2, append(more, groups("G2"))...))
	}
	return &scenario{
		name: name, config: firewall, hosts: 1, doc: doc,
		steps: append(steps, port("A", "N1", 1, groups("G1")), plug(1, "A"), check("plugged", "A=ACTIVE")),
	}
}
