// SPDX-License-Identifier: Apache-2.0

// Package fleet runs many agents in one process, beside a real RabbitMQ and the simulated neutron-server of release 29: the agent's own code with its own
// broker client, each over an Open vSwitch in memory. [Crowd] is such agents beside a real neutron-server.
//
//	f, err := fleet.New(ctx, fleet.Config{Agents: 1000, Seed: 1})
//	...
//	result, err := f.Run(ctx)
//
// A run starts the agents, measures them at rest, changes ports and groups, has storms (the broker killed, all agents restarted, …), and in
// the end compares the flows of every switch with those that a fresh agent makes, which has heard of no history: it asks the same region, with no
// broker between, for what is there now. So a message that was lost, one that was applied in the wrong order, and a flow that was
// left behind are seen, whatever the agents say of themselves. A mistake in how flows are made is not: it is in both. That is what packets and the
// recordings of the Python agent are compared for.
package fleet
