// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"regexp"
	"slices"
	"time"
)

// trunkScenarios are about trunks. A is the parent, B, C and D can be sub-ports.
func trunkScenarios() []*scenario {
	return slices.Concat(trunkStories(), trunkKinds(), trunkMoves(), trunkRestarts())
}

var (
	// The network of a parent must carry frames as large as those of its sub-ports.
	fourPorts = []step{
		network("N1", "4", segment("vlan", 270)), network("N2", "4", segment("vlan", 271)), network("N3", "46", segment("vxlan", 962)),
		port("A", "N1", 0), port("B", "N2", 0, unused), port("C", "N3", 0, unused), port("D", "N1", 0, unused),
	}
	twoPorts = []step{
		network("N1", "4", segment("vlan", 270)), network("N2", "4", segment("vxlan", 962)), port("A", "N1", 0), port("B", "N2", 0, unused),
	}
	boundHere        = change("A", attrs{"binding:host_id": "hv1"})
	subB, subC, subD = passenger{"B", 101}, passenger{"C", 102}, passenger{"D", 103}
	bothUp, bothDown = []string{"A=ACTIVE", "B=ACTIVE"}, []string{"A=DOWN", "B=DOWN"}
	threeUp          = []string{"A=ACTIVE", "B=ACTIVE", "C=ACTIVE"}
	withB            = []step{trunk("T1", "A", subB), boundHere, plugTrunk(1, "T1", "A"), check("plugged", bothUp...)}
	withBC           = []step{trunk("T1", "A", subB, subC), boundHere, plugTrunk(1, "T1", "A"), check("plugged", threeUp...)}
	alone            = []step{trunk("T1", "A"), boundHere, plugTrunk(1, "T1", "A"), check("alone", "A=ACTIVE")}
	unpluggedAlone   = unplugTrunk(1, "T1", "A", false)
	// When the bridge goes with the VM the Python agent leaves the ports up, so nobody waits for them.
	deletedWithTheVM = unplugTrunk(1, "T1", "A", true)
	// goneForGood is longer than any agent keeps the bridge of a trunk without a VM.
	goneForGood = pass(70 * time.Second)
)

func trunkStory(name, doc string, parts ...[]step) *scenario {
	return &scenario{name: name, config: l2pop, hosts: 1, doc: doc, steps: slices.Concat(parts...)}
}

// trunkStories are about the sub-ports of a trunk.
func trunkStories() []*scenario {
	ends := []step{deletedWithTheVM, pass(goneTrunk), check("unplugged")}
	return []*scenario{
		trunkStory("trunk-alone", "A VM with a trunk that has no sub-ports is plugged in, and unplugged together with the trunk's bridge.",
			fourPorts, alone, ends),
		trunkStory("trunk-one-sub-port", "A VM with a trunk of one sub-port is plugged in, and unplugged together with the trunk's bridge.",
			fourPorts, withB, ends),
		trunkStory("trunk-three-sub-ports", "A VM with a trunk of three sub-ports, one of them on the network of the parent.",
			fourPorts, []step{trunk("T1", "A", subB, subC, subD), boundHere, plugTrunk(1, "T1", "A"), check("plugged", append(threeUp, "D=ACTIVE")...)}),
		trunkStory("trunk-come-and-go", "A trunk without sub-ports gets one after the other, and loses them again.",
			twoPorts, []step{port("C", "N1", 0, unused)}, alone, []step{
				board("T1", subB), check("one", "B=ACTIVE"), board("T1", subC), check("two", "C=ACTIVE"),
				alight("T1", "B"), check("one left", "B=DOWN"), alight("T1", "C"), check("none left", "C=DOWN"),
			}),
		trunkStory("trunk-another-vlan", "The only sub-port of a trunk goes, and comes back under another VLAN.",
			twoPorts, withB, []step{alight("T1", "B"), check("gone", "B=DOWN"), board("T1", passenger{"B", 201}), check("back", "B=ACTIVE")}),
		noisy(`^plugged hv1 call update_device_list down=[AC]$`, trunkStory("trunk-two", "Two VMs with trunks on one host, whose sub-ports have the same VLAN; one is unplugged.", []step{
			network("N1", "4", segment("vlan", 275)), network("N2", "4", segment("vlan", 276)),
			port("A", "N1", 0), port("B", "N2", 0, unused), port("C", "N2", 0), port("D", "N1", 0, unused),
			trunk("T1", "A", subB), trunk("T2", "C", passenger{"D", 101}), boundHere, change("C", attrs{"binding:host_id": "hv1"}),
			plugTrunk(1, "T1", "A"), plugTrunk(1, "T2", "C"), check("plugged", append(threeUp, "D=ACTIVE")...),
			deletedWithTheVM, pass(goneTrunk), check("one left"),
		})),
	}
}

// noisy says which lines of a scenario depend on an agent's own timing. An agent that sees a VM on the trunk's bridge before it
// has made the parent's patch reports the parent down, and up a moment later.
func noisy(lines string, s *scenario) *scenario {
	s.noise = regexp.MustCompile(lines)
	return s
}

