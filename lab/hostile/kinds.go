// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/binary"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// typeRARP, typeQinQ and typeOldQinQ are Ethernet types that the library has no names for, or others.
const (
	typeRARP    = 0x8035
	typeQinQ    = 0x88a8
	typeOldQinQ = 0x9100
)

// kinds lists all.
func kinds() []kind {
	var list []kind
	add := func(name string, make func(g *Generator) []byte) {
		list = append(list, kind{name, func(g *Generator) [][]byte { return [][]byte{make(g)} }})
	}
	add("Ethernet of a random type", func(g *Generator) []byte {
		return g.serialize(g.ethernet(layers.EthernetType(0x600+g.rng.IntN(0xfa00))), gopacket.Payload(g.random(30)), g.token(16))
	})
	add("Ethernet of a permitted type", func(g *Generator) []byte {
		t := uint16(0x88b5)
		if len(g.cast.EtherTypes) > 0 {
			t = pick(g, g.cast.EtherTypes)
		}
		return g.serialize(g.ethernet(layers.EthernetType(t)), gopacket.Payload(g.random(30)), g.token(16))
	})
	add("LLC", func(g *Generator) []byte {
		return g.serialize(&layers.Ethernet{SrcMAC: g.sender(), DstMAC: g.receiver(), EthernetType: layers.EthernetTypeLLC, Length: 40},
			&layers.LLC{DSAP: 0x42, SSAP: 0x42, Control: 3}, gopacket.Payload(g.random(20)), g.token(16))
	})
	add("SNAP", snap)
	add("ARP request", func(g *Generator) []byte { return g.arp(layers.EthernetTypeARP, 1) })
	add("ARP reply", func(g *Generator) []byte { return g.arp(layers.EthernetTypeARP, 2) })
	add("gratuitous ARP", func(g *Generator) []byte {
		mac, ip := g.sender(), g.v4()
		return append(g.serialize(&layers.Ethernet{SrcMAC: mac, DstMAC: allOnes, EthernetType: layers.EthernetTypeARP}, &layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: uint16(1 + g.rng.IntN(2)),
			SourceHwAddress: mac, SourceProtAddress: ip, DstHwAddress: mac, DstProtAddress: ip,
		}), g.token(16)...)
	})
	add("RARP", func(g *Generator) []byte { return g.arp(typeRARP, uint16(3+g.rng.IntN(2))) })
	add("ARP with lengths that lie", func(g *Generator) []byte {
		f := g.arp(layers.EthernetTypeARP, uint16(g.rng.IntN(10)))
		f[14+pick(g, []int{0, 1, 2, 3, 4, 5})] = byte(g.rng.Uint32())
		return f
	})
	for _, t := range []uint8{133, 134, 135, 136, 137, 130, 131, 132, 143} {
		add(fmt.Sprintf("ICMPv6 type %d", t), func(g *Generator) []byte {
			ip := g.ip6(layers.IPProtocolICMPv6)
			return g.serialize(append([]gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv6), ip}, g.icmp6(t, ip)...)...)
		})
	}
	add("DHCP from a client", func(g *Generator) []byte { return g.dhcp4(68, 67) })
	add("DHCP from a server", func(g *Generator) []byte { return g.dhcp4(67, 68) })
	add("DHCPv6 from a client", func(g *Generator) []byte { return g.dhcp6(546, 547) })
	add("DHCPv6 from a server", func(g *Generator) []byte { return g.dhcp6(547, 546) })
	for _, p := range []layers.IPProtocol{layers.IPProtocolUDP, layers.IPProtocolTCP, layers.IPProtocolICMPv4, layers.IPProtocolSCTP} {
		add("IPv4 "+p.String(), func(g *Generator) []byte { return g.packet4(p) })
	}
	add("IPv4 with options", func(g *Generator) []byte {
		ip := g.ip4(layers.IPProtocolUDP)
		ip.Options = []layers.IPv4Option{{OptionType: pick(g, []uint8{7, 68, 131, 137, 148}), OptionLength: 4, OptionData: g.random(2)}}
		return g.serialize(append([]gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv4), ip}, g.transport(layers.IPProtocolUDP, ip)...)...)
	})
	for _, p := range []layers.IPProtocol{layers.IPProtocolUDP, layers.IPProtocolTCP, layers.IPProtocolICMPv6} {
		add("IPv6 "+p.String(), func(g *Generator) []byte { return g.packet6(p) })
	}
	list = append(list, fragmented()...)
	list = append(list, kind{"DHCP from a server, in fragments", func(g *Generator) [][]byte { return g.cut4(g.dhcp4(67, 68)) }},
		kind{"DHCPv6 from a server, in fragments", func(g *Generator) [][]byte { return g.cut6(g.dhcp6(547, 546)) }},
		// Trackers of connections take no fragments that are smaller than real ones.
		kind{"DHCP from a server, in large fragments", func(g *Generator) [][]byte { return g.cut4(g.dhcp4(67, 68, g.token(1200))) }},
		kind{"DHCPv6 from a server, in large fragments", func(g *Generator) [][]byte { return g.cut6(g.dhcp6(547, 546, g.token(1450))) }},
		kind{"IPv4 UDP, in large fragments", func(g *Generator) [][]byte {
			ip := g.ip4(layers.IPProtocolUDP)
			return g.cut4(g.serialize(append([]gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv4), ip}, append(g.transport(layers.IPProtocolUDP, ip), g.token(1450))...)...))
		}},
		kind{"IPv6 UDP, in large fragments", func(g *Generator) [][]byte {
			ip := g.ip6(layers.IPProtocolUDP)
			return g.cut6(g.serialize(append([]gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv6), ip}, append(g.transport(layers.IPProtocolUDP, ip), g.token(1450))...)...))
		}})
	for _, x := range []struct {
		name   string
		chains [][]uint8
	}{
		{"hop-by-hop options", [][]uint8{{0}}}, {"routing header", [][]uint8{{43}}}, {"destination options", [][]uint8{{60}}},
		{"authentication header", [][]uint8{{51}}}, {"atomic fragment", [][]uint8{{44}}},
		{"chain of extension headers", [][]uint8{{0, 43, 60}, {60, 60, 60, 60}, {0, 60, 44, 60}, {43, 51, 60}, {60, 0}, {44, 44}, {59, 60}}},
	} {
		add("IPv6 "+x.name, func(g *Generator) []byte { return g.extended(pick(g, x.chains)) })
	}
	return append(list, wrapped()...)
}

