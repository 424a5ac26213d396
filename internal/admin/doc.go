// SPDX-License-Identifier: Apache-2.0

// Package admin is the door through which an operator looks into a running agent: HTTP over a unix socket.
//
// [Listen] opens the socket, [New] makes what answers on it, and [Client] is the other side, an [inspect.Source] like the
// agent itself: what works on one works on the other.
//
//	GET /v1/status, /v1/ports, /v1/ports/ID-OR-NAME, /v1/networks, /v1/tunnels, /v1/groups, /v1/groups/ID-OR-NAME,
//	    /v1/bridges, /v1/flows?bridge=NAME, /v1/events?after=SEQ, /v1/config     JSON
//	GET /v1/map                                                                  a page, see package hostmap
//	GET /livez, /readyz, /metrics                                                text
//
// Nothing can be changed through it, and nothing secret is shown. Whoever may open the socket is trusted with the names of
// ports and addresses, but not with the agent's health: requests are small, few at a time, and cut off when their answer
// is not read; the agent's loop only ever spends moments on them.
package admin
