// SPDX-License-Identifier: Apache-2.0

// Package sim is a neutron-server in memory: it serves over a real RabbitMQ what layer-2 agents ask a neutron-server for, and
// pushes to them what changes, in the messages of Neutron 21 or of another release. There is no database behind it and no Python in it, so it can
// hold more ports and groups than the real server can be given on one machine, and an agent's time can be measured without
// the server's.
//
//	s, err := sim.Start(ctx, sim.Config{URL: broker.URL()})
//	...
//	net, err := s.CreateNetwork(ctx, sim.NetworkSpec{...})
//	port, err := s.CreatePort(ctx, sim.PortSpec{...}) // returns when the broker has the news
//
// What it does, an agent cannot tell from the real server: state reports, binding of ports to segments, object pulls and
// pushes, device reports and the status that follows, tunnel endpoints, forwarding entries of l2population. A part of the
// Networking API, enough for the lab's helpers and the parity scenarios, can be served beside it; Config.API says where.
//
// The cloud itself, without a broker, is package region: tests put it beside an agent in the same process.
//
// What it does not have: routers, local IPs, logs and DHCP agents; the API has no trunks and no QoS policies. Questions about
// objects that it does not have are answered with "none". Requests are hardly validated: it is a tool of tests that know what
// they ask for.
package sim
