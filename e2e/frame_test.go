// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"net"
	"net/netip"
)

const broadcast = "ff:ff:ff:ff:ff:ff"

// Ethernet types. The last one is set aside for experiments: nothing between two VMs knows it, or checks more than MACs.
const (
	typeARP          = 0x0806
	typeIPv6         = 0x86dd
	typeExperimental = 0x88b5
)

func hw(mac string) net.HardwareAddr {
	a, err := net.ParseMAC(mac)
	if err != nil {
		panic(err) // addresses are the server's or this package's own
	}
	return a
}

func ethernet(to, from string, kind uint16, payload []byte, k token) []byte {
	f := append(append([]byte{}, hw(to)...), hw(from)...)
	f = binary.BigEndian.AppendUint16(f, kind)
	return append(append(f, payload...), k.bytes()...)
}

// plain is a frame of no known protocol.
func plain(to, from string, k token) []byte {
	return ethernet(to, from, typeExperimental, make([]byte, 46), k)
}

// arp is an ARP frame; op 1 asks, op 2 answers.
func arp(op uint16, ethTo, ethFrom, senderMAC, senderIP, targetMAC, targetIP string, k token) []byte {
	p := []byte{0, 1, 8, 0, 6, 4}
	p = binary.BigEndian.AppendUint16(p, op)
	p = append(append(p, hw(senderMAC)...), netip.MustParseAddr(senderIP).AsSlice()...)
	p = append(append(p, hw(targetMAC)...), netip.MustParseAddr(targetIP).AsSlice()...)
	return ethernet(ethTo, ethFrom, typeARP, p, k)
}

// arpFrame is what an ARP frame says.
type arpFrame struct {
	op                  uint16
	senderMAC, senderIP string
}

func parseARP(f []byte) (arpFrame, bool) {
	if len(f) < 42 || binary.BigEndian.Uint16(f[12:]) != typeARP {
		return arpFrame{}, false
	}
	return arpFrame{
		op:        binary.BigEndian.Uint16(f[20:]),
		senderMAC: net.HardwareAddr(f[22:28]).String(),
		senderIP:  netip.AddrFrom4([4]byte(f[28:32])).String(),
	}, true
}

// advertisement is an unsolicited neighbour advertisement: "target is at mac". The token is also in an option of a type for
// experiments: bridges that filter cut off what comes after an IPv6 packet.
func advertisement(ethTo, ethFrom, ipFrom, ipTo, target, mac string, k token) []byte {
	icmp := []byte{136, 0, 0, 0, 0x20, 0, 0, 0}
	icmp = append(icmp, netip.MustParseAddr(target).AsSlice()...)
	icmp = append(append(icmp, 2, 1), hw(mac)...)
	icmp = append(append(icmp, 253, 3, 0, 0, 0, 0, 0, 0), k.bytes()...)
	src, dst := netip.MustParseAddr(ipFrom).AsSlice(), netip.MustParseAddr(ipTo).AsSlice()
	const protoICMPv6 = 58
	pseudo := append(append([]byte{}, src...), dst...)
	pseudo = append(pseudo, 0, 0, 0, byte(len(icmp)), 0, 0, 0, protoICMPv6)
	binary.BigEndian.PutUint16(icmp[2:], checksum(append(pseudo, icmp...)))
	ip := []byte{0x60, 0, 0, 0, 0, byte(len(icmp)), protoICMPv6, 255}
	ip = append(append(append(ip, src...), dst...), icmp...)
	return ethernet(ethTo, ethFrom, typeIPv6, ip, k)
}

// checksum is that of the Internet protocols, over an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
