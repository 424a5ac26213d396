// SPDX-License-Identifier: Apache-2.0

// Package neutron is what neutron-server says and hears over RPC, with types.
//
//   - [Server] makes the calls an agent makes: it is alive, report my state, pull objects, these ports are up.
//   - [DecodeMessage] turns a message that arrived on one of [Topics] into a typed one: a [Push] of objects, a tunnel
//     endpoint, forwarding entries, DVR addresses.
//   - [Port], [Network], [SecurityGroup] and their kin are Neutron's versioned objects, with the fields an L2 agent
//     reads and no others. Decoding is lenient: a newer server may add fields, an older one leave some out.
//   - [Negotiate] finds the object versions to ask for, so that one build serves every release from 17 on.
//
// The package knows the protocol and nothing else: no switch, no state, no retries beyond what one call needs.
// Input is JSON of unknown origin; every decoder is fuzzed.
package neutron
