// SPDX-License-Identifier: Apache-2.0

// Package world is what the agent knows: what Neutron said, and what the switch is.
//
// A [World] is plain data with one owner. Its inputs are methods that take updates: a batch of changed rows ([World.Switch]),
// a push or a reply of the server ([World.Push], [World.Ports], [Groups.Pulled], [Members.Pulled]), tunnel endpoints, forwarding
// entries, or what an earlier run wrote down ([World.Memory], [World.Recall]). None of them does
// I/O, none decides about flows. [World.Resolve] then works out what follows (which port is wired to which segment, which
// local VLAN a segment has, which groups are in force where) and names the objects whose flows or rows may have to change; package pipeline compiles
// exactly these.
//
// Ports are the world's own. Tables of their own types hold the rest: [Segments] with local VLANs, [Tunnels] with the endpoints of other
// hosts, [Groups] with rules, and [Members] with the addresses that rules refer to.
//
// The order of updates does not matter: any history that ends in the same facts ends in the same world. Local VLANs are the
// one thing that remembers: a number once given to a segment stays until its last port is gone, and is read back from the
// switch after a restart.
package world
