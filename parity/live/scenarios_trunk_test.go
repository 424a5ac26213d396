// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"regexp"
	"slices"
	"time"
)

// trunkScenarios are about trunks.
func trunkScenarios() []*scenario {
	return slices.Concat(trunkStories(), trunkMoves(), trunkRestarts())
}

// A is the parent, B, C and D can be sub-ports. The network of a parent must carry frames as large as those of its sub-ports.
var (
	trunkPorts = []step{
		network("N1", "4", segment("vlan", 270)), network("N2", "4", segment("vlan", 271)), network("N3", "46", segment("vxlan", 962)),
		port("A", "N1", 0), port("B", "N2", 0, unused), port("C", "N3", 0, unused), port("D", "N1", 0, unused),
	}
	boundHere        = change("A", attrs{"binding:host_id": "hv1"})
	subB, subC, subD = passenger{"B", 101}, passenger{"C", 102}, passenger{"D", 103}
	threeUp          = []string{"A=ACTIVE", "B=ACTIVE", "C=ACTIVE"}
	threeDown        = []string{"A=DOWN", "B=DOWN", "C=DOWN"}
	goneForGood      = pass(70 * time.Second) // longer than any agent keeps the bridge of a trunk without a VM
	wired            = []step{trunk("T1", "A", subB, subC), boundHere, plugTrunk(1, "T1", "A"), check("plugged", threeUp...)}
	switched         = func(name string, on bool) step { return change(name, attrs{"admin_state_up": on}) }
	deletedWithTheVM = unplugTrunk(1, "T1", "A", true)
	unpluggedAlone   = unplugTrunk(1, "T1", "A", false)
	callsOfAnyStart  = regexp.MustCompile(`^restarted \S+ call (bulk_pull (Port|Network|Subnet|SecurityGroup|SecurityGroupRule|AddressGroup)|tunnel_sync|get_|update_device_list|security_group)`)
	withoutSubPorts  = []step{trunk("T1", "A"), boundHere, plugTrunk(1, "T1", "A"), check("alone", "A=ACTIVE")}
)

func trunkStory(name, doc string, parts ...[]step) *scenario {
	return &scenario{name: name, config: l2pop, hosts: 1, doc: doc, steps: slices.Concat(append([][]step{trunkPorts}, parts...)...)}
}

