// SPDX-License-Identifier: Apache-2.0

// Package agent is the loop: the one goroutine that takes events, decides, and starts what has to be done.
//
// Inputs are the switch's database (batches of changed rows), its bridges (flows, and changes that others make to them), the broker (messages, and what happens to the connection),
// timers, and the outcome of work that was started. What takes time, such as an RPC call, runs beside the loop and comes
// back as an event; the loop itself never waits for the outside.
//
// register.go finds a server and listens to it, heartbeat.go keeps it informed; converge.go has the steps that follow
// every event; bridges.go connects to bridges and reads them, apply.go starts rounds of changes, and package dataplane decides
// what is in them; conntrack.go does what package zones decides; extensions.go tends what is added to the core; pulls.go
// asks the server what is missing, as package pull decides, and replies.go takes the answers; reports.go sends it the port statuses that package report decides on;
// resync.go has what is known checked after
// something may have been missed; memory.go writes down what the server said, for a start without one; inspect.go answers
// questions about the agent, from copies that the loop takes, and recorder.go keeps the last inputs and decisions. What is
// wanted is decided elsewhere: in packages world and pipeline.
//
// Start with [Agent.Run].
package agent
