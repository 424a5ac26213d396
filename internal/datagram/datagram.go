// SPDX-License-Identifier: Apache-2.0

// Package datagram reads and writes the packets that the agent answers by itself: UDP datagrams in Ethernet frames, over IPv4 and IPv6, and the
// neighbour solicitations for an address that the agent answers for.
//
// In: bytes that a guest sent. Out: values, and bytes again. Nothing here decides who is answered; package dhcp and package dnsforward do.
package datagram

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Frame is a UDP datagram in an Ethernet frame.
type Frame struct {
	SrcMAC, DstMAC   neutron.MAC
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Payload          []byte
}

// Numbers of protocols, and lengths of headers in bytes.
const (
	EtherIPv4 = 0x0800
	EtherIPv6 = 0x86dd
	ProtoUDP  = 17
	IPv4Len   = 20 // without options
	IPv6Len   = 40
	UDPLen    = 8

	etherLen = 14
	maxHops  = 255 // TTL and hop limit of answers
)

var errFrame = errors.New("not a whole UDP datagram")

// Read reads an untagged frame. Checksums are not looked at: a guest leaves them to its network card, which there is none of. A fragment
// is refused, and so are headers between IPv6 and UDP, which no client sends.
func Read(b []byte) (f Frame, err error) {
	if len(b) < etherLen {
		return f, errFrame
	}
	f.DstMAC, f.SrcMAC = neutron.MAC(b[0:6]), neutron.MAC(b[6:12])
	ether := binary.BigEndian.Uint16(b[12:])
	b = b[etherLen:]
	switch {
	case ether == EtherIPv4 && len(b) >= IPv4Len && b[0]>>4 == 4:
		header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		fragment := binary.BigEndian.Uint16(b[6:]) & 0x3fff // more fragments, and the offset
		if header < IPv4Len || total < header+UDPLen || total > len(b) || fragment != 0 || b[9] != ProtoUDP {
			return f, errFrame
		}
		f.Src, f.Dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		b = b[header:total]
	case ether == EtherIPv6 && len(b) >= IPv6Len && b[0]>>4 == 6:
		length := int(binary.BigEndian.Uint16(b[4:]))
		if length < UDPLen || IPv6Len+length > len(b) || b[6] != ProtoUDP {
			return f, errFrame
		}
		f.Src, f.Dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		b = b[IPv6Len : IPv6Len+length]
	default:
		return f, errFrame
	}
	f.SrcPort, f.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length < UDPLen || length > len(b) {
		return f, errFrame
	}
	f.Payload = b[UDPLen:length]
	return f, nil
}

// Bytes returns the frame as it is sent.
func (f *Frame) Bytes() []byte {
	b := append(append([]byte(nil), f.DstMAC[:]...), f.SrcMAC[:]...)
	length := UDPLen + len(f.Payload)
	src, dst := f.Src.AsSlice(), f.Dst.AsSlice()
	if f.Src.Is4() {
		b = binary.BigEndian.AppendUint16(b, EtherIPv4)
		at := len(b)
		b = append(b, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(IPv4Len+length))
		b = append(b, 0, 0, 0, 0, maxHops, ProtoUDP, 0, 0)
		b = append(append(b, src...), dst...)
		binary.BigEndian.PutUint16(b[at+10:], ^uint16(Checksum(0, b[at:])))
	} else {
		b = binary.BigEndian.AppendUint16(b, EtherIPv6)
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, ProtoUDP, maxHops)
		b = append(append(b, src...), dst...)
	}
	at := len(b)
	for _, v := range []uint16{f.SrcPort, f.DstPort, uint16(length), 0} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = append(b, f.Payload...)
	sum := ^uint16(Checksum(Checksum(Checksum(ProtoUDP+uint32(length), src), dst), b[at:]))
	if sum == 0 {
		sum = 0xffff // 0 would say that there is none
	}
	binary.BigEndian.PutUint16(b[at+6:], sum)
	return b
}

// Checksum adds bytes to a sum of 16 bits, as the Internet protocols do.
func Checksum(sum uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}
