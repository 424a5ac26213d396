// SPDX-License-Identifier: Apache-2.0

// Package hostile makes the frames that a VM would send which means harm to its neighbours, and judges the frames that come
// out at the other end. A generator makes the same frames from the same seed, so that whatever a run has found can be found again.
//
//	g := hostile.New(seed, cast)
//	f := g.Next()                 // f.Kind says what it is
//	...
//	wrong := rules.Wrong(frame)   // of a frame that somebody received: "" when its sender may send it
package hostile

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Party is somebody who has addresses.
type Party struct {
	MAC    net.HardwareAddr
	V4, V6 netip.Addr
}

// Cast is who there is on the network, and what the sender knows of the host.
type Cast struct {
	Own Party
	// Neighbours are on the network of the sender, Strangers on another tenant's.
	Neighbours, Strangers []Party
	Gateway               Party
	// VLANs are local VLANs of the host, those of other networks among them.
	VLANs []uint16
	// EtherTypes are those that the operator permits.
	EtherTypes []uint16
}

// Frame is a generated frame.
type Frame struct {
	Kind  string
	Bytes []byte
}

// Magic stands before the number of a frame, where it has room for one.
var Magic = []byte("hostile!")

// NumberIn finds the number of the generated frame that these bytes are from.
func NumberIn(frame []byte) (uint64, bool) {
	for i := len(frame) - 16; i >= 0; i-- {
		if string(frame[i:i+8]) == string(Magic) {
			return binary.BigEndian.Uint64(frame[i+8:]), true
		}
	}
	return 0, false
}

// kind is a sort of frames. It may make several that belong together.
type kind struct {
	name string
	make func(g *Generator) [][]byte
}

// Generator makes frames of all kinds.
type Generator struct {
	cast    Cast
	rng     *rand.Rand
	kinds   []kind
	queue   []Frame
	number  uint64
	options gopacket.SerializeOptions
}

// New makes a generator. The same seed and cast make the same frames.
func New(seed uint64, c Cast) *Generator {
	g := &Generator{
		cast: c, rng: rand.New(rand.NewPCG(seed, 0)),
		options: gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
	}
	g.kinds = kinds()
	return g
}

// Kinds are the names of all kinds, in the order in which they are documented.
func Kinds() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// Next makes one more frame. Each kind is as likely as the others.
func (g *Generator) Next() Frame {
	for len(g.queue) == 0 {
		k := g.kinds[g.rng.IntN(len(g.kinds))]
		g.number++
		for _, b := range k.make(g) {
			g.queue = append(g.queue, Frame{k.name, b})
		}
	}
	f := g.queue[0]
	g.queue = g.queue[1:]
	return f
}

// Number is that of the last frame, which a receiver finds in it with NumberIn.
func (g *Generator) Number() uint64 { return g.number }

// token is the number of the frame, often enough to fill so many bytes.
func (g *Generator) token(atLeast int) gopacket.Payload {
	var b []byte
	for len(b) < max(atLeast, 16) {
		b = binary.BigEndian.AppendUint64(append(b, Magic...), g.number)
	}
	return b
}

func (g *Generator) chance(percent int) bool { return g.rng.IntN(100) < percent }

func (g *Generator) uint16() uint16 { return uint16(g.rng.Uint32()) }

func pick[T any](g *Generator, list []T) T { return list[g.rng.IntN(len(list))] }

func (g *Generator) random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.rng.Uint32())
	}
	return b
}

var allOnes = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// sender is the source MAC of a frame: half of them the sender's own, so that the rest of the frame is looked at.
func (g *Generator) sender() net.HardwareAddr {
	if g.chance(50) {
		return g.cast.Own.MAC
	}
	switch g.rng.IntN(6) {
	case 0:
		return pick(g, g.cast.Neighbours).MAC
	case 1:
		return g.cast.Gateway.MAC
	case 2:
		return pick(g, g.cast.Strangers).MAC
	case 3:
		m := g.random(6)
		m[0] &^= 1
		return m
	case 4:
		m := g.random(6)
		m[0] |= 1
		return m
	}
	return pick(g, []net.HardwareAddr{make([]byte, 6), allOnes})
}