// trunkStories are about what a trunk is made of.
func trunkStories() []*scenario {
	ends := []step{deletedWithTheVM, pass(goneTrunk), check("unplugged", "A=DOWN")}
	return []*scenario{
		trunkStory("trunk-alone", "A VM with a trunk that has no sub-ports is plugged in, and unplugged together with the trunk's bridge.",
			withoutSubPorts, ends),
		trunkStory("trunk-one-sub-port", "A VM with a trunk of one sub-port is plugged in, and unplugged together with the trunk's bridge.",
			[]step{trunk("T1", "A", subB), boundHere, plugTrunk(1, "T1", "A"), check("plugged", "A=ACTIVE", "B=ACTIVE")}, ends),
		trunkStory("trunk-three-sub-ports", "A VM with a trunk of three sub-ports, one of them on the network of the parent.",
			[]step{trunk("T1", "A", subB, subC, subD), boundHere, plugTrunk(1, "T1", "A"), check("plugged", append(threeUp, "D=ACTIVE")...)}),
		{
			name: "trunk-network-types", config: l2pop, hosts: 1, doc: "The sub-ports of a trunk are on networks of every type.",
			steps: []step{
				network("N1", "4", segment("flat", 0)), network("N2", "4", segment("vlan", 272)), network("N3", "46", segment("vxlan", 963)),
				network("N4", "4", segment("gre", 963)), network("N5", "4", segment("geneve", 963)), network("N6", "4", segment("local", 0)),
				port("A", "N1", 0), port("B", "N2", 0, unused), port("C", "N3", 0, unused), port("D", "N4", 0, unused), port("E", "N5", 0, unused),
				port("F", "N6", 0, unused), trunk("T1", "A", subB, subC, subD, passenger{"E", 104}, passenger{"F", 105}), boundHere, plugTrunk(1, "T1", "A"),
				check("plugged", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE", "D=ACTIVE", "E=ACTIVE", "F=ACTIVE"),
			},
		},
		trunkStory("trunk-come-and-go", "A trunk without sub-ports gets one after the other; they go, and one comes back under another VLAN.",
			withoutSubPorts, []step{
				board("T1", subB), check("one", "B=ACTIVE"), board("T1", subC), check("two", "C=ACTIVE"),
				alight("T1", "B"), check("one left", "B=DOWN"), board("T1", passenger{"B", 201}), check("another VLAN", "B=ACTIVE"),
				alight("T1", "B", "C"), check("none left", "B=DOWN", "C=DOWN"),
			}),
		trunkStory("trunk-two", "Two VMs with trunks on one host, whose sub-ports have the same VLANs; one is unplugged.", []step{
			port("E", "N2", 0), trunk("T1", "A", subB, subC), trunk("T2", "E", passenger{"D", 101}),
			boundHere, change("E", attrs{"binding:host_id": "hv1"}), plugTrunk(1, "T1", "A"), plugTrunk(1, "T2", "E"),
			check("plugged", append(threeUp, "D=ACTIVE", "E=ACTIVE")...),
			deletedWithTheVM, pass(goneTrunk), check("one left", threeDown...),
		}),
		{
			name: "trunk-two-hosts", config: l2pop, hosts: 2, doc: "A sub-port and a VM of another host are on one tunnelled network; the sub-port goes.",
			steps: slices.Concat(trunkPorts, []step{
				port("E", "N3", 2), plug(2, "E"), check("the VM", "E=ACTIVE"), trunk("T1", "A", subB, subC), boundHere, plugTrunk(1, "T1", "A"),
				check("plugged", threeUp...), alight("T1", "C"), check("gone", "C=DOWN"),
			}),
		},
		{
			name: "trunk-fw-sub-ports", config: firewall, hosts: 1, doc: "A filtered parent has two filtered sub-ports; the rules of one change, and all are unplugged.",
			steps: []step{
				network("N1", "4", segment("vlan", 274)), network("N2", "4", segment("vlan", 273)), network("N3", "46", segment("vxlan", 965)),
				group("G1", limitsNothing...), group("G2", attrs{"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22}),
				port("A", "N1", 0, groups("G1")), port("B", "N2", 0, unused, groups("G1")), port("C", "N3", 0, unused, groups("G2")),
				trunk("T1", "A", subB, subC), boundHere, plugTrunk(1, "T1", "A"), check("plugged", threeUp...),
				change("B", groups("G1", "G2")), check("another group"), deletedWithTheVM, pass(goneTrunk), check("unplugged", threeDown...),
			},
		},
	}
}

// trunkMoves are about VMs that come and go.
func trunkMoves() []*scenario {
	return []*scenario{
		trunkStory("trunk-unplugged", "A VM with a trunk of two sub-ports is unplugged; the agent takes the trunk's bridge away, too.",
			wired, []step{unpluggedAlone, goneForGood, check("unplugged", threeDown...)}),
		trunkStory("trunk-bridge-deleted", "os-vif deletes the trunk's bridge together with the VM's port, as it does since Zed.",
			wired, []step{deletedWithTheVM, pass(goneTrunk), check("unplugged", threeDown...)}),
		trunkStory("trunk-plugged-again", "A VM with a trunk is unplugged, and plugged in again when everything is gone.",
			wired, []step{unpluggedAlone, goneForGood, check("unplugged", threeDown...), plugTrunk(1, "T1", "A"), check("again", threeUp...)}),
		trunkStory("trunk-reset", "A VM with a trunk is unplugged with its bridge, and plugged in again two seconds later.",
			wired, []step{deletedWithTheVM, pass(2 * time.Second), plugTrunk(1, "T1", "A"), pass(goneTrunk), check("again", threeUp...)}),
		trunkStory("trunk-deleted", "A VM is unplugged and its trunk is deleted; its port is then plugged in as any other.",
			wired, []step{
				deletedWithTheVM, pass(goneTrunk), check("unplugged", threeDown...), change("A", attrs{"binding:host_id": ""}), dissolve("T1"),
				boundHere, plug(1, "A"), check("without a trunk", "A=ACTIVE"),
			}),
		trunkStory("trunk-parent-off", "The parent of a trunk is switched off and on; its sub-ports go on.",
			wired, []step{switched("A", false), check("off", "A=DOWN"), switched("A", true), check("on", "A=ACTIVE")}),
		trunkStory("trunk-sub-port-off", "A sub-port is switched off and on.",
			wired, []step{switched("C", false), check("off", "C=DOWN"), switched("C", true), check("on", "C=ACTIVE")}),
		trunkStory("trunk-bridge-without-vm", "The bridge of a trunk is made, and no VM is ever plugged in.",
			[]step{trunk("T1", "A", subB), boundHere, trunkBridge(1, "T1"), goneForGood, check("nobody")}),
	}
}

// trunkRestarts are about agents that start over what is there.
func trunkRestarts() []*scenario {
	unchanged := trunkStory("trunk-agent-restarted", "The agent starts anew while a VM with a trunk is plugged in.", wired, []step{restart(1), check("restarted", threeUp...)})
	changed := trunkStory("trunk-changed-meanwhile", "While the agent is away a sub-port goes and another one comes.",
		wired, []step{restart(1, alight("T1", "B"), board("T1", subD)), check("restarted", "A=ACTIVE", "C=ACTIVE", "D=ACTIVE")})
	for _, s := range []*scenario{unchanged, changed} {
		s.noise = callsOfAnyStart
	}
	return []*scenario{unchanged, changed}
}
