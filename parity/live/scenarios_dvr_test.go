// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import "slices"

// gatewayTables are those of answers to routers, which the Python agent forgets in others than it made them in.
var gatewayTables = []string{"3", "4"}

var (
	routed = &config{
		name: "dvr", hosts: 2, leaves: gatewayTables, doc: "Distributed routing, vxlan tunnels with l2population; the ARP responder is switched on by itself.",
		overrides: []string{"agent.enable_distributed_routing=true", "agent.l2_population=true", "agent.tunnel_types=vxlan"},
	}
	routedPlain = &config{
		name: "dvr-plain", hosts: 1, leaves: gatewayTables, doc: "Distributed routing on a host without tunnels.",
		overrides: []string{"agent.enable_distributed_routing=true", "agent.l2_population=false", "agent.tunnel_types="},
	}
	routedFiltered = &config{
		name: "dvr-firewall", hosts: 2, leaves: gatewayTables, doc: "Distributed routing with the openvswitch firewall driver.",
		overrides: []string{
			"securitygroup.firewall_driver=openvswitch",
			"agent.enable_distributed_routing=true", "agent.l2_population=true", "agent.tunnel_types=vxlan",
		},
		use: used(2),
	}
	routedDirect = &config{
		name: "dvr-direct", hosts: 1, leaves: gatewayTables, doc: "Distributed routing with the openvswitch firewall driver and explicitly_egress_direct.",
		overrides: []string{
			"securitygroup.firewall_driver=openvswitch", "agent.explicitly_egress_direct=true",
			"agent.enable_distributed_routing=true", "agent.l2_population=true", "agent.tunnel_types=vxlan",
		},
		use: used(1),
	}
)

// grouped begins a scenario in which ports have the project's default group, if its configuration filters.
func grouped(s *scenario) *scenario {
	if s.config == routedFiltered || s.config == routedDirect {
		s.steps, s.noise = append([]step{defaultGroup()}, s.steps...), defaultKnown
	}
	return s
}

// segments of routed networks, by type.
func routedSegment(kind string, n int) attrs {
	return segment(kind, map[string]int{"vxlan": 800 + n, "vlan": 280 + n}[kind])
}

// interfaceFirst and vmFirst are the two orders in which a router's interface G and a VM's port A come to a host.
func interfaceFirst(name, kind string, cfg *config) *scenario {
	return grouped(&scenario{
		name: name, config: cfg, hosts: 1, doc: "A router's interface on a " + kind + " network, then a VM; the VM goes first.",
		steps: []step{
			routedNetwork("N1", 1, routedSegment(kind, 1)),
			gatewayPort("G", "N1", 1), router("R", "G"),
			port("A", "N1", 1),
			routersOn(1, "dvr"),
			plug(1, "G"),
			check("router", "G=ACTIVE"),
			plug(1, "A"),
			check("VM", "A=ACTIVE"),
			unplug(1, "A"),
			check("VM gone", "A=DOWN"),
			unplug(1, "G"),
			check("router gone"),
		},
	})
}

func vmFirst(name, kind string, cfg *config) *scenario {
	return grouped(&scenario{
		name: name, config: cfg, hosts: 1, doc: "VMs on a " + kind + " network, then a router's interface, which goes first.",
		steps: []step{
			routedNetwork("N1", 1, routedSegment(kind, 2)),
			port("A", "N1", 1), port("B", "N1", 1),
			plug(1, "A", "B"),
			check("VMs", "A=ACTIVE", "B=ACTIVE"),
			gatewayPort("G", "N1", 1), router("R", "G"),
			routersOn(1, "dvr"),
			plug(1, "G"),
			check("router", "G=ACTIVE"),
			unplug(1, "G"),
			check("router gone"),
		},
	})
}

