// SPDX-License-Identifier: Apache-2.0

// Package lab runs a real cloud on one machine: RabbitMQ, MariaDB, neutron-server, and any number of hosts, each a network
// namespace with an Open vSwitch of its own, on which either the Python agent or Patchbay runs and namespaces play VMs.
//
//	l, err := lab.Up(ctx, lab.Options{Hosts: 2})
//	err = l.Host(1).StartAgent(ctx, lab.Python)
//	err = l.Host(2).StartAgent(ctx, lab.Patchbay, "agent.arp_responder=false")
//	net, err := l.CreateNetwork(ctx, lab.Network{Name: "blue"})
//	a, err := l.Host(1).Plug(ctx, lab.Port{NetworkID: net.ID})
//	b, err := l.Host(2).Plug(ctx, lab.Port{NetworkID: net.ID})
//	err = l.WaitActive(ctx, a.PortID, b.PortID)
//	err = a.Ping(ctx, b.IPs[0])
//	err = lab.Down(ctx, lab.Options{})
//
// Everything the lab writes is in one directory; everything else it makes (processes, namespaces, one link) is named in
// the state file there before it is made. That is what makes the three promises cheap: Up on a running lab changes
// nothing, Up on half a lab makes the other half, and Down leaves nothing.
//
// The lab outlives the process that made it. Every part is its own daemon; see the packages daemon, broker and vswitch for
// how they are found again. Traffic stays on the loopback interface and in the lab's own namespaces.
package lab