func snap(g *Generator) []byte {
	inner := pick(g, []layers.EthernetType{layers.EthernetTypeARP, layers.EthernetTypeIPv4, layers.EthernetTypeIPv6})
	var whole []byte
	switch inner {
	case layers.EthernetTypeARP:
		whole = g.arp(inner, 2)
	case layers.EthernetTypeIPv4:
		whole = g.packet4(layers.IPProtocolUDP)
	default:
		whole = g.packet6(layers.IPProtocolICMPv6)
	}
	return g.serialize(&layers.Ethernet{SrcMAC: whole[6:12], DstMAC: whole[:6], EthernetType: layers.EthernetTypeLLC, Length: uint16(len(whole) - 14 + 8)},
		&layers.LLC{DSAP: 0xaa, SSAP: 0xaa, Control: 3}, &layers.SNAP{OrganizationalCode: []byte{0, 0, 0}, Type: inner}, gopacket.Payload(whole[14:]))
}

// arp is an ARP or RARP frame of forged fields, with the number behind it as padding.
func (g *Generator) arp(t layers.EthernetType, op uint16) []byte {
	return append(g.serialize(g.ethernet(t), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
		SourceHwAddress: g.sender(), SourceProtAddress: g.v4(), DstHwAddress: g.receiver(), DstProtAddress: g.to4(),
	}), g.token(16)...)
}

func (g *Generator) packet4(p layers.IPProtocol) []byte {
	ip := g.ip4(p)
	return g.serialize(append([]gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv4), ip}, g.transport(p, ip)...)...)
}

func (g *Generator) packet6(p layers.IPProtocol) []byte {
	ip := g.ip6(p)
	return g.serialize(append([]gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv6), ip}, g.transport(p, ip)...)...)
}

