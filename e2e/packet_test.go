// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// IP protocols.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoGRE    = 47
	protoESP    = 50
	protoICMPv6 = 58
	protoSCTP   = 132
)

const (
	typeIPv4 = 0x0800
	typeVLAN = 0x8100
)

// header is what an IP packet says about itself, without its payload.
type header struct {
	ethFrom, ethTo string
	from, to       string // addresses of one version
	proto          uint8
	hops           uint8
}

// packet makes a whole IP packet with right checksums, in an Ethernet frame. The token is expected to be in the payload.
func packet(h header, payload []byte) []byte {
	kind, ip := ipPacket(h, payload)
	f := append(append([]byte{}, hw(h.ethTo)...), hw(h.ethFrom)...)
	return append(binary.BigEndian.AppendUint16(f, kind), ip...)
}

func ipPacket(h header, payload []byte) (kind uint16, ip []byte) {
	src, dst := netip.MustParseAddr(h.from), netip.MustParseAddr(h.to)
	payload = summed(h.proto, src, dst, payload)
	hops := h.hops
	if hops == 0 {
		hops = 64
	}
	if src.Is4() {
		ip = binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(20+len(payload)))
		ip = append(ip, 0, 0, 0x40, 0, hops, h.proto, 0, 0)
		ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		return typeIPv4, append(ip, payload...)
	}
	ip = binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(payload)))
	ip = append(ip, h.proto, hops)
	ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
	return typeIPv6, append(ip, payload...)
}

// sumAt is where the checksum is in payloads of a protocol.
func sumAt(proto uint8) (at int, ok bool) {
	at, ok = map[uint8]int{protoTCP: 16, protoUDP: 6, protoICMP: 2, protoICMPv6: 2}[proto]
	return at, ok
}

// unsummed clears the checksum of a payload.
func unsummed(proto uint8, payload []byte) []byte {
	if proto == protoSCTP {
		clear(payload[8:12])
	} else if at, ok := sumAt(proto); ok {
		clear(payload[at : at+2])
	}
	return payload
}

// summed fills in the checksum of a payload of even length.
func summed(proto uint8, src, dst netip.Addr, payload []byte) []byte {
	if proto == protoSCTP {
		binary.LittleEndian.PutUint32(payload[8:], crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli)))
		return payload
	}
	place, ok := sumAt(proto)
	if !ok {
		return payload
	}
	var pseudo []byte
	if proto != protoICMP {
		pseudo = append(append(pseudo, src.AsSlice()...), dst.AsSlice()...)
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(payload)))
		pseudo = append(pseudo, 0, 0, 0, proto)
	}
	binary.BigEndian.PutUint16(payload[place:], checksum(append(pseudo, payload...)))
	return payload
}

// tagged puts a frame into a VLAN.
func tagged(frame []byte, vlan uint16) []byte {
	f := append([]byte{}, frame[:12]...)
	f = binary.BigEndian.AppendUint16(f, typeVLAN)
	f = binary.BigEndian.AppendUint16(f, vlan)
	return append(f, frame[12:]...)
}

// conn is a conversation between two VMs, made of frames: nobody's kernel has a part in it.
type conn struct {
	from, to *vm
	version  int
	proto    uint8
	// port is the responder's, own the initiator's; own is also the identifier of ICMP requests.
	port, own uint16
	kind      uint8 // of ICMP
	code      uint8
}

// TCP sequence numbers and SCTP tags at which both ends start.
const (
	seqFrom = 0x10000000
	seqTo   = 0x20000000
)

// TCP flags.
const (
	flagSYN = 0x02
	flagPSH = 0x08
	flagACK = 0x10
)

// tokenLen is the length of a token in a payload.
const tokenLen = 16

func (c conn) address(v *vm) string {
	if c.version == 4 {
		return v.v4
	}
	return v.v6
}

func (c conn) header(back bool) header {
	from, to := c.from, c.to
	if back {
		from, to = to, from
	}
	return header{ethFrom: from.MAC, ethTo: to.MAC, from: c.address(from), to: c.address(to), proto: c.proto}
}

// first is the packet that opens the conversation.
func (c conn) first(k token) []byte {
	switch c.proto {
	case protoTCP:
		return packet(c.header(false), segment(c.own, c.port, seqFrom, 0, flagSYN, k))
	case protoSCTP:
		return packet(c.header(false), sctp(c.own, c.port, 0, initChunk(1, seqFrom, k)))
	}
	return c.more(k)
}

// reply is the first answer.
func (c conn) reply(k token) []byte {
	switch c.proto {
	case protoTCP:
		return packet(c.header(true), segment(c.port, c.own, seqTo, seqFrom+1+tokenLen, flagSYN|flagACK, k))
	case protoSCTP:
		return packet(c.header(true), sctp(c.port, c.own, seqFrom, initChunk(2, seqTo, k)))
	}
	return c.again(k)
}

// more is any further packet of the initiator.
func (c conn) more(k token) []byte {
	h := c.header(false)
	switch c.proto {
	case protoTCP:
		return packet(h, segment(c.own, c.port, seqFrom+1+tokenLen, seqTo+1+tokenLen, flagPSH|flagACK, k))
	case protoUDP:
		return packet(h, datagram(c.own, c.port, k.bytes()))
	case protoSCTP:
		const cookieEcho = 10
		return packet(h, sctp(c.own, c.port, seqTo, chunk(cookieEcho, k.bytes())))
	case protoICMP, protoICMPv6:
		return packet(h, icmp(c.kind, c.code, uint32(c.own)<<16|1, k.bytes()))
	}
	return packet(h, append([]byte{0, 0, 0x88, 0xb5}, k.bytes()...))
}

