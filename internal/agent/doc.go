// SPDX-License-Identifier: Apache-2.0

// Package agent is the loop: the one goroutine that takes events, decides, and starts what has to be done.
//
// Inputs are the switch's database (batches of changed rows), the broker (messages, and what happens to the connection),
// timers, and the outcome of work that was started. What takes time, such as an RPC call, runs beside the loop and comes
// back as an event; the loop itself never waits for the outside.
//
// Today the agent registers with neutron-server, reports its state, keeps alive and listens. It does not wire ports.
//
// Start with [Agent.Run].
package agent