func (g *Generator) dhcp4(from, to uint16, more ...gopacket.SerializableLayer) []byte {
	ip := g.ip4(layers.IPProtocolUDP)
	udp := &layers.UDP{SrcPort: layers.UDPPort(from), DstPort: layers.UDPPort(to)}
	_ = udp.SetNetworkLayerForChecksum(ip)
	op, t := layers.DHCPOpRequest, pick(g, []layers.DHCPMsgType{layers.DHCPMsgTypeDiscover, layers.DHCPMsgTypeRequest, layers.DHCPMsgTypeRelease})
	if from == 67 {
		op, t = layers.DHCPOpReply, pick(g, []layers.DHCPMsgType{layers.DHCPMsgTypeOffer, layers.DHCPMsgTypeAck, layers.DHCPMsgTypeNak})
	}
	return g.serialize(append([]gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv4), ip, udp, &layers.DHCPv4{
		Operation: op, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, Xid: g.rng.Uint32(), ClientHWAddr: g.sender(), YourClientIP: g.v4(),
		Options: layers.DHCPOptions{layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(t)}), layers.NewDHCPOption(224, g.token(16))},
	}}, more...)...)
}

func (g *Generator) dhcp6(from, to uint16, more ...gopacket.SerializableLayer) []byte {
	ip := g.ip6(layers.IPProtocolUDP)
	udp := &layers.UDP{SrcPort: layers.UDPPort(from), DstPort: layers.UDPPort(to)}
	_ = udp.SetNetworkLayerForChecksum(ip)
	t := layers.DHCPv6MsgTypeSolicit
	if from == 547 {
		t = layers.DHCPv6MsgTypeAdvertise
	}
	return g.serialize(append([]gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv6), ip, udp, &layers.DHCPv6{
		MsgType: t, TransactionID: g.random(3), Options: layers.DHCPv6Options{layers.NewDHCPv6Option(250, g.token(16))},
	}}, more...)...)
}

// fragmented are packets in pieces.
func fragmented() []kind {
	cuts := []struct {
		name   string
		pieces func(g *Generator) [][2]int // from and to, within 104 bytes
	}{
		{"whole", func(*Generator) [][2]int { return [][2]int{{0, 40}, {40, 72}, {72, 104}} }},
		{"first alone", func(*Generator) [][2]int { return [][2]int{{0, 48}} }},
		{"later alone", func(g *Generator) [][2]int { n := 8 * (1 + g.rng.IntN(8)); return [][2]int{{n, n + 32}} }},
		{"overlapping", func(*Generator) [][2]int { return [][2]int{{0, 48}, {8, 56}, {24, 104}} }},
		{"tiny", func(*Generator) [][2]int { return [][2]int{{0, 8}, {8, 104}} }},
	}
	var list []kind
	for _, c := range cuts {
		list = append(list,
			kind{"IPv4 fragments, " + c.name, func(g *Generator) [][]byte { return g.fragments4(c.pieces(g)) }},
			kind{"IPv6 fragments, " + c.name, func(g *Generator) [][]byte { return g.fragments6(c.pieces(g)) }})
	}
	return list
}

// body is 104 bytes of a protocol, full of the frame's number.
func (g *Generator) body(p layers.IPProtocol, n network) []byte {
	b := g.serialize(g.transport(p, n)...)
	return append(b, g.token(104)...)[:104]
}

func (g *Generator) fragments4(pieces [][2]int) [][]byte {
	p := pick(g, []layers.IPProtocol{layers.IPProtocolUDP, layers.IPProtocolTCP, layers.IPProtocolICMPv4})
	eth, ip := g.ethernet(layers.EthernetTypeIPv4), g.ip4(p)
	body := g.body(p, ip)
	var out [][]byte
	for _, c := range pieces {
		ip.FragOffset, ip.Flags = uint16(c[0]/8), 0
		if c[1] < len(body) {
			ip.Flags = layers.IPv4MoreFragments
		}
		out = append(out, g.serialize(eth, ip, gopacket.Payload(body[c[0]:c[1]])))
	}
	return out
}

func (g *Generator) fragments6(pieces [][2]int) [][]byte {
	p := pick(g, []layers.IPProtocol{layers.IPProtocolUDP, layers.IPProtocolTCP, layers.IPProtocolICMPv6})
	eth, ip := g.ethernet(layers.EthernetTypeIPv6), g.ip6(p)
	body := g.body(p, ip)
	ip.NextHeader = layers.IPProtocolIPv6Fragment
	id := g.rng.Uint32()
	next := p
	if g.chance(30) { // the protocol is not to be seen before the second piece
		body = append(g.serialize(g.option(p)), body...)[:104]
		next = layers.IPProtocolIPv6Destination
	}
	var out [][]byte
	for _, c := range pieces {
		out = append(out, g.serialize(eth, ip, &layers.IPv6Fragment{
			NextHeader: next, FragmentOffset: uint16(c[0] / 8), MoreFragments: c[1] < len(body), Identification: id,
		}, gopacket.Payload(body[c[0]:c[1]])))
	}
	return out
}

