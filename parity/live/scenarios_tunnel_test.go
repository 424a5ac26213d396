// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import "time"

// pairOfHosts is the scenario of one port on each of two hosts: the second comes later and goes first.
func pairOfHosts(name string, cfg *config, doc string, seg attrs) *scenario {
	return &scenario{
		name: name, config: cfg, hosts: 2, doc: doc,
		steps: []step{
			network("N1", "4", seg),
			port("A", "N1", 1), port("B", "N1", 2),
			plug(1, "A"),
			check("one", "A=ACTIVE"),
			plug(2, "B"),
			check("both", "A=ACTIVE", "B=ACTIVE"),
			unplug(2, "B"),
			check("one left", "B=DOWN"),
		},
	}
}

// tunnelScenarios are about several hosts.
func tunnelScenarios() []*scenario {
	const (
		added = "q-agent-notifier-tunnel-update"
		gone  = "q-agent-notifier-tunnel-delete"
	)
	return []*scenario{
		pairOfHosts("l2pop-vxlan", l2pop, "Tunnels are made on demand; unicast, flood and ARP entries follow the server's FDB.", segment("vxlan", 981)),
		pairOfHosts("l2pop-gre", l2pop, "Tunnels on demand and the server's FDB, over gre.", segment("gre", 982)),
		pairOfHosts("l2pop-geneve", l2pop, "Tunnels on demand and the server's FDB, over geneve.", segment("geneve", 983)),
		pairOfHosts("l2pop-noarp", quiet, "With l2population but no ARP responder there is no table 21.", segment("vxlan", 984)),
		pairOfHosts("mesh-vxlan", mesh, "Without l2population every network floods to all hosts from the start.", segment("vxlan", 985)),
		pairOfHosts("mesh-gre", mesh, "Without l2population, over gre: every network floods to all hosts.", segment("gre", 986)),
		pairOfHosts("mesh-geneve", mesh, "Without l2population, over geneve: every network floods to all hosts.", segment("geneve", 987)),
		pairOfHosts("options-vxlan", options, "Tunnel ports carry the options that were configured.", segment("vxlan", 988)),
		{
			name: "l2pop-three-hosts", config: l2pop, hosts: 3,
			doc: "Three hosts with ports of one network: each knows the two others; the one that leaves is forgotten by both.",
			steps: []step{
				network("N1", "4", segment("vxlan", 989)),
				port("A", "N1", 1), port("B", "N1", 2), port("C", "N1", 3),
				plug(1, "A"), plug(2, "B"), plug(3, "C"),
				check("three", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE"),
				unplug(2, "B"),
				check("two", "B=DOWN"),
			},
		},
		{
			name: "l2pop-two-networks", config: l2pop, hosts: 2,
			doc: "Two networks share the tunnel between two hosts: it stays until the last of them leaves.",
			steps: []step{
				network("N1", "4", segment("vxlan", 990)), network("N2", "4", segment("vxlan", 991)),
				port("A", "N1", 1), port("B", "N1", 2), port("C", "N2", 1), port("D", "N2", 2),
				plug(1, "A", "C"), plug(2, "B", "D"),
				check("two", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE", "D=ACTIVE"),
				unplug(2, "D"),
				check("one", "D=DOWN"),
			},
		},
		{
			name: "l2pop-remote-port-deleted", config: l2pop, hosts: 2,
			doc: "A remote port is deleted on the server while it is plugged: its entries go.",
			steps: []step{
				network("N1", "4", segment("vxlan", 992)),
				port("A", "N1", 1), port("B", "N1", 2), port("C", "N1", 2),
				plug(1, "A"), plug(2, "B", "C"),
				check("before", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE"),
				remove("B"),
				check("deleted"),
			},
		},
		{
			name: "l2pop-remote-port-down", config: l2pop, hosts: 2,
			doc: "A remote port is set administratively down: its host leaves the flood lists.",
			steps: []step{
				network("N1", "4", segment("vxlan", 993)),
				port("A", "N1", 1), port("B", "N1", 2),
				plug(1, "A"), plug(2, "B"),
				check("before", "A=ACTIVE", "B=ACTIVE"),
				change("B", attrs{"admin_state_up": false}),
				check("down", "B=DOWN"),
			},
		},
		{
			name: "l2pop-remote-address-pair", config: l2pop, hosts: 2,
			doc: "A remote port without port security and one with an address pair: which addresses the FDB names is the server's choice.",
			steps: []step{
				network("N1", "4", segment("vxlan", 994)),
				port("A", "N1", 1),
				port("B", "N1", 2, attrs{"allowed_address_pairs": []attrs{{"ip_address": "192.168.100.200"}}}),
				port("C", "N1", 2, attrs{"port_security_enabled": false, "security_groups": []string{}}),
				plug(1, "A"), plug(2, "B", "C"),
				check("plugged", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE"),
			},
		},
		{
			name: "mesh-three-hosts", config: mesh, hosts: 3,
			doc: "Three hosts, three networks of three tunnel types: each floods to the ports of its own type only.",
			steps: []step{
				network("N1", "4", segment("vxlan", 995)), network("N2", "4", segment("gre", 996)), network("N3", "4", segment("geneve", 997)),
				port("A", "N1", 1), port("B", "N2", 2), port("C", "N3", 3),
				plug(1, "A"), plug(2, "B"), plug(3, "C"),
				check("plugged", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE"),
			},
		},
		{
			name: "mesh-endpoint-comes-and-goes", config: mesh, hosts: 1,
			doc: "A tunnel endpoint appears: a port is made and networks of that type flood to it. Then it disappears.",
			steps: []step{
				network("N1", "4", segment("vxlan", 998)), network("N2", "4", segment("gre", 999)),
				port("A", "N1", 1), port("B", "N2", 1),
				plug(1, "A", "B"),
				check("before", "A=ACTIVE", "B=ACTIVE"),
				fanout(added, "tunnel_update", map[string]string{"tunnel_ip": "ip-spare", "tunnel_type": "vxlan"}),
				pass(time.Second),
				check("come"),
				fanout(added, "tunnel_update", map[string]string{"tunnel_ip": "ip-spare", "tunnel_type": "vxlan"}),
				fanout(added, "tunnel_update", map[string]string{"tunnel_ip": "ip-hv1", "tunnel_type": "vxlan"}),
				pass(time.Second),
				check("told again, and of itself"),
				fanout(gone, "tunnel_delete", map[string]string{"tunnel_ip": "ip-spare", "tunnel_type": "vxlan"}),
				pass(time.Second),
				check("gone"),
			},
		},
		{
			name: "mesh-endpoint-of-another-type", config: options, hosts: 1,
			doc: "An endpoint of a tunnel type that the agent does not use appears: nothing happens.",
			steps: []step{
				network("N1", "4", segment("vxlan", 900)),
				port("A", "N1", 1),
				plug(1, "A"),
				fanout(added, "tunnel_update", map[string]string{"tunnel_ip": "ip-spare", "tunnel_type": "gre"}),
				pass(time.Second),
				check("told", "A=ACTIVE"),
			},
		},
		{
			name: "mesh-local-port-unplugged", config: mesh, hosts: 1,
			doc: "Without l2population a network that leaves takes its flood flow along and leaves the tunnels.",
			steps: []step{
				network("N1", "4", segment("vxlan", 906)), network("N2", "4", segment("vxlan", 907)),
				port("A", "N1", 1), port("B", "N2", 1),
				plug(1, "A", "B"),
				check("two", "A=ACTIVE", "B=ACTIVE"),
				unplug(1, "B"),
				check("one", "B=DOWN"),
			},
		},
	}
}
