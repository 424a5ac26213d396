// SPDX-License-Identifier: Apache-2.0

package main

// readmeRows are what README.md claims beside the Python agent, each with the items that show it.
func readmeRows() []readmeRow {
	return []readmeRow{
		{"connections to the broker", "{python-connections}", "{patchbay-connections}", []string{"footprint"}},
		{"queues with a consumer", "{python-queues}", "{patchbay-queues}", []string{"footprint"}},
		{"from start to registered with neutron-server", "{python-start} s", "{patchbay-start} s", []string{"footprint"}},
		{"reaction to a plugged port", "at the next poll, up to 2 s later", "at once", []string{"bench-wiring-sim"}},
		{"restart", "{python-restart} flows written again", "{patchbay-restart} flows touched", []string{"footprint"}},
		{"packets of connections that a rule with a remote group allows, lost by a restart", "{own-lost} of {own-sent}", "{again-lost} of {again-sent}", []string{"e2e-kept"}},
		{"a misspelt option", "ignored in silence", "named, with the file, the line and the nearest known option", []string{"corpus"}},
		{"a VM sends before its filters are there", "its packets pass", "its packets are dropped", []string{"e2e-groups"}},
		{"packets that a port receives before it is wired", "those of every network of the host", "none after the agent's first write; with os-vif's `isolate_vif` none before it either", []string{"e2e-isolation"}},
		{"a VM forges a neighbour advertisement", "the switch learns the forged MAC", "it is dropped", []string{"e2e-hostile"}},
		{"a member joins a remote group of thousands", "the agent rebuilds every port that refers to the group", "the agent adds the flows of that one address: {flows}, after {after}", []string{"bench-groups"}},
		{"packets lost in updates of rules and groups", "{python-lost} of {python-sent}", "{lost} of {sent}", []string{"e2e-blink"}},
		{"the switch restarts while the broker is away", "no flows until the broker is back", "flows rebuilt from the snapshot, in {snap-healed}", []string{"faults-switch"}},
		{"another program deletes or changes a flow", "the flow stays so until a restart", "the agent repairs the flow after {repaired} ms, and logs it", []string{"faults-restart"}},
		{"an option that the agent cannot honour", "–", "the agent does not start, and names the option and the reason", []string{"corpus"}},
		{"lines in the log of an agent that idles for a minute", "{python-lines}", "{patchbay-lines}", []string{"footprint"}},
	}
}
