// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

// onePolicy is the scenario of a port that has a policy from the start; more follows when it is up.
func onePolicy(name, doc string, limits []limit, more ...step) *scenario {
	steps := []step{
		network("N1", "4", segment("vxlan", 951)), policy("Q1", limits...),
		port("A", "N1", 1, policed("Q1")), plug(1, "A"), check("plugged", "A=ACTIVE"),
	}
	return &scenario{name: name, config: qos, hosts: 1, doc: doc, steps: append(steps, more...)}
}

// qosScenarios are about quality of service.
func qosScenarios() []*scenario {
	return append(ruleKinds(), append(policyMoves(), minimums()...)...)
}

// ruleKinds are about what each kind of rule makes of a port.
func ruleKinds() []*scenario {
	return []*scenario{
		onePolicy("qos-dscp", "What a port sends is marked; the rule changes, and goes.", []limit{limited(dscp, mark(26))},
			changeLimit("Q1.1", "Q1", limited(dscp, mark(46))), check("changed"),
			dropLimit("Q1.1", "Q1", dscp), check("without")),
		onePolicy("qos-bandwidth-egress", "A port may send so much with a burst; the rule changes, and goes.",
			[]limit{limited(bandwidth, fromPort, kbps(3000, 500))},
			changeLimit("Q1.1", "Q1", limited(bandwidth, kbps(5000, 600))), check("changed"),
			dropLimit("Q1.1", "Q1", bandwidth), check("without")),
		onePolicy("qos-bandwidth-default-burst", "A limit of what a port sends that says nothing about bursts, which are then 80 % of the rate.",
			[]limit{limited(bandwidth, fromPort, kbps(1234, 0))}),
		onePolicy("qos-bandwidth-ingress", "A port may receive so much: a queue of its own. The rule changes, and goes.",
			[]limit{limited(bandwidth, toPort, kbps(4000, 400))},
			changeLimit("Q1.1", "Q1", limited(bandwidth, kbps(2000, 0))), check("changed"),
			dropLimit("Q1.1", "Q1", bandwidth), check("without")),
		onePolicy("qos-bandwidth-both", "Limits in both directions; one goes, and then the other changes sides.",
			[]limit{limited(bandwidth, fromPort, kbps(3000, 300)), limited(bandwidth, toPort, kbps(4000, 400))},
			dropLimit("Q1.1", "Q1", bandwidth), check("to it only"),
			changeLimit("Q1.2", "Q1", limited(bandwidth, fromPort, kbps(4000, 400))), check("from it only")),
		onePolicy("qos-packets-egress", "A port may send so many packets; the rule changes, and goes.",
			[]limit{limited(packetRate, fromPort, kpps(1, 0))},
			changeLimit("Q1.1", "Q1", limited(packetRate, kpps(2, 0))), check("changed"),
			dropLimit("Q1.1", "Q1", packetRate), check("without")),
		onePolicy("qos-packets-ingress", "A port may receive so many packets; the rule changes, and goes.",
			[]limit{limited(packetRate, toPort, kpps(3, 0))},
			changeLimit("Q1.1", "Q1", limited(packetRate, kpps(4, 0))), check("changed"),
			dropLimit("Q1.1", "Q1", packetRate), check("without")),
		onePolicy("qos-packets-both", "Limits of packets in both directions; one goes.",
			[]limit{limited(packetRate, fromPort, kpps(1, 0)), limited(packetRate, toPort, kpps(2, 0))},
			dropLimit("Q1.1", "Q1", packetRate), check("one")),
		onePolicy("qos-packets-burst", "A limit of packets that a port may send, with a burst.", []limit{limited(packetRate, fromPort, kpps(5, 1))}),
		onePolicy("qos-minimum-packets", "A minimum of packets, which only placement looks at.",
			[]limit{limited(minimumPackets, fromPort, attrs{"min_kpps": 7})}),
		onePolicy("qos-rules-added", "A policy without rules gets one after the other, and loses them again.", nil,
			addLimit("Q1.1", "Q1", limited(dscp, mark(10))), check("marks"),
			addLimit("Q1.2", "Q1", limited(bandwidth, fromPort, kbps(1000, 100))), check("limits what it sends"),
			addLimit("Q1.3", "Q1", limited(bandwidth, toPort, kbps(2000, 200))), check("limits what it receives"),
			addLimit("Q1.4", "Q1", limited(packetRate, fromPort, kpps(1, 0))), check("limits packets"),
			dropLimit("Q1.2", "Q1", bandwidth), dropLimit("Q1.1", "Q1", dscp), check("two left"),
			dropLimit("Q1.3", "Q1", bandwidth), dropLimit("Q1.4", "Q1", packetRate), check("none left")),
		{
			name: "qos-with-filters", config: qosFirewall, hosts: 1,
			doc: "A filtered port of a vlan network with every kind of limit; its group's rules change beside them.",
			steps: []step{
				network("N1", "46", segment("vlan", 251)), group("G1", limitsNothing...),
				policy("Q1", limited(dscp, mark(18)), limited(bandwidth, fromPort, kbps(3000, 300)), limited(bandwidth, toPort, kbps(4000, 400)),
					limited(packetRate, fromPort, kpps(1, 0)), limited(packetRate, toPort, kpps(2, 0))),
				port("A", "N1", 1, groups("G1"), policed("Q1")), plug(1, "A"), check("plugged", "A=ACTIVE"),
				unplug(1, "A"), check("unplugged", "A=DOWN"),
			},
		},
	}
}

// limitsNothing are the rules of a group that lets everything out.
var limitsNothing = []attrs{{"direction": "egress", "ethertype": "IPv4"}}