// receiver is the destination MAC of a frame.
func (g *Generator) receiver() net.HardwareAddr {
	switch g.rng.IntN(8) {
	case 0, 1, 2:
		return pick(g, g.cast.Neighbours).MAC
	case 3:
		return pick(g, g.cast.Strangers).MAC
	case 4:
		return g.cast.Gateway.MAC
	case 5:
		return append(net.HardwareAddr{0x33, 0x33}, g.random(4)...)
	case 6:
		return append(net.HardwareAddr{0x01, 0x00, 0x5e, byte(g.rng.IntN(128))}, g.random(2)...)
	}
	return allOnes
}

// v4 is an address that the sender has, or says to have.
func (g *Generator) v4() net.IP {
	if g.chance(50) {
		return g.cast.Own.V4.AsSlice()
	}
	switch g.rng.IntN(6) {
	case 0, 1:
		return pick(g, g.cast.Neighbours).V4.AsSlice()
	case 2:
		return g.cast.Gateway.V4.AsSlice()
	case 3:
		return g.random(4)
	case 4:
		return append(net.IP{224, 0, 0}, byte(g.rng.IntN(256)))
	}
	return pick(g, []net.IP{{0, 0, 0, 0}, {255, 255, 255, 255}})
}

func (g *Generator) v6() net.IP {
	if g.chance(50) {
		return pick(g, []netip.Addr{g.cast.Own.V6, LinkLocal(g.cast.Own.MAC)}).AsSlice()
	}
	switch g.rng.IntN(6) {
	case 0:
		return pick(g, g.cast.Neighbours).V6.AsSlice()
	case 1:
		return LinkLocal(pick(g, g.cast.Neighbours).MAC).AsSlice()
	case 2:
		return LinkLocal(g.cast.Gateway.MAC).AsSlice()
	case 3:
		return append(net.IP{0xfd}, g.random(15)...)
	case 4:
		return netip.MustParseAddr("ff02::1").AsSlice()
	}
	return net.IPv6zero
}

// to4 and to6 are where packets go.
func (g *Generator) to4() net.IP {
	return pick(g, []net.IP{pick(g, g.cast.Neighbours).V4.AsSlice(), g.cast.Gateway.V4.AsSlice(), {255, 255, 255, 255}, {224, 0, 0, 1}})
}

func (g *Generator) to6() net.IP {
	return pick(g, []netip.Addr{
		pick(g, g.cast.Neighbours).V6, LinkLocal(pick(g, g.cast.Neighbours).MAC), LinkLocal(g.cast.Gateway.MAC), netip.MustParseAddr("ff02::1"), netip.MustParseAddr("ff02::2"),
	}).AsSlice()
}

// LinkLocal is the IPv6 address that a host makes from its MAC.
func LinkLocal(m net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// serialize puts layers together.
func (g *Generator) serialize(list ...gopacket.SerializableLayer) []byte {
	// Not one buffer for all: layers leave out bytes, which would be those of an earlier frame.
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, g.options, list...); err != nil {
		panic(err) // the layers are this package's own
	}
	return b.Bytes()
}

func (g *Generator) ethernet(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: g.sender(), DstMAC: g.receiver(), EthernetType: t}
}

// ip4 is a header of forged addresses.
func (g *Generator) ip4(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Id: g.uint16(), Protocol: p, SrcIP: g.v4(), DstIP: g.to4()}
}

func (g *Generator) ip6(p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: p, SrcIP: g.v6(), DstIP: g.to6()}
}

// network is an IP header that transport checksums cover.
type network interface {
	gopacket.SerializableLayer
	gopacket.NetworkLayer
}

