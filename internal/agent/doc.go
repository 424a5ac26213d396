// SPDX-License-Identifier: Apache-2.0

// Package agent is the loop: the one goroutine that takes events, decides, and starts what has to be done.
//
// Inputs are the switch's database (batches of changed rows), the broker (messages, and what happens to the connection),
// timers, and the outcome of work that was started. What takes time, such as an RPC call, runs beside the loop and comes
// back as an event; the loop itself never waits for the outside.
//
// register.go finds a server and listens to it, heartbeat.go keeps it informed; wiring.go brings the switch in line with
// what the world wants, in rounds; ports.go and tunnels.go ask the server what is missing and tell it what is done. What is
// wanted is decided elsewhere: in packages world and pipeline.
//
// Start with [Agent.Run].
package agent
