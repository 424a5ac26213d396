// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import "time"

// switchScenarios are about bridges.
func switchScenarios() []*scenario {
	return []*scenario{
		{
			name: "foreign-bridge", config: l2pop, hosts: 1,
			doc: "A port is plugged into a bridge that is none of the agent's business.",
			steps: []step{
				network("N1", "4", segment("vlan", 261)),
				port("A", "N1", 1), port("B", "N1", 1),
				plug(1, "B"),
				check("before", "B=ACTIVE"),
				vsctl(1, "a bridge br-other is made", []string{"add-br", "br-other", "--", "set", "Bridge", "br-other", "datapath_type=netdev"},
					[]string{"--if-exists", "del-br", "br-other"}),
				plugInto(1, "br-other", "internal", "A"),
				pass(2 * time.Second),
				check("plugged there", "A=DOWN"),
			},
		},
		{
			name: "ancillary-bridge", config: l2pop, hosts: 1,
			doc: "A port is plugged into a bridge that names itself in external_ids, and unplugged: the agent reports it and programs nothing.",
			steps: []step{
				network("N1", "4", segment("vlan", 262)),
				port("A", "N1", 1),
				plugInto(1, "br-anc", "internal", "A"),
				pass(2 * time.Second),
				check("plugged there"),
				vsctl(1, "A is unplugged", []string{"del-port", "br-anc", "tap-A"}, nil),
				pass(2 * time.Second),
				check("unplugged"),
			},
		},
		{
			name: "trunk-like-bridge", config: l2pop, hosts: 1,
			doc: "A port sits in a bridge of its own that a patch pair joins to br-int, and both ends name the port, as with trunks.",
			steps: []step{
				network("N1", "4", segment("vlan", 263)),
				port("A", "N1", 1),
				vsctl(1, "a bridge mtr-1 with the port is made and joined to br-int", []string{
					"add-br", "mtr-1", "--", "set", "Bridge", "mtr-1", "datapath_type=netdev", "--",
					"add-port", "mtr-1", "tap-A", "--", "set", "Interface", "tap-A", "type=internal", `mac="mac-A"`,
					"external_ids:iface-id=id-A", `external_ids:attached-mac="mac-A"`, "external_ids:iface-status=active", "--",
					"add-port", "mtr-1", "mtt-1", "--", "set", "Interface", "mtt-1", "type=patch", "options:peer=mti-1",
					"external_ids:iface-id=id-A", `external_ids:attached-mac="mac-A"`, "--",
					"add-port", "br-int", "mti-1", "--", "set", "Interface", "mti-1", "type=patch", "options:peer=mtt-1",
					"external_ids:iface-id=id-A", `external_ids:attached-mac="mac-A"`,
				}, []string{"--if-exists", "del-br", "mtr-1", "--", "--if-exists", "del-port", "br-int", "mti-1"}),
				pass(2 * time.Second),
				check("joined", "A=ACTIVE"),
			},
		},
		{
			name: "physical-bridge-recreated", config: l2pop, hosts: 1,
			doc: "The physical bridge is deleted and made anew while ports of a vlan and a flat network are wired.",
			steps: []step{
				network("N1", "4", segment("vlan", 264)), network("N2", "4", segment("flat", 0)),
				port("A", "N1", 1), port("B", "N2", 1),
				plug(1, "A", "B"),
				check("before", "A=ACTIVE", "B=ACTIVE"),
				vsctl(1, "br-ex is deleted", []string{"del-br", "br-ex"}, nil),
				pass(3 * time.Second),
				vsctl(1, "br-ex is made anew", []string{
					"add-br", "br-ex", "--", "set", "Bridge", "br-ex", "datapath_type=netdev", "--", "add-port", "br-ex", "ext0",
				}, nil),
				pass(5 * time.Second),
				check("made anew", "A=ACTIVE", "B=ACTIVE"),
			},
		},
		{
			name: "unrelated-ports", config: l2pop, hosts: 1,
			doc: "Ports without iface-id come and go on br-int and on the physical bridge: nobody's business.",
			steps: []step{
				network("N1", "4", segment("vlan", 265)),
				port("A", "N1", 1),
				plug(1, "A"),
				vsctl(1, "other0 on br-int and other1 on br-ex are made", []string{
					"add-port", "br-int", "other0", "--", "set", "Interface", "other0", "type=internal", "--",
					"add-port", "br-ex", "other1", "--", "set", "Interface", "other1", "type=internal",
				}, []string{"--if-exists", "del-port", "other0", "--", "--if-exists", "del-port", "other1"}),
				pass(time.Second),
				check("there", "A=ACTIVE"),
			},
		},
		{
			name: "many-ports", config: l2pop, hosts: 1,
			doc: "Five ports of a network are plugged in one transaction.",
			steps: []step{
				network("N1", "4", segment("vlan", 266)),
				port("A", "N1", 1), port("B", "N1", 1), port("C", "N1", 1), port("D", "N1", 1), port("E", "N1", 1),
				plug(1, "A", "B", "C", "D", "E"),
				check("plugged", "A=ACTIVE", "B=ACTIVE", "C=ACTIVE", "D=ACTIVE", "E=ACTIVE"),
			},
		},
	}
}
