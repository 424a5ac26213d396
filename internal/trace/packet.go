// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/tables"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Packet is what is sent.
type Packet struct {
	// Protocol is tcp, udp, sctp, icmp, arp or the number of one.
	Protocol       string
	SrcMAC, DstMAC string
	Src, Dst       netip.Addr
	// SrcPort and DstPort are of tcp, udp and sctp; Type and Code of icmp.
	SrcPort, DstPort uint16
	Type, Code       uint8
	// Size of the IP packet in bytes; 0 when it does not matter.
	Size int
}

// ARP is the protocol that looks for an address.
const ARP = "arp"

const (
	broadcast = "ff:ff:ff:ff:ff:ff"
	// somebody sends from where the address is not known; filters do not look at it.
	somebody = "02:00:00:00:00:01"
)

// number is the packet's protocol, -1 for one that is not IP.
func (p *Packet) number() int {
	return protocolNumber(p.Protocol, p.Dst.Is6())
}

// hasPorts says whether the protocol has ports.
func (p *Packet) hasPorts() bool {
	n := p.number()
	return n == openflow.ProtoTCP || n == openflow.ProtoUDP || n == openflow.ProtoSCTP
}

func (p *Packet) isICMP() bool {
	return p.number() == openflow.ProtoICMP || p.number() == openflow.ProtoICMPv6
}

// Check says what is wrong with the packet, if something is.
func (p *Packet) Check() error {
	switch {
	case p.Protocol != ARP && p.number() < 0:
		return fmt.Errorf("protocol %q is none of tcp, udp, sctp, icmp, arp, and no number", p.Protocol)
	case !p.Src.IsValid() || !p.Dst.IsValid():
		return fmt.Errorf("an address is not known: give it with --src or --dst")
	case p.Src.Is4() != p.Dst.Is4():
		return fmt.Errorf("%s and %s are of different IP versions", p.Src, p.Dst)
	case p.Protocol == ARP && p.Dst.Is6():
		return fmt.Errorf("IPv6 has no ARP")
	case p.Protocol != ARP && p.DstMAC == "":
		return fmt.Errorf("the MAC of %s is not known here: give it with --dst-mac (that of the router, if it is in another network)", p.Dst)
	}
	return nil
}

// Answer is the packet that comes back.
func (p *Packet) Answer() Packet {
	a := *p
	a.SrcMAC, a.DstMAC, a.Src, a.Dst, a.SrcPort, a.DstPort = p.DstMAC, p.SrcMAC, p.Dst, p.Src, p.DstPort, p.SrcPort
	switch {
	case p.isICMP() && p.Type == EchoRequest(p.Dst):
		a.Type = 0
		if p.Dst.Is6() {
			a.Type = 129
		}
	}
	return a
}

// EchoRequest is the type of ICMP message that ping sends.
func EchoRequest(to netip.Addr) uint8 {
	if to.Is6() {
		return 128
	}
	return 8
}

// String is the packet as one says it: "tcp/22", "icmp type 8", "protocol 112".
func (p *Packet) String() string {
	switch {
	case p.hasPorts():
		return fmt.Sprintf("%s/%d", p.Protocol, p.DstPort)
	case p.isICMP():
		return fmt.Sprintf("icmp type %d", p.Type)
	case p.Protocol == ARP:
		return "arp"
	}
	return "protocol " + p.Protocol
}

// Flow is the packet in the syntax of ofproto/trace, without where it comes in.
func (p *Packet) Flow() string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, ","+format, args...) }
	add("dl_src=%s", cmp.Or(p.SrcMAC, somebody))
	if p.Protocol == ARP {
		add("dl_dst=%s,arp,arp_op=1,arp_spa=%s,arp_tpa=%s,arp_sha=%s", broadcast, p.Src, p.Dst, cmp.Or(p.SrcMAC, somebody))
		return b.String()
	}
	add("dl_dst=%s", p.DstMAC)
	if p.Dst.Is4() {
		add("ip,nw_src=%s,nw_dst=%s", p.Src, p.Dst)
	} else {
		add("ipv6,ipv6_src=%s,ipv6_dst=%s", p.Src, p.Dst)
	}
	add("nw_proto=%d,nw_ttl=64", p.number())
	switch {
	case p.hasPorts():
		add("%s_src=%d,%s_dst=%d", p.Protocol, p.SrcPort, p.Protocol, p.DstPort)
	case p.number() == openflow.ProtoICMP:
		add("icmp_type=%d,icmp_code=%d", p.Type, p.Code)
	case p.number() == openflow.ProtoICMPv6:
		add("icmpv6_type=%d,icmpv6_code=%d", p.Type, p.Code)
	}
	return b.String()
}

