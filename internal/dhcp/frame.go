// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// frame is a UDP datagram in an Ethernet frame.
type frame struct {
	srcMAC, dstMAC   neutron.MAC
	src, dst         netip.Addr
	srcPort, dstPort uint16
	payload          []byte
}

const (
	etherLen = 14
	ipv4Len  = 20
	ipv6Len  = 40
	udpLen   = 8
	protoUDP = 17
	maxHops  = 255 // TTL and hop limit of answers
)

var errFrame = errors.New("not a whole UDP datagram")

// readFrame reads an untagged frame. Checksums are not looked at: a guest leaves them to its network card, which there is none of. A fragment
// is refused, and so are headers between IPv6 and UDP, which no client sends.
func readFrame(b []byte) (f frame, err error) {
	if len(b) < etherLen {
		return f, errFrame
	}
	f.dstMAC, f.srcMAC = neutron.MAC(b[0:6]), neutron.MAC(b[6:12])
	ether := binary.BigEndian.Uint16(b[12:])
	b = b[etherLen:]
	switch {
	case ether == etherIPv4 && len(b) >= ipv4Len && b[0]>>4 == 4:
		header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		fragment := binary.BigEndian.Uint16(b[6:]) & 0x3fff // more fragments, and the offset
		if header < ipv4Len || total < header+udpLen || total > len(b) || fragment != 0 || b[9] != protoUDP {
			return f, errFrame
		}
		f.src, f.dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		b = b[header:total]
	case ether == etherIPv6 && len(b) >= ipv6Len && b[0]>>4 == 6:
		length := int(binary.BigEndian.Uint16(b[4:]))
		if length < udpLen || ipv6Len+length > len(b) || b[6] != protoUDP {
			return f, errFrame
		}
		f.src, f.dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		b = b[ipv6Len : ipv6Len+length]
	default:
		return f, errFrame
	}
	f.srcPort, f.dstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length < udpLen || length > len(b) {
		return f, errFrame
	}
	f.payload = b[udpLen:length]
	return f, nil
}

// bytes returns the frame as it is sent.
func (f *frame) bytes() []byte {
	b := append(append([]byte(nil), f.dstMAC[:]...), f.srcMAC[:]...)
	length := udpLen + len(f.payload)
	src, dst := f.src.AsSlice(), f.dst.AsSlice()
	if f.src.Is4() {
		b = binary.BigEndian.AppendUint16(b, etherIPv4)
		at := len(b)
		b = append(b, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(ipv4Len+length))
		b = append(b, 0, 0, 0, 0, maxHops, protoUDP, 0, 0)
		b = append(append(b, src...), dst...)
		binary.BigEndian.PutUint16(b[at+10:], ^uint16(checksum(0, b[at:])))
	} else {
		b = binary.BigEndian.AppendUint16(b, etherIPv6)
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, protoUDP, maxHops)
		b = append(append(b, src...), dst...)
	}
	at := len(b)
	for _, v := range []uint16{f.srcPort, f.dstPort, uint16(length), 0} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = append(b, f.payload...)
	sum := ^uint16(checksum(checksum(checksum(protoUDP+uint32(length), src), dst), b[at:]))
	if sum == 0 {
		sum = 0xffff // 0 would say that there is none
	}
	binary.BigEndian.PutUint16(b[at+6:], sum)
	return b
}

// checksum adds bytes to a sum of 16 bits, as the Internet protocols do.
func checksum(sum uint32, b []byte) uint32 {
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
