// SPDX-License-Identifier: Apache-2.0

// Package trace follows a packet through the switch and says in words what becomes of it, and explains ports and flows.
//
// The switch itself decides: ofproto/trace runs the packet through the real flows, and [Parse] reads what it prints. What the
// agent says about itself (package inspect) gives names to the steps: whose flow it was, for which rule of which group. From
// both, and from the interfaces as the database has them, [Host.Judge] finds the cause when a packet is lost.
//
// Everything here is pure: the command that asks switch, database and agent is elsewhere. Without an agent, steps have no
// owners and rules no names, but the verdict stands: the flows are the switch's own.
package trace