// Start is where a packet comes in.
type Start struct {
	Bridge string
	Flow   string // the part of the flow that says so
	Text   string // for people
}

// Start says where packets of an end come in, and what they carry there. Tunnel names the tunnel by which a station's come: its
// remote address, or empty for the one that the flows name.
func (h *Host) Start(from, to *End, tunnel string) (Start, error) {
	if from.Here() {
		if from.Plug == nil {
			return Start{}, fmt.Errorf("%s is not plugged in on this host", from)
		}
		if from.Plug.OFPort <= 0 {
			return Start{}, fmt.Errorf("the switch has no port for interface %s of %s: %s", from.Plug.Name, from, cmp.Or(from.Plug.Error, "it has not made it"))
		}
		if device, vlan := h.behind(from.Plug); device != nil && device.OFPort > 0 {
			s := Start{
				Bridge: device.Bridge, Flow: fmt.Sprintf("in_port=%d", device.OFPort),
				Text: fmt.Sprintf("from %s, interface %s of %s, untagged", from, device.Name, device.Bridge),
			}
			if vlan != 0 {
				s.Flow += fmt.Sprintf(",dl_vlan=%d", vlan)
				s.Text = fmt.Sprintf("from %s, interface %s of %s, under VLAN %d", from, device.Name, device.Bridge, vlan)
			}
			return s, nil
		}
		return Start{
			Bridge: from.Plug.Bridge, Flow: fmt.Sprintf("in_port=%d", from.Plug.OFPort),
			Text: fmt.Sprintf("from %s, interface %s of %s", from, from.Plug.Name, from.Plug.Bridge),
		}, nil
	}
	kind, physical, number := h.segment(to)
	switch kind {
	case "vlan", "flat":
		return h.fromWire(kind, physical, number)
	case "vxlan", "gre", "geneve":
	default:
		return Start{}, fmt.Errorf("it is not known of which kind the network of %s is, so packets from %s cannot be followed", to, from)
	}
	in := from.Tunnel
	if tunnel != "" {
		in = nil
		for i := range h.Interfaces {
			if x := &h.Interfaces[i]; x.Remote == tunnel && x.Type == kind {
				in = x
			}
		}
		if in == nil {
			return Start{}, fmt.Errorf("there is no %s tunnel to %s", kind, tunnel)
		}
	}
	if in == nil {
		return Start{}, fmt.Errorf("it is not known behind which tunnel %s is: name the other host with --from-tunnel", from)
	}
	return Start{
		Bridge: in.Bridge, Flow: fmt.Sprintf("in_port=%d,tun_id=%d", in.OFPort, number),
		Text: fmt.Sprintf("from %s by the %s tunnel to %s, number %d", from, kind, in.Remote, number),
	}, nil
}

// fromWire is where packets of a physical network come in.
func (h *Host) fromWire(kind, physical string, vlan int) (Start, error) {
	bridge := ""
	for _, b := range h.Bridges {
		if b.Physical == physical {
			bridge = b.Name
		}
	}
	for _, i := range h.Interfaces {
		// Without an agent: a bridge with a patch to the integration bridge.
		if p := h.named(i.Peer); bridge == "" && i.Type == "patch" && i.Bridge == h.bridgeOf(tables.Integration) && p != nil &&
			h.kindOf(p.Bridge) == tables.Physical {
			bridge = p.Bridge
		}
	}
	for _, i := range h.Interfaces {
		if i.Bridge != bridge || i.Type == "patch" || i.Type == "internal" || i.OFPort <= 0 {
			continue
		}
		s := Start{
			Bridge: bridge, Flow: fmt.Sprintf("in_port=%d", i.OFPort),
			Text: fmt.Sprintf("from the wire, interface %s of %s", i.Name, bridge),
		}
		if kind == "vlan" {
			s.Flow += fmt.Sprintf(",dl_vlan=%d", vlan)
			s.Text += fmt.Sprintf(", VLAN %d", vlan)
		}
		return s, nil
	}
	return Start{}, fmt.Errorf("no interface leads from a bridge to physical network %s", physical)
}

// segment is that of an end's network, by the agent or by what one has written down.
func (h *Host) segment(e *End) (kind, physical string, number int) {
	if n := h.network(e.network()); n != nil {
		return n.Type, n.Physical, n.Number
	}
	if e.Plug != nil {
		return e.Plug.NetworkType, e.Plug.Physical, e.Plug.Segment
	}
	return "", "", 0
}
