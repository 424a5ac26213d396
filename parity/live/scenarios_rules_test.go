// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

// withRules is the scenario of one port in one group, on a network of both IP versions.
func withRules(name, doc string, rules ...attrs) *scenario {
	return &scenario{
		name: name, config: firewall, hosts: 1, doc: doc,
		steps: []step{
			network("N1", "46", segment("vlan", 201)),
			group("G1", rules...),
			port("A", "N1", 1, groups("G1")),
			plug(1, "A"),
			check("plugged", "A=ACTIVE"),
		},
	}
}

// ruleScenarios are about what becomes of each kind of rule.
func ruleScenarios() []*scenario {
	return []*scenario{
		withRules("fw-no-rules", "A port in a group without rules: only what every filtered port has."),
		withRules("fw-any-ipv4", "Rules for everything over IPv4, in both directions.", rule(in), rule(out)),
		withRules("fw-any-ipv6", "Rules for everything over IPv6, in both directions.", rule(in, v6), rule(out, v6)),
		withRules("fw-tcp-ipv4", "Rules for tcp over IPv4 without ports, and for one port.",
			rule(in, tcp), rule(out, tcp), rule(in, tcp, ports(22, 22)), rule(out, tcp, ports(443, 443))),
		withRules("fw-tcp-ipv6", "Rules for tcp over IPv6 without ports, and for one port.",
			rule(in, v6, tcp), rule(out, v6, tcp), rule(in, v6, tcp, ports(22, 22)), rule(out, v6, tcp, ports(443, 443))),
		withRules("fw-tcp-range-ipv4", "Ranges of tcp ports over IPv4, which become values with masks.",
			rule(in, tcp, ports(1000, 1999)), rule(out, tcp, ports(32768, 60999))),
		withRules("fw-tcp-range-ipv6", "Ranges of tcp ports over IPv6, which become values with masks.",
			rule(in, v6, tcp, ports(1000, 1999)), rule(out, v6, tcp, ports(5, 6))),
		withRules("fw-tcp-range-all", "A range of all tcp ports, inwards over IPv4 and outwards over IPv6.", rule(in, tcp, ports(1, 65535)), rule(out, v6, tcp, ports(1, 65535))),
		withRules("fw-tcp-ranges-overlap", "Ranges of tcp ports that overlap, contain and touch each other.",
			rule(in, tcp, ports(80, 95)), rule(in, tcp, ports(88, 103)), rule(in, tcp, ports(90, 90)), rule(in, tcp, ports(104, 111))),
		withRules("fw-tcp-ranges-overlap-egress", "Ranges of tcp ports over IPv6 that overlap, contain and touch each other, outwards.",
			rule(out, v6, tcp, ports(80, 95)), rule(out, v6, tcp, ports(88, 103)), rule(out, v6, tcp, ports(90, 90))),
		withRules("fw-udp-ipv4", "Rules for udp over IPv4 without ports, for one port and for a range.",
			rule(in, udp), rule(out, udp), rule(in, udp, ports(53, 53)), rule(out, udp, ports(53, 53)), rule(in, udp, ports(100, 200))),
		withRules("fw-udp-ipv6", "Rules for udp over IPv6 without ports, for one port and for a range.",
			rule(in, v6, udp), rule(out, v6, udp), rule(in, v6, udp, ports(53, 53)), rule(out, v6, udp, ports(100, 200))),
		withRules("fw-sctp-ipv4", "Rules for sctp over IPv4 without ports, for one port and for a range.",
			rule(in, proto("sctp")), rule(out, proto("sctp")), rule(in, proto("sctp"), ports(36412, 36412)), rule(out, proto("sctp"), ports(10, 20))),
		withRules("fw-sctp-ipv6", "Rules for sctp over IPv6 without ports, for one port and for a range.",
			rule(in, v6, proto("sctp")), rule(out, v6, proto("sctp")), rule(in, v6, proto("sctp"), ports(36412, 36412)),
			rule(out, v6, proto("sctp"), ports(10, 20))),
		withRules("fw-icmp-ipv4", "A rule for all of ICMP, one for a type, one for a type and a code, inwards.",
			rule(in, proto("icmp")), rule(in, proto("icmp"), icmp(8, -1)), rule(in, proto("icmp"), icmp(3, 4))),
		withRules("fw-icmp-ipv4-egress", "A rule for all of ICMP, one for a type, one for a type and a code, outwards; type and code 0, too.",
			rule(out, proto("icmp")), rule(out, proto("icmp"), icmp(8, -1)), rule(out, proto("icmp"), icmp(11, 1)),
			rule(out, proto("icmp"), icmp(0, 0)), rule(out, proto("icmp"), icmp(0, -1))),
		withRules("fw-icmp-ipv6", "A rule for all of ICMPv6, one for a type, one for a type and a code, inwards.",
			rule(in, v6, proto("ipv6-icmp")), rule(in, v6, proto("ipv6-icmp"), icmp(128, -1)), rule(in, v6, proto("ipv6-icmp"), icmp(1, 4))),
		withRules("fw-icmp-ipv6-egress", "A rule for all of ICMPv6, one for a type, one for a type and a code, outwards.",
			rule(out, v6, proto("ipv6-icmp")), rule(out, v6, proto("ipv6-icmp"), icmp(129, 0)), rule(out, v6, proto("ipv6-icmp"), icmp(3, -1))),
		withRules("fw-icmp-names", "ICMPv6 under all names that the API has for it, and ICMP under its number.",
			rule(in, v6, proto("icmpv6"), icmp(128, -1)), rule(out, v6, proto("icmp"), icmp(129, -1)), rule(in, v6, proto("58"), icmp(2, 0)),
			rule(in, proto("1"), icmp(13, -1))),
		withRules("fw-protocol-names-ipv4", "Protocols by their names over IPv4, in both directions.",
			rule(in, proto("esp")), rule(in, proto("ah")), rule(out, proto("gre")), rule(in, proto("vrrp")), rule(out, proto("udplite")),
			rule(in, proto("dccp")), rule(out, proto("ipip"))),
		withRules("fw-protocol-names-ipv6", "Protocols by their names over IPv6, in both directions.",
			rule(in, v6, proto("esp")), rule(out, v6, proto("ipv6-encap")), rule(in, v6, proto("ipv6-frag")), rule(out, v6, proto("ipv6-nonxt")),
			rule(in, v6, proto("ipv6-opts")), rule(out, v6, proto("ipv6-route")), rule(in, v6, proto("vrrp"))),
		withRules("fw-protocol-numbers-ipv4", "Protocols by number over IPv4, also those that have ports.",
			rule(in, proto("47")), rule(out, proto("255")), rule(in, proto("6"), ports(8080, 8081)), rule(out, proto("17"), ports(123, 123)),
			rule(in, proto("132"), ports(7, 7)), rule(in, proto("2"))),
		withRules("fw-protocol-numbers-ipv6", "Protocols by number over IPv6, also those that have ports.",
			rule(in, v6, proto("50")), rule(out, v6, proto("89")), rule(in, v6, proto("6"), ports(8080, 8081)), rule(out, v6, proto("17"), ports(123, 123))),
		withRules("fw-protocol-zero", "Protocol number 0, which has two names, stands for any protocol or for itself.",
			rule(in, proto("ip")), rule(out, proto("0")), rule(in, v6, proto("hopopt"))),
		withRules("fw-cidr-ipv4", "Prefixes of every length over IPv4, in both directions.",
			rule(in, cidr("10.1.2.3/32")), rule(in, cidr("10.0.0.0/8")), rule(out, cidr("172.16.0.0/12")), rule(in, cidr("128.0.0.0/1")),
			rule(out, tcp, ports(443, 443), cidr("192.0.2.0/24"))),
		withRules("fw-cidr-ipv6", "Prefixes of every length over IPv6, in both directions.",
			rule(in, v6, cidr("2001:db8::1/128")), rule(in, v6, cidr("fd00::/8")), rule(out, v6, cidr("2001:db8:1::/48")),
			rule(out, v6, tcp, ports(443, 443), cidr("2000::/3"))),
		withRules("fw-cidr-everything", "Prefixes of length 0: everyone, whatever the address before it says.",
			rule(in, cidr("0.0.0.0/0")), rule(out, tcp, cidr("0.0.0.0/0")), rule(in, v6, cidr("::/0")), rule(out, v6, udp, ports(53, 53), cidr("::/0"))),
		withRules("fw-cidr-not-normalised", "Prefixes that have bits set beyond their length, over both IP versions.",
			rule(in, cidr("10.1.2.3/8")), rule(out, tcp, ports(80, 80), cidr("192.0.2.77/24")), rule(in, v6, cidr("2001:db8::1/32")),
			rule(out, v6, cidr("fd00:1::ff/64"))),
		withRules("fw-cidr-icmp", "ICMP by type from and to prefixes of both IP versions.",
			rule(in, proto("icmp"), icmp(8, 0), cidr("10.0.0.0/8")), rule(out, proto("icmp"), cidr("10.0.0.0/8")),
			rule(in, v6, proto("ipv6-icmp"), icmp(128, -1), cidr("fd00::/8"))),
		{
			name: "fw-same-traffic-twice", config: firewall, hosts: 1,
			doc: "Two groups allow the same: by name and by number, as a port and as a range, by two spellings of a prefix.",
			steps: []step{
				network("N1", "46", segment("vlan", 202)),
				group("G1", rule(in, tcp, ports(80, 80)), rule(in, cidr("10.0.0.0/8")), rule(out, udp), rule(in, v6, proto("ipv6-icmp"), icmp(128, 0))),
				group("G2", rule(in, proto("6"), ports(80, 80)), rule(in, cidr("10.1.1.1/8")), rule(in, tcp, ports(80, 81)),
					rule(out, udp, cidr("0.0.0.0/0")), rule(in, v6, proto("58"), icmp(128, 0))),
				port("A", "N1", 1, groups("G1", "G2")),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
		{
			name: "fw-two-groups", config: firewall, hosts: 1, doc: "A port in two groups of which one allows what the other does, and more.",
			steps: []step{
				network("N1", "46", segment("vlan", 202)),
				group("G1", rule(in, tcp, ports(22, 22)), rule(out)),
				group("G2", rule(in, tcp, ports(22, 22)), rule(in, proto("icmp")), rule(out, v6)),
				port("A", "N1", 1, groups("G1", "G2")),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
	}
}
