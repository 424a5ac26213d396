// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import "time"

// trunkScenarios are about trunks.
func trunkScenarios() []*scenario {
	// A is the parent, B and C can be sub-ports.
	ports := []step{
		network("N1", "4", segment("vxlan", 961)), network("N2", "4", segment("vlan", 271)), network("N3", "46", segment("vxlan", 962)),
		port("A", "N1", 0), port("B", "N2", 0, unused), port("C", "N3", 0, unused),
	}
	here := change("A", attrs{"binding:host_id": "hv1"})
	b, c := passenger{"B", 101}, passenger{"C", 102}
	story := func(name string, cfg *config, doc string, steps ...step) *scenario {
		return &scenario{name: name, config: cfg, hosts: 1, doc: doc, steps: append(ports[:len(ports):len(ports)], steps...)}
	}
	both := []step{trunk("T1", "A", b, c), here, plugTrunk(1, "T1", "A"), check("plugged", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE")}
	gone := func(bridge bool) []step {
		return append(both[:len(both):len(both)], unplugTrunk(1, "T1", "A", bridge), pass(goneTrunk), check("unplugged", "A=DOWN", "B=DOWN", "C=DOWN"))
	}
	return []*scenario{
		story("trunk-sub-ports", l2pop, "A VM with a trunk of two sub-ports is plugged in, and unplugged: the agent takes everything away.", gone(false)...),
		story("trunk-come-and-go", l2pop, "A trunk without sub-ports gets one after the other; they go, and one comes back under another VLAN.",
			trunk("T1", "A"), here, plugTrunk(1, "T1", "A"), check("alone", "A=ACTIVE"),
			board("T1", b), check("one", "B=ACTIVE"), board("T1", c), check("two", "C=ACTIVE"),
			alight("T1", "B"), check("one left"), board("T1", passenger{"B", 201}), check("another VLAN", "B=ACTIVE"),
			alight("T1", "B"), alight("T1", "C"), check("none left")),
		story("trunk-bridge-deleted", l2pop, "os-vif deletes the trunk's bridge together with the VM's port, as it does since Zed.", gone(true)...),
		story("trunk-reset", l2pop, "A VM with a trunk is unplugged with its bridge, and plugged in again two seconds later.",
			append(both[:len(both):len(both)], unplugTrunk(1, "T1", "A", true), pass(2*time.Second), plugTrunk(1, "T1", "A"),
				pass(goneTrunk), check("again", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE"))...),
		story("trunk-fw-sub-ports", firewall, "A filtered parent with two filtered sub-ports is plugged in, and unplugged.", gone(false)...),
	}
}
