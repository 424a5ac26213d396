// SPDX-License-Identifier: Apache-2.0

package datagram

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Solicitation asks on a link who has an IPv6 address (RFC 4861).
type Solicitation struct {
	SrcMAC neutron.MAC
	Src    netip.Addr
	Target netip.Addr
}

// Numbers of neighbour discovery.
const (
	ProtoICMPv6  = 58
	NeighbourAsk = 135

	neighbourTell   = 136
	neighbourLen    = 24 // type, code, checksum, flags, target
	targetLinkLayer = 2  // the option
	solicited       = 0x40
	override        = 0x20
)

var errSolicitation = errors.New("not a whole neighbour solicitation")

// ReadSolicitation reads an untagged frame. The hop limit says that the frame comes from the link. A solicitation without a source, by which a
// host finds out whether it may take the address itself, is refused: the address is ours, and who takes it gets no answers.
func ReadSolicitation(b []byte) (s Solicitation, err error) {
	if len(b) < etherLen+IPv6Len+neighbourLen || binary.BigEndian.Uint16(b[12:]) != EtherIPv6 {
		return s, errSolicitation
	}
	s.SrcMAC = neutron.MAC(b[6:12])
	ip := b[etherLen:]
	length, icmp := int(binary.BigEndian.Uint16(ip[4:])), ip[IPv6Len:]
	if ip[0]>>4 != 6 || length < neighbourLen || length > len(icmp) || ip[6] != ProtoICMPv6 || ip[7] != maxHops || icmp[0] != NeighbourAsk || icmp[1] != 0 {
		return s, errSolicitation
	}
	s.Src, s.Target = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(icmp[8:]))
	if s.Src.IsUnspecified() || s.Src.IsMulticast() || s.Target.IsMulticast() {
		return s, errSolicitation
	}
	return s, nil
}

// Answer returns the frame that says which MAC has the address.
func (s *Solicitation) Answer(mac neutron.MAC) []byte {
	icmp := []byte{neighbourTell, 0, 0, 0, solicited | override, 0, 0, 0}
	icmp = append(icmp, s.Target.AsSlice()...)
	icmp = append(append(icmp, targetLinkLayer, 1), mac[:]...)
	src, dst := s.Target.AsSlice(), s.Src.AsSlice()
	sum := Checksum(Checksum(Checksum(ProtoICMPv6+uint32(len(icmp)), src), dst), icmp) //nolint:gosec // 32 bytes
	binary.BigEndian.PutUint16(icmp[2:], ^uint16(sum))                                 //nolint:gosec // a sum of 16 bits
	b := append(append([]byte(nil), s.SrcMAC[:]...), mac[:]...)
	b = binary.BigEndian.AppendUint16(b, EtherIPv6)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(icmp))) //nolint:gosec // 32 bytes
	b = append(b, ProtoICMPv6, maxHops)
	return append(append(append(b, src...), dst...), icmp...)
}