// transport is what is in a packet of a protocol.
func (g *Generator) transport(p layers.IPProtocol, n network) []gopacket.SerializableLayer {
	switch p {
	case layers.IPProtocolUDP:
		u := &layers.UDP{SrcPort: layers.UDPPort(g.uint16()), DstPort: layers.UDPPort(g.uint16())}
		_ = u.SetNetworkLayerForChecksum(n) // both kinds of header will do
		return []gopacket.SerializableLayer{u, g.token(16)}
	case layers.IPProtocolTCP:
		t := &layers.TCP{SrcPort: layers.TCPPort(g.uint16()), DstPort: layers.TCPPort(g.uint16()), Seq: g.rng.Uint32(), Ack: g.rng.Uint32(), Window: 1000}
		t.SYN, t.ACK, t.RST, t.FIN, t.PSH = g.chance(50), g.chance(40), g.chance(10), g.chance(10), g.chance(20)
		_ = t.SetNetworkLayerForChecksum(n)
		return []gopacket.SerializableLayer{t, g.token(16)}
	case layers.IPProtocolICMPv4:
		return []gopacket.SerializableLayer{&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(pick(g, []uint8{0, 3, 5, 8, 9, 11, 13}), 0), Id: g.uint16()}, g.token(32)}
	case layers.IPProtocolICMPv6:
		return g.icmp6(pick(g, []uint8{128, 129, 1, 2, 133, 134, 135, 136, 137}), n)
	}
	return []gopacket.SerializableLayer{g.token(16)}
}

// icmp6 is a message of a type: those that hosts and routers find each other with have their own fields.
func (g *Generator) icmp6(t uint8, n network) []gopacket.SerializableLayer {
	head := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(t, 0)}
	if g.chance(5) {
		head.TypeCode = layers.CreateICMPv6TypeCode(t, uint8(g.rng.IntN(256)))
	}
	_ = head.SetNetworkLayerForChecksum(n)
	link := layers.ICMPv6Option{Type: layers.ICMPv6OptTargetAddress, Data: g.sender()}
	if t == 133 || t == 134 || t == 135 {
		link.Type = layers.ICMPv6OptSourceAddress
	}
	// An option of a type that is set aside for experiments holds the number.
	options := layers.ICMPv6Options{link, {Type: 253, Data: append(make([]byte, 6), g.token(16)...)}}
	var body gopacket.SerializableLayer
	switch t {
	case 133:
		body = &layers.ICMPv6RouterSolicitation{Options: options}
	case 134:
		body = &layers.ICMPv6RouterAdvertisement{HopLimit: 64, RouterLifetime: 1800, Options: options}
	case 135:
		body = &layers.ICMPv6NeighborSolicitation{TargetAddress: g.v6(), Options: options}
	case 136:
		body = &layers.ICMPv6NeighborAdvertisement{Flags: uint8(g.rng.IntN(8)) << 5, TargetAddress: g.v6(), Options: options}
	case 137:
		body = &layers.ICMPv6Redirect{TargetAddress: g.v6(), DestinationAddress: g.to6(), Options: options}
	case 130, 131, 132:
		return []gopacket.SerializableLayer{head, &layers.MLDv1MulticastListenerQueryMessage{MLDv1Message: layers.MLDv1Message{MulticastAddress: net.ParseIP("ff02::1:3")}}, g.token(16)}
	case 143:
		return []gopacket.SerializableLayer{head, &layers.MLDv2MulticastListenerReportMessage{
			MulticastAddressRecords: []layers.MLDv2MulticastAddressRecord{{RecordType: 4, MulticastAddress: net.ParseIP("ff02::1:3")}},
		}, g.token(16)}
	default:
		return []gopacket.SerializableLayer{head, gopacket.Payload(g.random(4)), g.token(16)}
	}
	return []gopacket.SerializableLayer{head, body}
}