// cut4 makes two fragments of a whole packet.
func (g *Generator) cut4(frame []byte) [][]byte {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	eth, _ := p.LinkLayer().(*layers.Ethernet)
	ip, _ := p.NetworkLayer().(*layers.IPv4)
	body, at := ip.Payload, piece(ip.Payload)
	ip.Flags = layers.IPv4MoreFragments
	first := g.serialize(eth, ip, gopacket.Payload(body[:at]))
	ip.Flags, ip.FragOffset = 0, uint16(at/8)
	return [][]byte{first, g.serialize(eth, ip, gopacket.Payload(body[at:]))}
}

// piece is how long the first of two fragments is.
func piece(body []byte) int {
	if len(body) > 1296 {
		return 1288
	}
	return len(body) / 2 &^ 7
}

func (g *Generator) cut6(frame []byte) [][]byte {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	eth, _ := p.LinkLayer().(*layers.Ethernet)
	ip, _ := p.NetworkLayer().(*layers.IPv6)
	body, at := ip.Payload, piece(ip.Payload)
	f := &layers.IPv6Fragment{NextHeader: ip.NextHeader, MoreFragments: true, Identification: g.rng.Uint32()}
	ip.NextHeader = layers.IPProtocolIPv6Fragment
	first := g.serialize(eth, ip, f, gopacket.Payload(body[:at]))
	f.MoreFragments, f.FragmentOffset = false, uint16(at/8)
	return [][]byte{first, g.serialize(eth, ip, f, gopacket.Payload(body[at:]))}
}

// option is a header of eight bytes of destination options.
func (g *Generator) option(next layers.IPProtocol) *layers.IPv6Destination {
	d := &layers.IPv6Destination{Options: []*layers.IPv6DestinationOption{{OptionType: 1, OptionData: make([]byte, 4)}}}
	d.NextHeader = next
	return d
}

// extended is a packet with extension headers, by their numbers.
func (g *Generator) extended(chain []uint8) []byte {
	p := pick(g, []layers.IPProtocol{layers.IPProtocolUDP, layers.IPProtocolTCP, layers.IPProtocolICMPv6})
	ip := g.ip6(p)
	inner := g.transport(p, ip)
	ip.NextHeader = layers.IPProtocol(chain[0])
	list := []gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv6), ip}
	for i, number := range chain {
		next := p
		if i+1 < len(chain) {
			next = layers.IPProtocol(chain[i+1])
		}
		switch number {
		case 0:
			h := &layers.IPv6HopByHop{Options: []*layers.IPv6HopByHopOption{{OptionType: 1, OptionData: make([]byte, 4)}}}
			h.NextHeader = next
			list = append(list, h)
		case 60:
			list = append(list, g.option(next))
		case 44:
			list = append(list, &layers.IPv6Fragment{NextHeader: next, Identification: g.rng.Uint32()})
		case 43: // the library reads these two, and does not write them
			list = append(list, gopacket.Payload(append([]byte{byte(next), 2, pick(g, []byte{0, 2, 4}), 1, 0, 0, 0, 0}, g.v6()...)))
		case 51:
			list = append(list, gopacket.Payload(append([]byte{byte(next), 4, 0, 0}, g.random(20)...)))
		default:
			list = append(list, gopacket.Payload([]byte{byte(next), 0, 0, 0, 0, 0, 0, 0}))
		}
	}
	return g.serialize(append(list, inner...)...)
}

// plain is any frame that is neither in a VLAN nor damaged.
func (g *Generator) plain() []byte {
	switch g.rng.IntN(6) {
	case 0:
		return g.arp(layers.EthernetTypeARP, uint16(1+g.rng.IntN(2)))
	case 1:
		return g.packet4(pick(g, []layers.IPProtocol{layers.IPProtocolUDP, layers.IPProtocolTCP, layers.IPProtocolICMPv4}))
	case 2:
		return g.packet6(pick(g, []layers.IPProtocol{layers.IPProtocolUDP, layers.IPProtocolTCP}))
	case 3:
		return g.packet6(layers.IPProtocolICMPv6)
	case 4:
		return g.dhcp4(67, 68)
	}
	return g.extended([]uint8{60})
}