// between is a router between two networks of one host, with a VM on each.
func between() *scenario {
	return &scenario{
		name: "dvr-two-vxlan", config: routed, hosts: 1, doc: "A router between two vxlan networks, with a VM on each; one of them goes.",
		steps: []step{
			routedNetwork("N1", 1, routedSegment("vxlan", 3)), routedNetwork("N2", 2, routedSegment("vxlan", 4)),
			gatewayPort("G", "N1", 1), gatewayPort("H", "N2", 1), router("R", "G", "H"),
			port("A", "N1", 1), port("C", "N2", 1),
			routersOn(1, "dvr"),
			plug(1, "G", "H"),
			check("router", "G=ACTIVE", "H=ACTIVE"),
			plug(1, "A", "C"),
			check("VMs", "A=ACTIVE", "C=ACTIVE"),
			unplug(1, "C"),
			check("one gone", "C=DOWN"),
		},
	}
}

// onTwoHosts is a router that both hosts have, with a VM on one of them.
func onTwoHosts() *scenario {
	return &scenario{
		name: "dvr-vxlan-and-vlan", config: routed, hosts: 2, doc: "A router between a vxlan and a vlan network is on two hosts, a VM on one of them.",
		steps: []step{
			routedNetwork("N1", 1, routedSegment("vxlan", 3)), routedNetwork("N2", 2, routedSegment("vlan", 4)),
			gatewayPort("G", "N1", 1), gatewayPort("H", "N2", 1), router("R", "G", "H"),
			port("A", "N1", 1),
			routersOn(1, "dvr"), routersOn(2, "dvr"),
			plug(1, "G", "H", "A"), plug(2, "G", "H"),
			check("plugged", "G=ACTIVE", "H=ACTIVE", "A=ACTIVE"),
		},
	}
}

// betweenFiltered is a router between two networks. A VM of one of them may be reached from a member of its group on the other.
func betweenFiltered() *scenario {
	return grouped(&scenario{
		name: "dvr-firewall-two-vxlan", config: routedFiltered, hosts: 1,
		doc: "A router between two networks; a filtered VM of one of them may be reached by a member of its group on the other.",
		steps: []step{
			routedNetwork("N1", 1, routedSegment("vxlan", 3)), routedNetwork("N2", 2, routedSegment("vxlan", 4)),
			gatewayPort("G", "N1", 1), gatewayPort("H", "N2", 1), router("R", "G", "H"),
			group("G1", rule(in, members("G1"))),
			port("A", "N1", 1, groups("G1")), port("C", "N2", 1, groups("G1")),
			routersOn(1, "dvr"),
			plug(1, "G", "H"),
			check("router", "G=ACTIVE", "H=ACTIVE"),
			plug(1, "A"),
			check("VM", "A=ACTIVE"),
		},
	})
}

// toOutside is a router with a way to the outside on host 1.
func toOutside(name, kind string, first bool) *scenario {
	plugged := []step{plug(1, "G"), check("router", "G=ACTIVE"), plug(1, "S"), check("SNAT port")}
	if !first {
		plugged = []step{plug(1, "S"), check("SNAT port"), plug(1, "G"), check("router", "G=ACTIVE")}
	}
	return &scenario{
		name: name, config: routed, hosts: 1, doc: "A router's way to the outside on a " + kind + " network: its SNAT port and its interface.",
		steps: slices.Concat([]step{
			routedNetwork("X", 9, routedSegment("vlan", 9), attrs{"router:external": true}),
			routedNetwork("N1", 1, routedSegment(kind, 5)),
			gatewayPort("G", "N1", 1), router("R", "G"), outside("R", "X"), snatPort("S", "R", "N1"),
			port("A", "N1", 1),
			routersOn(1, "dvr_snat"),
		}, plugged, []step{
			plug(1, "A"),
			check("VM", "A=ACTIVE"),
			unplug(1, "S"),
			check("SNAT port gone"),
		}),
	}
}

// version6 is a router's interface on an IPv6 subnet. The last part of the gateway's address is 0 where a user says nothing.
func version6(name, doc string, last int) *scenario {
	return &scenario{
		name: name, config: routed, hosts: 1, doc: doc,
		steps: []step{
			routedNetwork("N1", 0, routedSegment("vxlan", 6)),
			gatewayPort("G", "N1", last), router("R", "G"),
			port("A", "N1", 1),
			routersOn(1, "dvr"),
			plug(1, "G", "A"),
			check("plugged", "G=ACTIVE", "A=ACTIVE"),
			unplug(1, "G"),
			check("router gone"),
		},
	}
}