// trunkKinds are about the networks and filters of parents and sub-ports.
func trunkKinds() []*scenario {
	return []*scenario{
		trunkStory("trunk-network-types", "The parent of a trunk is on a flat network, its sub-ports on others of gre and geneve.", []step{
			network("N1", "4", segment("flat", 0)), network("N2", "4", segment("gre", 963)), network("N3", "46", segment("geneve", 963)),
			port("A", "N1", 0), port("B", "N2", 0, unused), port("C", "N3", 0, unused),
		}, withBC),
		trunkStory("trunk-network-types-too", "The parent of a trunk is on a local network, its sub-port on a flat one.", []step{
			network("N1", "4", segment("local", 0)), network("N2", "4", segment("flat", 0)), port("A", "N1", 0), port("B", "N2", 0, unused),
		}, withB),
		{
			name: "trunk-two-hosts", config: l2pop, hosts: 2, doc: "A sub-port and a VM of another host are on one tunnelled network; the sub-port goes.",
			steps: slices.Concat(twoPorts, []step{port("C", "N2", 2), plug(2, "C"), check("the VM", "C=ACTIVE")}, withB,
				[]step{alight("T1", "B"), check("gone", "B=DOWN")}),
		},
		{
			name: "trunk-fw-sub-port", config: firewall, hosts: 1, doc: "A filtered parent has a filtered sub-port, which gets another group; both are unplugged.",
			steps: slices.Concat([]step{
				network("N1", "4", segment("vlan", 274)), network("N2", "46", segment("vxlan", 965)), group("G1", limitsNothing...),
				group("G2", attrs{"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22}),
				port("A", "N1", 0, groups("G1")), port("B", "N2", 0, unused, groups("G1")),
			}, withB, []step{
				change("B", groups("G1", "G2")), check("another group"), deletedWithTheVM, pass(goneTrunk), check("unplugged"),
			}),
		},
	}
}

// trunkMoves are about VMs that come and go, and ports that are switched.
func trunkMoves() []*scenario {
	again := plugTrunk(1, "T1", "A")
	switched := func(name string, on bool) step { return change(name, attrs{"admin_state_up": on}) }
	return []*scenario{
		trunkStory("trunk-bridge-deleted", "os-vif deletes the trunk's bridge together with the VM's port, as it does since Zed.",
			fourPorts, withBC, []step{deletedWithTheVM, pass(goneTrunk), check("unplugged")}),
		trunkStory("trunk-plugged-again", "A VM with a trunk is unplugged; the agent takes everything away, the trunk's bridge too. It is plugged in again.",
			twoPorts, withB, []step{unpluggedAlone, goneForGood, check("unplugged", bothDown...), again, check("again", bothUp...)}),
		trunkStory("trunk-reset", "A VM with a trunk is unplugged with its bridge, and plugged in again two seconds later.",
			twoPorts, withB, []step{deletedWithTheVM, pass(2 * time.Second), again, pass(goneTrunk), check("again", bothUp...)}),
		trunkStory("trunk-deleted", "A VM is unplugged and its trunk is deleted; its port is then plugged in as any other.", twoPorts, withB, []step{
			unpluggedAlone, goneForGood, check("unplugged", bothDown...), change("A", attrs{"binding:host_id": ""}), dissolve("T1"),
			boundHere, plug(1, "A"), check("without a trunk", "A=ACTIVE"),
		}),
		trunkStory("trunk-parent-off", "The parent of a trunk is switched off and on; its sub-port goes on.",
			twoPorts, withB, []step{switched("A", false), check("off", "A=DOWN"), switched("A", true), check("on", "A=ACTIVE")}),
		trunkStory("trunk-sub-port-off", "A sub-port is switched off and on; the parent of its trunk goes on.",
			twoPorts, withB, []step{switched("B", false), check("off", "B=DOWN"), switched("B", true), check("on", "B=ACTIVE")}),
		trunkStory("trunk-bridge-without-vm", "The bridge of a trunk is made, and no VM is ever plugged in.",
			twoPorts, []step{trunk("T1", "A", subB), boundHere, trunkBridge(1, "T1"), goneForGood, check("nobody")}),
	}
}

// trunkRestarts are about agents that start over what is there. What any start asks and tells is not looked at here.
func trunkRestarts() []*scenario {
	unchanged := trunkStory("trunk-agent-restarted", "The agent starts anew while a VM with a trunk is plugged in.",
		twoPorts, withB, []step{restart(1), check("restarted", bothUp...)})
	changed := trunkStory("trunk-changed-meanwhile", "While the agent is away a sub-port goes and another one comes.",
		twoPorts, []step{port("C", "N1", 0, unused)}, withB,
		[]step{restart(1, alight("T1", "B"), board("T1", subC)), check("restarted", "A=ACTIVE", "C=ACTIVE")})
	for _, s := range []*scenario{unchanged, changed} {
		noisy(`^restarted \S+ call (bulk_pull (Port|Network|Subnet|SecurityGroup|SecurityGroupRule|AddressGroup|LocalIPAssociation|NDPProxy)|tunnel_sync|get_|update_device_list)`, s)
	}
	return []*scenario{unchanged, changed}
}
