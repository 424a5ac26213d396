// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"regexp"
	"time"
)

// portScenarios are about the life of a port.
func portScenarios() []*scenario {
	return []*scenario{
		{
			name: "admin-down-and-up", config: l2pop, hosts: 1,
			doc: "A wired port is set administratively down and up again.",
			steps: []step{
				network("N1", "4", segment("vlan", 221)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("up", "A=ACTIVE"),
				change("A", attrs{"admin_state_up": false}),
				check("down", "A=DOWN"),
				change("A", attrs{"admin_state_up": true}),
				check("up again", "A=ACTIVE"),
			},
		},
		{
			name: "admin-down-from-the-start", config: l2pop, hosts: 1,
			doc: "A port is administratively down when it is plugged, and comes up later.",
			steps: []step{
				network("N1", "4", segment("vxlan", 921)),
				port("A", "N1", 1, attrs{"admin_state_up": false}),
				plug(1, "A"),
				check("plugged", "A=DOWN"),
				change("A", attrs{"admin_state_up": true}),
				check("up", "A=ACTIVE"),
			},
		},
		{
			name: "deleted-while-plugged", config: l2pop, hosts: 1,
			doc: "A port is deleted on the server while its interface stays plugged; the interface goes later.",
			steps: []step{
				network("N1", "4", segment("vlan", 222)),
				port("A", "N1", 1), port("B", "N1", 1),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
				remove("A"),
				check("deleted"),
				unplug(1, "A"),
				check("unplugged"),
			},
		},
		{
			name: "deleted-while-plugged-alone", config: l2pop, hosts: 1,
			doc: "The only port of a tunnelled network is deleted on the server while its interface stays plugged.",
			steps: []step{
				network("N1", "4", segment("vxlan", 922)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
				remove("A"),
				check("deleted"),
			},
		},
		{
			name: "unplugged-while-bound", config: l2pop, hosts: 1,
			doc: "A port is unplugged while the server keeps it bound, and plugged again later.",
			steps: []step{
				network("N1", "4", segment("vlan", 223)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("plugged", "A=ACTIVE"),
				unplug(1, "A"),
				check("unplugged", "A=DOWN"),
				plug(1, "A"),
				check("plugged again", "A=ACTIVE"),
			},
		},
		{
			name: "replugged-in-one-transaction", config: l2pop, hosts: 1,
			doc: "A port is unplugged and plugged again in one transaction: the server hears of it, and the old port number leaves no flows.",
			steps: []step{
				network("N1", "4", segment("vlan", 224)),
				port("A", "N1", 1), port("B", "N1", 1),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
				replug(1, "A"),
				pass(2 * time.Second),
				check("replugged", "A=ACTIVE"),
			},
		},
		{
			name: "ofport-empty", config: l2pop, hosts: 1,
			doc: "A port is plugged while ovs-vswitchd stands still, so that its interface has no port number for some seconds.",
			steps: []step{
				network("N1", "4", segment("vlan", 225)),
				port("A", "N1", 1),
				freeze(1),
				plugFrozen(1, "A"),
				pass(3 * time.Second),
				thaw(1),
				check("thawed", "A=ACTIVE"),
			},
		},
		{
			name: "unknown-port", config: l2pop, hosts: 1,
			doc: "An interface names a port that the server does not know; a good port beside it is wired all the same.",
			steps: []step{
				network("N1", "4", segment("vlan", 227)),
				port("A", "N1", 1),
				ghost("X", 1),
				plug(1, "X"),
				check("alone"),
				plug(1, "A"),
				check("beside a good one", "A=ACTIVE"),
			},
		},
		{
			name: "no-attached-mac", config: l2pop, hosts: 1,
			doc: "An interface with an iface-id but without attached-mac is not a VIF until somebody adds it.",
			steps: []step{
				network("N1", "4", segment("vlan", 228)),
				port("A", "N1", 1),
				vsctl(1, "A is plugged without attached-mac",
					[]string{"add-port", "br-int", "tap-A", "--", "set", "Interface", "tap-A", "type=internal", "external_ids:iface-id=id-A"},
					[]string{"--if-exists", "del-port", "tap-A"}),
				check("plugged", "A=DOWN"),
			},
		},
		{
			name: "wrong-host", config: l2pop, hosts: 2,
			doc: "A port that is bound to another host is plugged here, and later bound here.",
			steps: []step{
				network("N1", "4", segment("vlan", 229)),
				port("A", "N1", 2),
				plug(1, "A"),
				check("plugged", "A=DOWN"),
				change("A", attrs{"binding:host_id": "hv1"}),
				check("bound here", "A=ACTIVE"),
			},
		},
		{
			name: "unbound", config: l2pop, hosts: 1,
			doc: "A port that is bound to no host is plugged, and bound later.",
			steps: []step{
				network("N1", "4", segment("vxlan", 923)),
				port("A", "N1", 0),
				plug(1, "A"),
				check("plugged", "A=DOWN"),
				change("A", attrs{"binding:host_id": "hv1"}),
				check("bound", "A=ACTIVE"),
			},
		},
		{
			name: "moved-to-another-host", config: l2pop, hosts: 2,
			doc: "A port is bound to another host while it stays plugged here, then plugged there and unplugged here: a cold migration.",
			// The server pushes twice. When the Python agent sees the second push one round later, it takes the dead tag that it
			// set itself for a lost one, and reports the port down.
			noise: regexp.MustCompile(`^bound there hv1 call update_device_list down=A$`),
			steps: []step{
				network("N1", "4", segment("vxlan", 924)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("here", "A=ACTIVE"),
				change("A", attrs{"binding:host_id": "hv2"}),
				check("bound there"),
				unplug(1, "A"),
				plug(2, "A"),
				check("there", "A=ACTIVE"),
			},
		},
		{
			name: "live-migration", config: l2pop, hosts: 2,
			doc: "A port has two bindings, as in a live migration: it is plugged on the second host while the first is active, then " +
				"the second binding is activated and the first one goes.",
			steps: []step{
				network("N1", "4", segment("vxlan", 925)),
				port("A", "N1", 1), port("B", "N1", 1),
				plug(1, "A", "B"),
				check("before", "A=ACTIVE", "B=ACTIVE"),
				offerBinding("A", 2),
				plug(2, "A"),
				check("two bindings"),
				activate("A", 2),
				check("activated", "A=ACTIVE"),
				dropBinding("A", 1),
				check("first binding gone", "A=ACTIVE"),
			},
		},
		{
			name: "live-migration-given-up", config: l2pop, hosts: 2,
			doc: "A second binding is offered and the port plugged there, but the migration is given up.",
			steps: []step{
				network("N1", "4", segment("vlan", 230)),
				port("A", "N1", 1),
				plug(1, "A"),
				check("before", "A=ACTIVE"),
				offerBinding("A", 2),
				plug(2, "A"),
				check("two bindings"),
				unplug(2, "A"),
				dropBinding("A", 2),
				check("given up", "A=ACTIVE"),
			},
		},
		{
			name: "lost-tag", config: l2pop, hosts: 1,
			doc: "Somebody clears the tag of a wired port; it comes back when the switch next changes.",
			steps: []step{
				network("N1", "4", segment("vlan", 231)),
				port("A", "N1", 1), port("B", "N1", 1),
				plug(1, "A"),
				check("wired", "A=ACTIVE"),
				setTag(1, "A", 0),
				plug(1, "B"),
				pass(2 * time.Second),
				check("repaired", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "wrong-tag", config: l2pop, hosts: 1,
			doc: "Somebody sets the tag of a wired port to another VLAN; it is put right when the switch next changes.",
			steps: []step{
				network("N1", "4", segment("vlan", 232)),
				port("A", "N1", 1), port("B", "N1", 1),
				plug(1, "A"),
				check("wired", "A=ACTIVE"),
				setTag(1, "A", 999),
				plug(1, "B"),
				pass(2 * time.Second),
				check("repaired", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "ofport-failed", config: l2pop, hosts: 1,
			doc: "The device of an interface does not exist: its port number is -1. A good port beside it is wired all the same. " +
				"Later the device appears.",
			steps: []step{
				network("N1", "4", segment("vlan", 226)),
				port("A", "N1", 1), port("B", "N1", 1),
				plugInto(1, "br-int", "", "A"),
				plug(1, "B"),
				check("failed", "B=ACTIVE"),
				vsctl(1, "the device of A appears", []string{"set", "Interface", "tap-A", "type=internal"}, nil),
				check("appeared", "A=ACTIVE"),
			},
		},
	}
}
