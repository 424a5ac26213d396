// SPDX-License-Identifier: Apache-2.0

// Package iptables filters the ports that are plugged in through a Linux bridge of their own (firewall_driver = iptables_hybrid), with
// iptables and IP sets. It is to package world what package pipeline is for flows: the world says what is allowed, this package compiles it.
//
// Rules, chains, sets and zones have the names and texts that the Python agent gives them, so that either agent takes over from the other
// without a change. Rules that mean the same are left alone, whatever order and spelling they have.
//
//   - [PortOf] takes the facts about a port from the world. [Filter.Set], [Filter.Delete] and [Filter.SetMembers] take them.
//   - [Host.Read] reads what the host has: a [State].
//   - [Filter.Next] is pure. It compares what is wanted with a state and returns the [Changes]: one input of ipset restore, one of
//     iptables-restore for each IP version, the sets to delete afterwards, and the tracked connections that no rule allows any more. Nothing
//     when all is as wanted. Drift is found by the same comparison.
//   - [Host.Apply] writes the changes; [Filter.Done] takes the outcome.
//
// # How the agent uses it
//
// Package hybrid does.
//
// Facts. When [world.World.Resolve] names a port, the agent calls Set with what PortOf returns, or Delete when PortOf returns false. When it names a
// peer, or a port, the agent calls SetMembers with [world.Members.Addresses] of each group of [Filter.Remotes]. [world.Config.Filter] is set,
// since the world learns groups and members only then; package pipeline has to leave out the filters' flows, and [world.Config.AntiSpoof] is set:
// frames that are not IP pass no iptables rule, so that the flows of tables 24 and 25 check ARP and the senders.
//
// Effects. After facts have changed, after a failure and every few minutes for drift the agent starts one effect: Read, then Next in the loop, then
// Apply, then Done in the loop. One is under way at a time. Rules in chains of others are found by their text, and chains of the agent have no
// other writer, so that nothing is lost when somebody else writes between Read and Apply. Prune is the gate of the agent: before it is open, rules of ports
// that are not known stay as they are, and an empty world deletes nothing.
//
// Order. A new port gets its VLAN only when [Filter.Applied] is true: before that its packets would pass its bridge unfiltered. A port that leaves its
// network loses its VLAN first; Delete follows when the row is written. Addresses that left a set go before new ones come, and an input of
// iptables-restore is one transaction for each table, so that no address that a port has lost stays beside one that it has got. Last, the
// connections of [Changes] are deleted: those of the zone that [Connections.Match].
//
// Conditions. [Unbridged] and [Host.Other] return why the rules have no effect, or more than the rules have: health names it, and no new port is
// reported up. [Filter.Unfit] returns why one port has no rules.
//
// Change to the driver openvswitch. When the flows of a port are in place, the agent calls Set with a port of kind [Absent]: its rules go, and no
// other port's. When no port is left, [Leave] deletes what ports share.
//
// # Releases of the Python agent
//
// The texts are those of release 29. Rules of the tables filter and raw are the same in all releases from 17 on, but for two faults:
// before 24.0 (23.2, 22.2, 21.2.1) a rule with an address group has no source, and the protocol ipip is the one that the host calls so.
// The table nat has rules from 24.0 on; an older agent that takes over leaves them.
//
// Where this package differs on purpose: a port keeps its zone over a restart, rules of ports that are not known stay until all is known, a port
// that the server does not know has no rules instead of rules that accept everything, sets that nothing refers to are deleted, a rule that is gone
// ends the connections to its own ports instead of all of its protocol, and an address that a port has lost ends those of the address.
package iptables