// routedScenarios are about distributed routers.
func routedScenarios() []*scenario {
	return []*scenario{
		interfaceFirst("dvr-vxlan", "vxlan", routed), vmFirst("dvr-vxlan-vm-first", "vxlan", routed),
		interfaceFirst("dvr-vlan", "vlan", routed), vmFirst("dvr-vlan-vm-first", "vlan", routed),
		interfaceFirst("dvr-flat", "flat", routed), vmFirst("dvr-flat-vm-first", "flat", routed),
		interfaceFirst("dvr-plain-vlan", "vlan", routedPlain), vmFirst("dvr-plain-flat", "flat", routedPlain),
		interfaceFirst("dvr-firewall-vxlan", "vxlan", routedFiltered), vmFirst("dvr-firewall-vlan", "vlan", routedFiltered),
		interfaceFirst("dvr-direct-vxlan", "vxlan", routedDirect), vmFirst("dvr-direct-vlan", "vlan", routedDirect),
		between(), onTwoHosts(), betweenFiltered(),
		toOutside("dvr-snat-vxlan", "vxlan", true), toOutside("dvr-snat-first-vxlan", "vxlan", false),
		toOutside("dvr-snat-vlan", "vlan", true), toOutside("dvr-snat-first-vlan", "vlan", false),
		version6("dvr-ipv6", "A router's interface on an IPv6 subnet is its gateway. It goes before the VM.", 0),
		version6("dvr-ipv6-not-the-gateway", "A router's interface on an IPv6 subnet is not its gateway. It goes before the VM.", 1),
		{
			name: "dvr-dhcp", config: routed, hosts: 1, doc: "A DHCP server's port is routed for, one of another service is not.",
			steps: []step{
				routedNetwork("N1", 1, routedSegment("vxlan", 7)),
				gatewayPort("G", "N1", 1), router("R", "G"),
				port("A", "N1", 1), port("D", "N1", 1, attrs{"device_owner": "network:dhcp"}), port("E", "N1", 1, attrs{"device_owner": "network:other"}),
				routersOn(1, "dvr"),
				plug(1, "G", "A", "D", "E"),
				check("plugged", "G=ACTIVE", "A=ACTIVE", "D=ACTIVE", "E=ACTIVE"),
			},
		},
		{
			name: "dvr-hosts", config: routed, hosts: 2, doc: "Another host gets a router address, and loses it.",
			steps: []step{
				routerMACs(true),
				check("one more"),
				routerMACs(false),
				check("one less"),
			},
		},
		{
			name: "dvr-interface-leaves", config: routed, hosts: 1, doc: "A router leaves a network while its interface is plugged in.",
			steps: []step{
				routedNetwork("N1", 1, routedSegment("vxlan", 8)),
				gatewayPort("G", "N1", 1), router("R", "G"),
				port("A", "N1", 1),
				routersOn(1, "dvr"),
				plug(1, "G", "A"),
				check("plugged", "G=ACTIVE", "A=ACTIVE"),
				leave("R", "G"),
				unplug(1, "G"),
				check("left"),
			},
		},
		{
			name: "dvr-vm-down", config: routed, hosts: 1, doc: "A VM's port is switched off and on behind a router.",
			steps: []step{
				routedNetwork("N1", 1, routedSegment("vxlan", 10)),
				gatewayPort("G", "N1", 1), router("R", "G"),
				port("A", "N1", 1),
				routersOn(1, "dvr"),
				plug(1, "G", "A"),
				check("plugged", "G=ACTIVE", "A=ACTIVE"),
				change("A", attrs{"admin_state_up": false}),
				check("off", "A=DOWN"),
				change("A", attrs{"admin_state_up": true}),
				check("on", "A=ACTIVE"),
			},
		},
	}
}
