// SPDX-License-Identifier: Apache-2.0

// Package openflow speaks OpenFlow 1.4 and 1.3, with Nicira's extensions, to
// Open vSwitch. It depends on nothing but the standard library.
//
// # Flows
//
// A [Flow] is what a program writes: table, priority, [Match], [Action] values.
//
//	f := openflow.Flow{
//		Table: 60, Priority: 100, Cookie: cookie,
//		Match:   openflow.Match{openflow.FromPort(3), openflow.VLAN(7)},
//		Actions: []openflow.Action{openflow.PopVLAN{}, openflow.To(81)},
//	}
//
// An [Entry] is what it keeps: the same flow as one immutable string, in
// exactly the bytes in which the switch will dump it. Entries are compared
// with ==, their [Key] is a map key, and a hundred thousand of them in a map
// take about 15 MB. "Is this flow still there, unchanged?" is a comparison of
// bytes: see [FlowStat.Lookup]. Flow.Entry makes one, Entry.Flow decodes it
// again, and the String methods of both give the syntax of ovs-ofctl, which
// [ParseFlow] reads.
//
// # Connections
//
// A [Conn] is one connection to one bridge. [Dial] takes the name of a local
// bridge and connects to its management socket, which needs no configuration of
// the switch; [Listen] waits for switches with a Controller row. Conn.Commit
// applies any number of changes atomically, Conn.DumpFlows reads all flows
// while they come in, Conn.Monitor follows the changes that others make, and
// Conn.PacketIns are the packets that Controller actions send. A [Supervisor]
// dials again when a connection breaks and reports it as one event.
//
// # Errors
//
// What the switch refuses is an [*Error] with the switch's own name for it,
// such as OFPBMC_BAD_PREREQ, wrapped in a [*BundleError] or [*SendError] that
// names the message and gives its text; [IsError] asks for the name. A
// [*ConnError] says that the connection broke before the answer came. Errors
// about bytes that are not OpenFlow wrap [ErrMalformed]. A flow that does not
// fit into a message is a [*FlowTooLongError].
//
// What this package does not know of a flow in the switch is never an error:
// unknown fields and actions are kept as they are ([RawField], [RawAction]).
//
// # Stability
//
// The package follows semantic versioning. Before v1 a minor version may change
// or remove exported names, and CHANGELOG.md says how to follow; a patch version
// changes none. The two latest releases of Go are supported. Texts of errors
// may change at any time; types, and the names that [IsError] takes, do not.
// docs/reference/api.md of the repository has the whole promise.
package openflow
