// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

const (
	// above is above the flow of the transient table that sends packets of a port to its filters, which is 100, and above those of the dhcp extension
	// of a Python agent that ran before, which are 101 and take DHCP of all ports until they are pruned.
	above = 102
)

// servers is the group of all servers and relays of a link.
var servers = netip.MustParsePrefix("ff02::1:2/128")

// Compile implements extension.Extension. Only packets of ports that get an answer come to the agent. The Python agent takes DHCP of everybody, and
// drops what it has no answer for: also that of sub-ports, and of VMs of other hosts on its way to a DHCP agent.
func (d *DHCP) Compile(o world.Object, want *pipeline.Want) {
	id, ok := world.PortID(o)
	if !ok {
		return
	}
	p := d.w.Port(id)
	if !extension.IsGuest(p) {
		return
	}
	if n := d.networks[d.ports[id]]; n == nil || !n.known || !n.listed {
		want.Waiting = "the subnets of network " + p.Details.NetworkID
		return
	}
	c := d.clientOf(id)
	v4, v6 := c.answers()
	if !v4 && !v6 {
		return
	}
	br, meter := d.w.Config.IntegrationBridge, d.meters.ID(id)
	if meter != 0 {
		want.Meters = append(want.Meters, extension.PacketMeter(br, "how often the port's DHCP is answered", meter, extension.DefaultBound()))
	}
	add := func(reason string, ether uint64, from, to uint64, dst of.Term) {
		want.Flow(br, reason, of.Flow{
			Table: pipeline.TableTransient, Priority: above,
			Match: of.Match{
				of.FromPort(p.VIF.OFPort), of.Untagged(), of.HW(of.EthSrc, of.MAC(p.VIF.MAC)), of.Num(of.EthType, ether), of.Num(of.IPProto, datagram.ProtoUDP),
				of.Num(of.UDPSrc, from), of.Num(of.UDPDst, to), dst,
			},
			Actions: extension.OnlyToAgent(name, id, meter),
		})
	}
	if v4 {
		const renewal = "the agent answers the port's DHCP: renewals, which are sent to the server that the address is from"
		add("the agent answers the port's DHCP", datagram.EtherIPv4, clientPort4, serverPort4, of.IP(of.IPv4Dst, netip.PrefixFrom(broadcast, 32)))
		for _, to := range c.servers() {
			add(renewal, datagram.EtherIPv4, clientPort4, serverPort4, of.IP(of.IPv4Dst, to))
		}
	}
	if v6 {
		add("the agent answers the port's DHCPv6", datagram.EtherIPv6, clientPort6, serverPort6, of.IP(of.IPv6Dst, servers))
	}
}

// servers returns where renewals of the port's DHCPv4 addresses are sent: to any address of their subnets, since a DHCP agent may have given them
// out before, and to our own if that is elsewhere. Each once.
func (c *client) servers() []netip.Prefix {
	var out []netip.Prefix
	for _, l := range c.leases(4, stateful) {
		out = append(out, l.subnet.CIDR.Prefix)
		if own := server(l.subnet); !l.subnet.CIDR.Contains(own) {
			out = append(out, netip.PrefixFrom(own, 32))
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}