// tag puts a frame into a VLAN, by a header of some type.
func tag(frame []byte, t, tci uint16) []byte {
	f := append([]byte{}, frame[:12]...)
	f = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(f, t), tci)
	return append(f, frame[12:]...)
}

// wrapped are frames in VLANs, and frames that lie about their lengths.
func wrapped() []kind {
	var list []kind
	add := func(name string, change func(g *Generator, f []byte) []byte) {
		list = append(list, kind{name, func(g *Generator) [][]byte { return [][]byte{change(g, g.plain())} }})
	}
	priority := func(g *Generator) uint16 { return uint16(g.rng.IntN(8)) << 13 }
	vlan := func(g *Generator) uint16 {
		if len(g.cast.VLANs) > 0 && g.chance(60) {
			return pick(g, g.cast.VLANs) | priority(g)
		}
		return g.uint16()
	}
	const c = uint16(layers.EthernetTypeDot1Q)
	add("VLAN tag", func(g *Generator, f []byte) []byte { return tag(f, c, vlan(g)) })
	add("VLAN tag of 0", func(g *Generator, f []byte) []byte { return tag(f, c, priority(g)) })
	add("VLAN tag of 4095", func(g *Generator, f []byte) []byte { return tag(f, c, 4095|priority(g)) })
	add("VLAN tag of type 0x88a8", func(g *Generator, f []byte) []byte { return tag(f, typeQinQ, vlan(g)) })
	add("VLAN tag of type 0x9100", func(g *Generator, f []byte) []byte { return tag(f, typeOldQinQ, vlan(g)) })
	add("two VLAN tags", func(g *Generator, f []byte) []byte {
		return tag(tag(f, c, vlan(g)), pick(g, []uint16{c, typeQinQ, typeOldQinQ}), vlan(g))
	})
	add("a tag behind a tag of 0", func(g *Generator, f []byte) []byte { return tag(tag(f, c, vlan(g)), c, priority(g)) })
	add("several tags of 0", func(g *Generator, f []byte) []byte {
		for range 2 + g.rng.IntN(3) {
			f = tag(f, pick(g, []uint16{c, c, typeQinQ}), priority(g))
		}
		return f
	})
	add("truncated frame", func(g *Generator, f []byte) []byte { return f[:14+g.rng.IntN(len(f)-14)] })
	add("padded frame", func(g *Generator, f []byte) []byte { return append(f, g.random(g.rng.IntN(200))...) })
	lie := func(name string, make func(g *Generator) []byte, at, width int) {
		list = append(list, kind{name, func(g *Generator) [][]byte {
			f := make(g)
			copy(f[14+at:], g.random(width))
			return [][]byte{f}
		}})
	}
	udp4 := func(g *Generator) []byte { return g.packet4(layers.IPProtocolUDP) }
	udp6 := func(g *Generator) []byte { return g.packet6(layers.IPProtocolUDP) }
	advert := func(g *Generator) []byte {
		ip := g.ip6(layers.IPProtocolICMPv6)
		return g.serialize(append([]gopacket.SerializableLayer{g.ethernet(layers.EthernetTypeIPv6), ip}, g.icmp6(136, ip)...)...)
	}
	lie("IPv4 that lies about its header", udp4, 0, 1)
	lie("IPv4 that lies about its length", udp4, 2, 2)
	lie("IPv4 that lies about its protocol", udp4, 9, 1)
	lie("IPv4, UDP that lies about its length", udp4, 24, 2)
	lie("IPv6 that lies about its version", udp6, 0, 1)
	lie("IPv6 that lies about its length", udp6, 4, 2)
	lie("IPv6 that lies about its next header", udp6, 6, 1)
	lie("IPv6, UDP that lies about its length", udp6, 44, 2)
	lie("advertisement that lies about its length", advert, 4, 2)
	lie("advertisement whose option lies about its length", advert, 65, 1)
	lie("advertisement of another type", advert, 40, 1)
	lie("extension header that lies about its length", func(g *Generator) []byte { return g.extended([]uint8{pick(g, []uint8{0, 60, 43, 51})}) }, 41, 1)
	return list
}
