// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import "slices"

// used are the first filtered ports that the hosts see: the drop of invalid packets comes with one and stays.
func used(hosts int) []step {
	steps := []step{network("N1", "4", segment("vlan", 299)), group("G1")}
	for n := range hosts {
		name := string(rune('A' + n))
		steps = append(steps, port(name, "N1", n+1, groups("G1")), plug(n+1, name))
	}
	return append(steps, check("in use", "A=ACTIVE"))
}

// The configurations. Agents start once for each.
var (
	l2pop = &config{
		name: "l2pop", hosts: 3, doc: "Tunnels of all types, l2population and the ARP responder.",
		overrides: []string{"agent.l2_population=true", "agent.arp_responder=true", "agent.tunnel_types=vxlan,gre,geneve"},
	}
	quiet = &config{
		name: "l2pop-noarp", hosts: 2, doc: "Tunnels with l2population but without the ARP responder.",
		overrides: []string{"agent.l2_population=true", "agent.arp_responder=false", "agent.tunnel_types=vxlan"},
	}
	mesh = &config{
		name: "mesh", hosts: 3, doc: "Tunnels of all types to all hosts, without l2population.",
		overrides: []string{"agent.l2_population=false", "agent.arp_responder=false", "agent.tunnel_types=vxlan,gre,geneve"},
	}
	plain = &config{
		name: "plain", hosts: 1, doc: "No tunnels: there is no br-tun.",
		overrides: []string{"agent.l2_population=false", "agent.arp_responder=false", "agent.tunnel_types="},
	}
	firewall = &config{
		name: "firewall", hosts: 2, doc: "The openvswitch firewall driver, vxlan tunnels with l2population and the ARP responder.",
		overrides: []string{
			"securitygroup.firewall_driver=openvswitch", "agent.l2_population=true", "agent.arp_responder=true", "agent.tunnel_types=vxlan",
		},
		use: used(2),
	}
	direct = &config{
		name: "firewall-direct", hosts: 2, doc: "The openvswitch firewall driver with explicitly_egress_direct.",
		overrides: []string{
			"securitygroup.firewall_driver=openvswitch", "agent.explicitly_egress_direct=true",
			"agent.l2_population=true", "agent.arp_responder=true", "agent.tunnel_types=vxlan",
		},
		use: used(2),
	}
	ethertypes = &config{
		name: "firewall-ethertypes", hosts: 1, doc: "The openvswitch firewall driver with permitted_ethertypes.",
		overrides: []string{
			"securitygroup.firewall_driver=openvswitch", "securitygroup.permitted_ethertypes=0x4008,0x88cc",
			"agent.l2_population=false", "agent.arp_responder=false", "agent.tunnel_types=",
		},
		use: used(1),
	}
	disabled = &config{
		name: "firewall-disabled", hosts: 1, doc: "The openvswitch firewall driver, but security groups are not enabled.",
		overrides: []string{
			"securitygroup.firewall_driver=openvswitch", "securitygroup.enable_security_group=false",
			"agent.l2_population=false", "agent.arp_responder=false", "agent.tunnel_types=",
		},
	}
	hybrid = &config{
		name: "hybrid", hosts: 2, hybrid: true,
		doc: "The firewall driver iptables_hybrid: VMs are plugged in through Linux bridges of their own. Vxlan tunnels with l2population and the ARP responder.",
		overrides: []string{
			"securitygroup.firewall_driver=iptables_hybrid", "agent.l2_population=true", "agent.arp_responder=true", "agent.tunnel_types=vxlan",
		},
		use: used(2),
	}
	qos = &config{
		name: "qos", hosts: 2, doc: "The extension qos, vxlan tunnels with l2population and the ARP responder.",
		overrides: []string{"agent.extensions=qos", "agent.l2_population=true", "agent.arp_responder=true", "agent.tunnel_types=vxlan"},
	}
	qosFirewall = &config{
		name: "qos-firewall", hosts: 1, doc: "The extension qos beside the openvswitch firewall driver, without tunnels.",
		overrides: []string{
			"agent.extensions=qos", "securitygroup.firewall_driver=openvswitch",
			"agent.l2_population=false", "agent.arp_responder=false", "agent.tunnel_types=",
		},
		use: used(1),
	}
	options = &config{
		name: "options", hosts: 2, doc: "Tunnels whose ports have every option that is not the default.",
		overrides: []string{
			"agent.l2_population=false", "agent.arp_responder=false", "agent.tunnel_types=vxlan", "agent.vxlan_udp_port=4790",
			"agent.dont_fragment=false", "agent.tunnel_csum=true", "agent.dscp=8",
		},
	}
)

// scenarios are all there are.
func scenarios() []*scenario {
	return slices.Concat(networkScenarios(), portScenarios(), filterScenarios(), switchScenarios(), tunnelScenarios(),
		ruleScenarios(), remoteScenarios(), firewallScenarios(), hybridScenarios(), routedScenarios(), qosScenarios(), trunkScenarios())
}

