// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// segment compiles how packets of a network get on and off this host.
func (c *compiler) segment(key world.SegmentKey) {
	s := c.w.Segments.Get(key)
	switch {
	case s == nil, s.Type == "local":
	case s.Tunnelled():
		c.tunnelSegment(s)
	default:
		c.physicalSegment(s)
	}
}

func (c *compiler) physicalSegment(s *world.Segment) {
	cfg := &c.w.Config
	bridge := cfg.Physical[s.Physnet]
	inner, outer := c.w.OFPort(world.IntPatchName(bridge)), c.w.OFPort(world.PhysPatchName(bridge))
	if inner == 0 || outer == 0 {
		return // compiled again when the patch has its numbers
	}
	reason := s.Type + " network " + s.Key.Network
	out, in := of.Action(of.SetVLAN(uint16(s.Key.ID))), of.Match{of.FromPort(inner), of.VLAN(uint16(s.Key.ID))}
	tag := []of.Action{of.SetVLAN(s.VLAN)}
	if s.Type == "flat" {
		out, in = of.PopVLAN{}, of.Match{of.FromPort(inner), of.Untagged()}
		tag = []of.Action{of.PushVLAN(of.EtherVLAN), of.SetVLAN(s.VLAN)}
	}
	c.flow(bridge, reason+" leaves the host", of.Flow{
		Table: physEntry, Priority: 4, Match: of.Match{of.FromPort(outer), of.VLAN(s.VLAN)},
		Actions: []of.Action{out, of.Output(of.PortNormal)},
	})
	c.flow(cfg.IntegrationBridge, reason+" comes to the host", of.Flow{
		Table: intEntry, Priority: 3, Match: in, Actions: append(tag, of.GotoTable(intRateLimit)),
	})
}

func (c *compiler) tunnelSegment(s *world.Segment) {
	br := c.w.Config.TunnelBridge
	reason := s.Type + " network " + s.Key.Network
	c.flow(br, reason+" comes to the host", of.Flow{
		Table: tunnelTable(s.Type), Priority: 1, Match: of.Match{of.Num(of.TunID, uint64(s.Key.ID))},
		Actions: []of.Action{of.PushVLAN(of.EtherVLAN), of.SetVLAN(s.VLAN), of.GotoTable(tunLearn)},
	})
	flood := []of.Action{of.PopVLAN{}, of.Set(of.TunID, of.Uint(uint64(s.Key.ID)))}
	before := len(flood)
	for _, e := range c.w.Tunnels.FloodTo(s) {
		if p := c.w.OFPort(c.w.TunnelName(e)); p != 0 {
			flood = append(flood, of.Output(p))
		}
	}
	if len(flood) > before {
		c.flow(br, "broadcasts of "+reason, of.Flow{Table: tunFlood, Priority: 1, Match: of.Match{of.VLAN(s.VLAN)}, Actions: flood})
	}
}

// station compiles the way to an address behind a tunnel, and the answers to questions about its IP addresses.
func (c *compiler) station(key world.SegmentKey, mac neutron.MAC) {
	s := c.w.Segments.Get(key)
	if s == nil {
		return
	}
	at, ok := s.Station(mac)
	if !ok {
		return
	}
	br := c.w.Config.TunnelBridge
	reason := "address " + mac.String() + " of network " + key.Network + " is behind " + at.Endpoint.IP.String()
	if p := c.w.OFPort(c.w.TunnelName(at.Endpoint)); p != 0 {
		c.flow(br, reason, of.Flow{
			Table: tunUnicast, Priority: 2, Match: of.Match{of.VLAN(s.VLAN), of.HW(of.EthDst, hw(mac))},
			Actions: []of.Action{of.PopVLAN{}, of.Set(of.TunID, of.Uint(uint64(key.ID))), of.Output(p)},
		})
	}
	if !c.w.Config.ARPResponder {
		return
	}
	for _, ip := range at.IPs {
		if ip.Is4() {
			c.responder(br, s.VLAN, mac, ip)
		}
	}
}

// responder answers ARP requests for an address, by turning the request around.
func (c *compiler) responder(br string, vlan uint16, mac neutron.MAC, ip netip.Addr) {
	c.flow(br, "answer for "+ip.String(), of.Flow{
		Table: tunResponder, Priority: 1,
		Match:   of.Match{of.VLAN(vlan), etherType(typeARP), of.IP(of.ARPTPA, netip.PrefixFrom(ip, 32))},
		Actions: ARPAnswer(hw(mac), ip),
	})
}

// ARPAnswer returns the actions that turn a request around: the address has the MAC.
func ARPAnswer(mac of.MAC, ip netip.Addr) []of.Action {
	return []of.Action{
		of.Set(of.ARPOp, of.Uint(2)),
		of.Move{From: of.ARPSHA.All(), To: of.ARPTHA.All()},
		of.Move{From: of.ARPSPA.All(), To: of.ARPTPA.All()},
		of.Set(of.ARPSHA, mac.Value()),
		of.Set(of.ARPSPA, of.Addr(ip)),
		of.Move{From: of.EthSrc.All(), To: of.EthDst.All()},
		of.Set(of.EthSrc, mac.Value()),
		of.Output(of.PortInPort),
	}
}

// tunnel compiles the port to another host's endpoint.
func (c *compiler) tunnel(e world.Endpoint) {
	if !c.w.Tunnels.Wanted(e) {
		for _, name := range world.TunnelNames(e) {
			c.after(ovsdb.AbsentPort{Bridge: c.w.Config.TunnelBridge, Name: name})
		}
		return
	}
	name := c.w.TunnelName(e)
	c.row(c.tunnelPort(name, e))
	if p := c.w.OFPort(name); p != 0 {
		c.flow(c.w.Config.TunnelBridge, "packets from "+e.IP.String(), of.Flow{
			Table: tunEntry, Priority: 1, Match: of.Match{of.FromPort(p)}, Actions: []of.Action{of.GotoTable(tunnelTable(e.Type))},
		})
	}
}

// tunnelPort is how the port of a tunnel shall be.
func (c *compiler) tunnelPort(name string, to world.Endpoint) ovsdb.PortSpec {
	options := map[string]string{
		"remote_ip": to.IP.String(), "local_ip": c.w.Config.LocalIP.String(), "in_key": "flow", "out_key": "flow",
		"df_default": strconv.FormatBool(c.s.DontFragment),
	}
	if !c.w.View.Capabilities().HWOffload {
		options["egress_pkt_mark"] = "0"
	}
	kind := to.Type
	switch {
	case kind == "vxlan" && c.s.VXLANPort != 4789:
		options["dst_port"] = strconv.Itoa(c.s.VXLANPort)
	case kind == "gre" && to.IP.Is6():
		kind, options["packet_type"] = "ip6gre", "legacy_l2"
	}
	if c.s.TunnelChecksum {
		options["csum"] = "true"
	}
	if c.s.TOS != "" {
		options["tos"] = c.s.TOS
	}
	return ovsdb.PortSpec{Bridge: c.w.Config.TunnelBridge, Name: name, Type: kind, Options: options}
}
