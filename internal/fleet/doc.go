// SPDX-License-Identifier: Apache-2.0

// Package fleet looks at many hosts, and moves them from one agent to the other.
//
// Inputs are a list of hosts ([ReadHosts]) and a way to run a command on one ([Runner]). Outputs are what each host says ([Answer]), and
// for a [Switch] a record of how far it is, which is kept in a file so that a switch that was stopped goes on. What to do with a
// host and when to stop is decided in values ([Record.Batches], [Record.Failures]); [Fleet.Switch] alone acts.
package fleet
