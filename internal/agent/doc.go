// SPDX-License-Identifier: Apache-2.0

// Package agent is the loop: the one goroutine that takes events to the decisions (package core), and what follows from them to those who carry it
// out (package runner).
//
// Inputs are the switch's database (batches of changed rows), its bridges (flows, and changes that others make to them), the broker (messages, and what happens to the connection),
// timers, and the outcome of work that was started. What takes time, such as an RPC call, runs beside the loop and comes
// back as an event; the loop itself never waits for the outside.
//
// agent.go has the loop; boxes.go holds events until it takes them; inspect.go answers questions about the agent, from copies that the
// loop takes; report.go has the part of the state report that follows from options.
//
// Start with [Agent.Run].
package agent
