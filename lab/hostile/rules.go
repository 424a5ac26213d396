// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Rules are what a sender may say about itself.
type Rules struct {
	MACs []net.HardwareAddr
	IPs  []netip.Prefix
	// Filtered: the sender's host checks IP addresses and who acts as a server or a router. Without the firewall it checks MACs,
	// and the addresses of ARP and of neighbour advertisements.
	Filtered bool
}

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherIPv6 = 0x86dd
)

// Wrong says what a frame tells that its sender may not; it is empty when the frame is in order. Tags of VLAN 0 are looked through,
// because receivers do so too. What is behind the tag of another VLAN is the concern of whoever uses VLANs inside the network.
func (r Rules) Wrong(f []byte) string {
	if len(f) < 14 {
		return fmt.Sprintf("%d bytes are no frame", len(f))
	}
	if from := net.HardwareAddr(f[6:12]); !slices.ContainsFunc(r.MACs, func(m net.HardwareAddr) bool { return string(m) == string(from) }) {
		return "source MAC " + from.String()
	}
	kind, rest := binary.BigEndian.Uint16(f[12:]), f[14:]
	for kind == etherVLAN || kind == typeQinQ || kind == typeOldQinQ {
		if len(rest) < 4 || binary.BigEndian.Uint16(rest)&0xfff != 0 {
			return ""
		}
		kind, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	if kind < 0x600 && len(rest) >= 8 && string(rest[:6]) == "\xaa\xaa\x03\x00\x00\x00" {
		kind, rest = binary.BigEndian.Uint16(rest[6:]), rest[8:]
	}
	switch kind {
	case etherARP:
		return r.arp(rest)
	case etherIPv4:
		return r.ip4(rest)
	case etherIPv6:
		return r.ip6(rest)
	}
	return ""
}

func (r Rules) owns(a netip.Addr) bool {
	return slices.ContainsFunc(r.IPs, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (r Rules) arp(b []byte) string {
	if len(b) < 28 || binary.BigEndian.Uint16(b[2:]) != etherIPv4 || b[4] != 6 || b[5] != 4 {
		return "" // no receiver takes it for an answer about an IPv4 address
	}
	if a := netip.AddrFrom4([4]byte(b[14:18])); !r.owns(a) {
		return "ARP sender " + a.String()
	}
	return ""
}

func (r Rules) ip4(b []byte) string {
	if !r.Filtered {
		return ""
	}
	if len(b) < 20 {
		return fmt.Sprintf("%d bytes are no IPv4 header", len(b))
	}
	header := int(b[0]&0xf) * 4
	var from, to uint16
	if later := binary.BigEndian.Uint16(b[6:])&0x1fff != 0; !later && b[9] == 17 && header >= 20 && len(b) >= header+4 {
		from, to = binary.BigEndian.Uint16(b[header:]), binary.BigEndian.Uint16(b[header+2:])
	}
	if from == 67 && to == 68 {
		return "answer of a DHCP server"
	}
	a := netip.AddrFrom4([4]byte(b[12:16]))
	if a.IsUnspecified() && from == 68 && to == 67 {
		return ""
	}
	if !r.owns(a) {
		return "IPv4 source " + a.String()
	}
	return ""
}

func (r Rules) ip6(b []byte) string {
	if len(b) < 40 {
		if r.Filtered {
			return fmt.Sprintf("%d bytes are no IPv6 header", len(b))
		}
		return ""
	}
	if a := netip.AddrFrom16([16]byte(b[8:24])); r.Filtered && !r.owns(a) {
		return "IPv6 source " + a.String()
	}
	// Behind the packet's end nobody looks.
	end := 40 + int(binary.BigEndian.Uint16(b[4:]))
	if end > len(b) {
		return "" // receivers drop it
	}
	proto, rest, fragment := upper(b[6], b[40:end])
	switch {
	case proto == 58 && fragment && !r.Filtered: // receivers do not take advertisements in fragments (RFC 6980)
	case proto == 58 && len(rest) >= 24 && rest[0] == 136:
		if a := netip.AddrFrom16([16]byte(rest[8:24])); !r.owns(a) {
			return "advertised address " + a.String()
		}
	case proto == 58 && len(rest) >= 4 && rest[0] == 134 && r.Filtered:
		return "router advertisement"
	case proto == 17 && len(rest) >= 4 && r.Filtered && binary.BigEndian.Uint16(rest) == 547 && binary.BigEndian.Uint16(rest[2:]) == 546:
		return "answer of a DHCPv6 server"
	}
	return ""
}

// upper passes over the extension headers of IPv6. It returns what follows them, nothing of a later fragment, and whether more
// fragments follow.
func upper(proto byte, rest []byte) (_ byte, _ []byte, fragment bool) {
	for {
		length := 0
		switch {
		case len(rest) < 8:
		case proto == 0 || proto == 43 || proto == 60:
			length = 8 + 8*int(rest[1])
		case proto == 51:
			length = 8 + 4*int(rest[1])
		case proto == 44:
			if binary.BigEndian.Uint16(rest[2:])&0xfff8 != 0 {
				return proto, nil, fragment // a later fragment
			}
			fragment = fragment || binary.BigEndian.Uint16(rest[2:])&1 != 0
			length = 8
		}
		if length == 0 || length > len(rest) {
			return proto, rest, fragment
		}
		proto, rest = rest[0], rest[length:]
	}
}
