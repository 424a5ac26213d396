// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

// filterScenarios are about the addresses that a port may use, which tables 24 and 25 check.
func filterScenarios() []*scenario {
	return []*scenario{
		{
			name: "port-security-off", config: l2pop, hosts: 1,
			doc: "A port without port security beside one with it.",
			steps: []step{
				network("N1", "4", segment("vlan", 241)),
				port("A", "N1", 1, attrs{"port_security_enabled": false, "security_groups": []string{}}),
				port("B", "N1", 1),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "port-security-switched", config: l2pop, hosts: 1,
			doc: "Port security of a wired port is switched off and on.",
			steps: []step{
				network("N1", "4", segment("vlan", 242)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("on", "A=ACTIVE"),
				change("A", attrs{"port_security_enabled": false, "security_groups": []string{}}),
				check("off", "A=ACTIVE"),
				change("A", attrs{"port_security_enabled": true}),
				check("on again", "A=ACTIVE"),
			},
		},
		{
			name: "address-pairs", config: l2pop, hosts: 1,
			doc: "Allowed address pairs with an address, a range, and another MAC come and go on a wired port.",
			steps: []step{
				network("N1", "4", segment("vlan", 243)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("none", "A=ACTIVE"),
				change("A", attrs{"allowed_address_pairs": []attrs{
					pair("192.168.100.200", ""), pair("10.9.0.0/16", ""), pair("192.168.100.201", "00:00:5e:00:01:07"),
				}}),
				check("three", "A=ACTIVE"),
				change("A", attrs{"allowed_address_pairs": []attrs{pair("192.168.100.200", "")}}),
				check("one", "A=ACTIVE"),
				change("A", attrs{"allowed_address_pairs": []attrs{}}),
				check("none again", "A=ACTIVE"),
			},
		},
		{
			name: "address-pair-for-everything", config: l2pop, hosts: 1,
			doc: "A pair of 0.0.0.0/0 and one of ::/0 switch the ARP and the neighbour checks off; the MAC check stays.",
			steps: []step{
				network("N1", "46", segment("vlan", 244)),
				port("A", "N1", 1, attrs{"allowed_address_pairs": []attrs{pair("0.0.0.0/0", "")}}),
				port("B", "N1", 1, attrs{"allowed_address_pairs": []attrs{pair("::/0", "")}}),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "address-pairs-ipv6", config: l2pop, hosts: 1,
			doc: "IPv6 pairs, one with another MAC whose link-local address is allowed too.",
			steps: []step{
				network("N1", "46", segment("vlan", 245)),
				port("A", "N1", 1, attrs{"allowed_address_pairs": []attrs{
					pair("fd00:100::200", ""), pair("fd00:9::/48", ""), pair("fd00:100::201", "00:00:5e:00:02:07"),
				}}),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
		{
			name: "both-ip-versions", config: l2pop, hosts: 1,
			doc: "A port with an IPv4 and an IPv6 address.",
			steps: []step{
				network("N1", "46", segment("vlan", 246)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
		{
			name: "ipv6-only", config: l2pop, hosts: 2,
			doc: "Ports of an IPv6 network on two hosts: no ARP entries, unicast entries all the same.",
			steps: []step{
				network("N1", "6", segment("vxlan", 941)),
				port("A", "N1", 1), port("B", "N1", 2),
				plug(1, "A"), plug(2, "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "no-address", config: l2pop, hosts: 1,
			doc: "A port without any IP address may still use its MAC.",
			steps: []step{
				network("N1", "4", segment("vlan", 247)),
				port("A", "N1", 1, attrs{"fixed_ips": []attrs{}}),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
		{
			name: "fixed-ip-changed", config: l2pop, hosts: 2,
			doc: "The address of a port changes: its own host checks the new one, the other host answers ARP for the new one.",
			steps: []step{
				network("N1", "4", segment("vxlan", 942)),
				port("A", "N1", 1), port("B", "N1", 2),
				plug(1, "A"), plug(2, "B"),
				check("before", "A=ACTIVE", "B=ACTIVE"),
				change("B", attrs{"fixed_ips": []attrs{{"ip_address": "192.168.100.77"}}}),
				check("changed", "B=ACTIVE"),
			},
		},
		{
			name: "dhcp-port", config: l2pop, hosts: 1,
			doc: "A port of a DHCP agent: nothing is checked on ports whose owner begins with network:.",
			steps: []step{
				network("N1", "4", segment("vxlan", 943)),
				port("A", "N1", 1, attrs{"device_owner": "network:dhcp"}),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
			},
		},
		{
			name: "port-of-the-l3-driver", config: l2pop, hosts: 1,
			doc: "A port that is plugged as DHCP and L3 agents do it: dead, as a trunk for VLAN 4095 only, until the agent wires it.",
			steps: []step{
				network("N1", "4", segment("vlan", 248)),
				port("A", "N1", 1, attrs{"device_owner": "network:dhcp"}),
				vsctl(1, "A is plugged dead", []string{
					"add-port", "br-int", "tap-A", "tag=4095", "vlan_mode=trunk", "trunks=4095", "--", "set", "Interface", "tap-A",
					"type=internal", "external_ids:iface-id=id-A", `external_ids:attached-mac="mac-A"`, "external_ids:iface-status=active",
				}, []string{"--if-exists", "del-port", "tap-A"}),
				check("plugged", "A=ACTIVE"),
			},
		},
	}
}
