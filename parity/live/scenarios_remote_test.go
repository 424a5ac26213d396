// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

// remoteScenarios are about rules that name the other side by a group.
func remoteScenarios() []*scenario {
	return []*scenario{
		{
			name: "fw-remote-same-host", config: firewall, hosts: 1, doc: "Members of another group may come in; both ports are on one host and the same network.",
			steps: []step{
				network("N1", "46", segment("vlan", 203)),
				group("G2"),
				group("G1", rule(in, members("G2")), rule(in, v6, members("G2"))),
				port("A", "N1", 1, groups("G1")), port("B", "N1", 1, groups("G2")),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
	}
}