// onePort is the scenario of one port on one network.
func onePort(name string, cfg *config, doc string, seg attrs) *scenario {
	return &scenario{
		name: name, config: cfg, hosts: 1, doc: doc,
		steps: []step{
			network("N1", "4", seg),
			port("A", "N1", 1),
			plug(1, "A"),
			check("plugged", "A=ACTIVE"),
			unplug(1, "A"),
			check("unplugged", "A=DOWN"),
		},
	}
}

// networkScenarios are about networks of every type.
func networkScenarios() []*scenario {
	return []*scenario{
		onePort("vxlan", l2pop, "One port of a vxlan network comes and goes. Nobody else is on the network.", segment("vxlan", 901)),
		onePort("gre", l2pop, "One port of a gre network comes and goes.", segment("gre", 902)),
		onePort("geneve", l2pop, "One port of a geneve network comes and goes.", segment("geneve", 903)),
		onePort("vlan", l2pop, "One port of a vlan network comes and goes.", segment("vlan", 201)),
		onePort("flat", l2pop, "One port of a flat network comes and goes.", segment("flat", 0)),
		onePort("local", l2pop, "One port of a local network comes and goes; it has a local VLAN and nothing else.", segment("local", 0)),
		onePort("plain-vlan", plain, "One port of a vlan network on a host without tunnels.", segment("vlan", 201)),
		onePort("plain-flat", plain, "One port of a flat network on a host without tunnels.", segment("flat", 0)),
		{
			name: "vlan-two-ports", config: l2pop, hosts: 1,
			doc: "Two ports of a vlan network on one host: the network is provisioned with the first and reclaimed with the last.",
			steps: []step{
				network("N1", "4", segment("vlan", 201)),
				port("A", "N1", 1), port("B", "N1", 1),
				plug(1, "A"),
				check("first", "A=ACTIVE"),
				plug(1, "B"),
				check("second", "B=ACTIVE"),
				unplug(1, "A"),
				check("first gone", "A=DOWN"),
			},
		},
		{
			name: "flat-and-vlan", config: l2pop, hosts: 1,
			doc: "A flat and two vlan networks on the same physical bridge; one of them goes.",
			steps: []step{
				network("N1", "4", segment("flat", 0)), network("N2", "4", segment("vlan", 202)), network("N3", "4", segment("vlan", 203)),
				port("A", "N1", 1), port("B", "N2", 1), port("C", "N3", 1),
				plug(1, "A", "B", "C"),
				check("plugged", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE"),
				unplug(1, "B"),
				check("one gone", "B=DOWN"),
			},
		},
		{
			name: "several-types-at-once", config: l2pop, hosts: 1,
			doc: "Ports of a vxlan, a geneve, a vlan and a local network are plugged in one transaction and unplugged in one.",
			steps: []step{
				network("N1", "4", segment("vxlan", 911)), network("N2", "4", segment("geneve", 912)),
				network("N3", "4", segment("vlan", 204)), network("N4", "4", segment("local", 0)),
				port("A", "N1", 1), port("B", "N2", 1), port("C", "N3", 1), port("D", "N4", 1),
				plug(1, "A", "B", "C", "D"),
				check("plugged", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE", "D=ACTIVE"),
				unplug(1, "A", "B", "C", "D"),
				check("unplugged", "A=DOWN", "B=DOWN", "C=DOWN", "D=DOWN"),
			},
		},
		{
			name: "vlan-two-hosts", config: l2pop, hosts: 2,
			doc: "A vlan network with a port on each of two hosts needs no tunnels, also with l2population.",
			steps: []step{
				network("N1", "4", segment("vlan", 205)),
				port("A", "N1", 1), port("B", "N1", 2),
				plug(1, "A"), plug(2, "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "segmentation-id-changed", config: l2pop, hosts: 1,
			doc: "The segmentation id of a vlan network changes while a port is plugged: the translation moves, the local VLAN stays.",
			steps: []step{
				network("N1", "4", segment("vlan", 206)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("before", "A=ACTIVE"),
				changeNetwork("N1", attrs{"provider:segmentation_id": 207}),
				check("changed", "A=ACTIVE"),
			},
		},
		{
			name: "network-renamed", config: l2pop, hosts: 1,
			doc: "A network gets another name and MTU while a port is plugged: nothing changes on the switch.",
			steps: []step{
				network("N1", "4", segment("vlan", 208)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("before", "A=ACTIVE"),
				changeNetwork("N1", attrs{"name": "other", "mtu": 1400}),
				check("renamed", "A=ACTIVE"),
			},
		},
		{
			name: "two-segments-vlan-first", config: l2pop, hosts: 2,
			doc: "A network with a vlan and a vxlan segment: the server binds ports on both hosts to the first.",
			steps: []step{
				network("N1", "4", segment("vlan", 209), segment("vxlan", 904)),
				port("A", "N1", 1), port("B", "N1", 2),
				plug(1, "A"), plug(2, "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "two-segments-vxlan-first", config: l2pop, hosts: 2,
			doc: "A network with a vxlan and a vlan segment: ports are bound to the tunnel and the hosts learn of each other.",
			steps: []step{
				network("N1", "4", segment("vxlan", 905), segment("vlan", 210)),
				port("A", "N1", 1), port("B", "N1", 2),
				plug(1, "A"), plug(2, "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
	}
}
