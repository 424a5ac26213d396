// SPDX-License-Identifier: Apache-2.0

// Package parity compares what two layer-2 agents make of the same events. It turns flows, OVSDB rows, port statuses and
// agent calls into lines of text from which everything is gone that two runs may differ in: cookies, order, port numbers,
// local VLANs, identifiers, addresses of the machine. What is left is compared line by line.
//
//	names := parity.NewNames()
//	names.Port("br-int", 7, "tap0000000a-00")
//	names.VLAN(3, "N1/1001")
//	line, ok := names.Flow("br-int", flow)        // "br-int table=0 priority=9 in_port=tap-A actions=goto_table:25"
//	diff := parity.Compare(want, have, accepted)
//
// A [Recording] holds one scenario: the inputs that the Python agent got and the lines that its switch showed at every
// checkpoint. Recordings are made by the package parity/live, which plays the scenarios on the lab's real servers, and
// stand in testdata; [Load] reads one. A test that replays the inputs needs no server.
package parity