// policyMoves are about which policy a port has.
func policyMoves() []*scenario {
	q1, q2 := policy("Q1", limited(dscp, mark(26)), limited(bandwidth, fromPort, kbps(3000, 300))),
		policy("Q2", limited(dscp, mark(46)), limited(bandwidth, toPort, kbps(5000, 500)))
	story := func(name, doc string, steps ...step) *scenario {
		return &scenario{name: name, config: qos, hosts: 1, doc: doc, steps: steps}
	}
	net := network("N1", "4", segment("vxlan", 952))
	withQ1 := network("N1", "4", attrs{"provider:network_type": "vxlan", "provider:segmentation_id": 952, "qos_policy_id": ref("Q1")})
	return []*scenario{
		story("qos-attached", "A plugged port gets a policy, another one, and none.", net, q1, q2,
			port("A", "N1", 1), plug(1, "A"), check("plugged", "A=ACTIVE"),
			change("A", policed("Q1")), check("first"), change("A", policed("Q2")), check("second"), change("A", unpoliced), check("none")),
		story("qos-of-the-network", "A port without a policy of its own has that of its network.", q1, withQ1,
			port("A", "N1", 1), plug(1, "A"), check("plugged", "A=ACTIVE"), unplug(1, "A"), check("unplugged", "A=DOWN")),
		story("qos-network-gets-one", "The network of a plugged port gets a policy, another one, and none.", net, q1, q2,
			port("A", "N1", 1), plug(1, "A"), check("plugged", "A=ACTIVE"),
			changeNetwork("N1", policed("Q1")), check("first"), changeNetwork("N1", policed("Q2")), check("second"),
			changeNetwork("N1", unpoliced), check("none")),
		story("qos-port-before-network", "A port's own policy counts before that of its network; when it goes, the network's does.", q1, q2, withQ1,
			port("A", "N1", 1, policed("Q2")), plug(1, "A"), check("its own", "A=ACTIVE"),
			changeNetwork("N1", unpoliced), check("the network has none"), changeNetwork("N1", policed("Q1")), check("the network has one again"),
			change("A", unpoliced), check("the network's")),
		story("qos-network-rule-changed", "The rules of a network's policy change while ports have it.", q1, withQ1,
			port("A", "N1", 1), port("B", "N1", 1), plug(1, "A", "B"), check("plugged", "A=ACTIVE", "B=ACTIVE"),
			changeLimit("Q1.1", "Q1", limited(dscp, mark(34))), check("changed"), dropLimit("Q1.2", "Q1", bandwidth), check("one left")),
		story("qos-not-for-network-ports", "A DHCP port does not have the policy of its network, but may have one of its own.", q1, q2, withQ1,
			port("A", "N1", 1, trusted("dhcp")), plug(1, "A"), check("plugged", "A=ACTIVE"),
			change("A", policed("Q2")), check("its own")),
		story("qos-shared", "Two ports share a policy; one is unplugged, and the rules change.", net, q1,
			port("A", "N1", 1, policed("Q1")), port("B", "N1", 1, policed("Q1")), plug(1, "A", "B"), check("plugged", "A=ACTIVE", "B=ACTIVE"),
			unplug(1, "A"), check("one gone", "A=DOWN"), changeLimit("Q1.2", "Q1", limited(bandwidth, kbps(1000, 100))), check("changed")),
		{
			name: "qos-two-hosts", config: qos, hosts: 2,
			doc: "Ports of two hosts have the policy of their network; a rule changes on both.",
			steps: []step{
				q1, withQ1, port("A", "N1", 1), port("B", "N1", 2), plug(1, "A"), plug(2, "B"), check("plugged", "A=ACTIVE", "B=ACTIVE"),
				changeLimit("Q1.1", "Q1", limited(dscp, mark(8))), check("changed"),
			},
		},
		story("qos-plugged-again", "A port with limits in both directions is unplugged, and plugged in again.", net, q2,
			port("A", "N1", 1, policed("Q2")), plug(1, "A"), check("plugged", "A=ACTIVE"),
			unplug(1, "A"), check("unplugged", "A=DOWN"), plug(1, "A"), check("again", "A=ACTIVE")),
		story("qos-switched-off", "A port with a policy is switched off and on.", net, q1,
			port("A", "N1", 1, policed("Q1")), plug(1, "A"), check("plugged", "A=ACTIVE"),
			change("A", attrs{"admin_state_up": false}), check("off", "A=DOWN"), change("A", attrs{"admin_state_up": true}), check("on", "A=ACTIVE")),
	}
}

// minimums are about minimum bandwidth, for which ports share queues on the uplinks.
func minimums() []*scenario {
	least := func(n int) limit { return limited(minimum, fromPort, attrs{"min_kbps": n}) }
	net := network("N1", "4", segment("vlan", 252))
	return []*scenario{
		{
			name: "qos-minimum-bandwidth", config: qos, hosts: 1, doc: "A port of a vlan network has a minimum of bandwidth on the uplink.",
			steps: []step{
				net, policy("Q1", least(1000)), port("A", "N1", 1, policed("Q1")), plug(1, "A"), check("plugged", "A=ACTIVE"),
				unplug(1, "A"), check("unplugged", "A=DOWN"),
			},
		},
		{
			name: "qos-minimum-bandwidth-shared", config: qos, hosts: 1,
			doc: "Two ports have different minimums beside other rules; one is unplugged.",
			steps: []step{
				net, policy("Q1", least(1000)), policy("Q2", least(2000), limited(dscp, mark(26))),
				port("A", "N1", 1, policed("Q1")), port("B", "N1", 1, policed("Q2")),
				plug(1, "A"), check("one", "A=ACTIVE"), plug(1, "B"), check("two", "B=ACTIVE"), unplug(1, "A"), check("one left", "A=DOWN"),
			},
		},
	}
}