// again is any further answer.
func (c conn) again(k token) []byte {
	h := c.header(true)
	switch c.proto {
	case protoTCP:
		return packet(h, segment(c.port, c.own, seqTo+1+tokenLen, seqFrom+1+2*tokenLen, flagPSH|flagACK, k))
	case protoUDP:
		return packet(h, datagram(c.port, c.own, k.bytes()))
	case protoSCTP:
		return packet(h, sctp(c.port, c.own, seqFrom, dataChunk(k)))
	case protoICMP, protoICMPv6:
		answers := map[uint8]uint8{8: 0, 13: 14, 128: 129}
		return packet(h, icmp(answers[c.kind], c.code, uint32(c.own)<<16|1, k.bytes()))
	}
	return packet(h, append([]byte{0, 0, 0x88, 0xb5}, k.bytes()...))
}

// unreachable is what the responder says about the first packet when it does not like it. The packet is quoted, as far as
// it fits; the token comes after the quotation.
func (c conn) unreachable(k token) []byte {
	quoted := c.first(k)[14:]
	h := c.header(true)
	if c.version == 4 {
		h.proto = protoICMP
		return packet(h, icmp(3, 3, 0, quoted))
	}
	h.proto = protoICMPv6
	return packet(h, icmp(1, 4, 0, quoted))
}

func segment(from, to uint16, seq, ack uint32, flags byte, k token) []byte {
	p := binary.BigEndian.AppendUint16(nil, from)
	p = binary.BigEndian.AppendUint16(p, to)
	p = binary.BigEndian.AppendUint32(p, seq)
	p = binary.BigEndian.AppendUint32(p, ack)
	p = append(p, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	return append(p, k.bytes()...)
}

func datagram(from, to uint16, payload []byte) []byte {
	p := binary.BigEndian.AppendUint16(nil, from)
	p = binary.BigEndian.AppendUint16(p, to)
	p = binary.BigEndian.AppendUint16(p, uint16(8+len(payload)))
	return append(append(p, 0, 0), payload...)
}

func icmp(kind, code uint8, rest uint32, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind, code, 0, 0}, rest), payload...)
}

func sctp(from, to uint16, tag uint32, body []byte) []byte {
	p := binary.BigEndian.AppendUint16(nil, from)
	p = binary.BigEndian.AppendUint16(p, to)
	p = binary.BigEndian.AppendUint32(p, tag)
	return append(append(p, 0, 0, 0, 0), body...)
}

func chunk(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{kind, 0}, uint16(4+len(body))), body...)
}

// initChunk opens an association, or answers that. The token is in a parameter that whoever does not know it skips.
func initChunk(kind byte, tag uint32, k token) []byte {
	b := binary.BigEndian.AppendUint32(nil, tag)
	b = append(b, 0, 1, 0, 0, 0, 1, 0, 1)     // window, streams
	b = binary.BigEndian.AppendUint32(b, tag) // first number
	b = append(b, 0x80, 0xff, 0, 4+tokenLen)
	return chunk(kind, append(b, k.bytes()...))
}

func dataChunk(k token) []byte {
	const whole = 3 // first and last fragment
	c := chunk(0, append(make([]byte, 12), k.bytes()...))
	c[1] = whole
	return c
}

// dhcpAnswer is a packet from the port of a DHCP server to that of a client.
func dhcpAnswer(from, to *vm, version int, k token) []byte {
	return dhcp(from, to, version, map[int]uint16{4: 67, 6: 547}[version], map[int]uint16{4: 68, 6: 546}[version], k)
}

// dhcpQuestion is a packet the other way.
func dhcpQuestion(from, to *vm, version int, k token) []byte {
	return dhcp(from, to, version, map[int]uint16{4: 68, 6: 546}[version], map[int]uint16{4: 67, 6: 547}[version], k)
}

func dhcp(from, to *vm, version int, source, target uint16, k token) []byte {
	h := header{ethFrom: from.MAC, ethTo: to.MAC, from: from.v4, to: to.v4, proto: protoUDP}
	if version == 6 {
		h.from, h.to = from.linkLocal(), to.linkLocal()
	}
	return packet(h, datagram(source, target, k.bytes()))
}

// routerAdvertisement says that the sender is a router.
func routerAdvertisement(from, to *vm, k token) []byte {
	h := header{ethFrom: from.MAC, ethTo: to.MAC, from: from.linkLocal(), to: to.linkLocal(), proto: protoICMPv6, hops: 255}
	body := append([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}, option(k)...)
	return packet(h, append([]byte{134, 0, 0, 0}, body...))
}

// neighbour is a neighbour solicitation (135) or advertisement (136) for a target.
func neighbour(kind byte, from, to *vm, target string, k token) []byte {
	h := header{ethFrom: from.MAC, ethTo: to.MAC, from: from.v6, to: to.v6, proto: protoICMPv6, hops: 255}
	body := append(netip.MustParseAddr(target).AsSlice(), option(k)...)
	return packet(h, append([]byte{kind, 0, 0, 0, 0x20, 0, 0, 0}, body...))
}

// option holds a token, under a type that is set aside for experiments.
func option(k token) []byte { return append([]byte{253, 3, 0, 0, 0, 0, 0, 0}, k.bytes()...) }

// retoken gives a finished packet another token, and checksums that fit.
func retoken(frame []byte, old, new token) []byte {
	i := bytes.LastIndex(frame, old.bytes())
	f := bytes.Clone(frame)
	copy(f[i:], new.bytes())
	ip := f[14:]
	if binary.BigEndian.Uint16(f[12:]) == typeIPv4 {
		src, dst := netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		summed(ip[9], src, dst, unsummed(ip[9], ip[20:]))
		return f
	}
	src, dst := netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	summed(ip[6], src, dst, unsummed(ip[6], ip[40:]))
	return f
}
