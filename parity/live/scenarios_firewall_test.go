// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

// firewallScenarios are about ports, groups and rules that come, change and go.
func firewallScenarios() []*scenario {
	return []*scenario{
		{
			name: "fw-default-group", config: firewall, hosts: 1, doc: "Two ports of the default group, whose members may come in.",
			steps: []step{
				network("N1", "4", segment("vxlan", 801)),
				defaultGroup(),
				port("A", "N1", 1), port("B", "N1", 1),
				plug(1, "A", "B"),
				check("plugged", "A=ACTIVE", "B=ACTIVE"),
			},
		},
	}
}
