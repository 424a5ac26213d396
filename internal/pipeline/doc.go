// SPDX-License-Identifier: Apache-2.0

// Package pipeline says what the switch should be like, given what the world is like.
//
// [Compile] takes one object of the world (a bridge, a port, a segment, a tunnel, a station, a peer, an interface) and
// returns the flows and rows it wants, each flow with its reason. It is a pure function: no state, no I/O, and the same world
// gives the same answer. Objects are compiled on their own, so a change costs what the change costs, not what the host costs.
//
// One file holds the flows of one kind of object: bridge.go the base of each bridge, segment.go networks and their tunnels,
// port.go ports and, without filters, the check of their senders. The filters are in filter.go (what every port has), rules.go
// (what its groups allow) and peer.go (the addresses of members, shared by all ports of a network). The tables are those of
// neutron-openvswitch-agent, numbered in tables.go and shown with real dumps in docs/reference/pipeline.md; testdata/*.script shows what
// becomes of each kind of rule and port.
package pipeline
