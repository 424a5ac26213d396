// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Requests makes malformed requests to the services that a host has for its guests: DHCP, DNS and metadata. Each begins as a valid one, of which some bytes are cut,
// changed, repeated or made up; few are valid still. The same seed makes the same requests.
type Requests struct{ *Generator }

// NewRequests makes a generator.
func NewRequests(seed uint64) *Requests {
	return &Requests{&Generator{rng: rand.New(rand.NewPCG(seed, 1)), options: gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}}}
}

// Said is in every request that has room for it, so that whoever receives it elsewhere knows where it is from.
const Said = "mallory"

// ServiceAddress and serviceAddress6 are where guests find DNS and metadata.
var (
	ServiceAddress  = netip.MustParseAddr("169.254.169.254")
	serviceAddress6 = netip.MustParseAddr("fe80::a9fe:a9fe")
	// ServiceMAC is what the host answers ARP for them with.
	ServiceMAC = net.HardwareAddr{0xfa, 0x16, 0xee, 0xff, 0xff, 0xff}
)

// DHCP is a frame to the DHCP server, of either version of IP.
func (g *Requests) DHCP(own Party, victim net.HardwareAddr) Frame {
	hardware := own.MAC
	if g.chance(5) {
		hardware = victim
	}
	if g.chance(30) {
		body, how := g.spoil(g.dhcp6(hardware))
		return Frame{"dhcp6 " + how, g.datagram(layers.Ethernet{SrcMAC: own.MAC, DstMAC: net.HardwareAddr{0x33, 0x33, 0, 1, 0, 2}},
			LinkLocal(own.MAC), netip.MustParseAddr("ff02::1:2"), 546, 547, body)}
	}
	body, how := g.spoil(g.dhcp4(hardware))
	from, to := netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if g.chance(20) {
		from = own.V4
	}
	return Frame{"dhcp4 " + how, g.datagram(layers.Ethernet{SrcMAC: own.MAC, DstMAC: allOnes}, from, to, 68, 67, body)}
}

// DNS is a frame to the DNS server.
func (g *Requests) DNS(own Party) Frame {
	body, how := g.spoil(g.dns())
	from, to := own.V4, ServiceAddress
	if g.chance(25) {
		from, to = LinkLocal(own.MAC), serviceAddress6
	}
	return Frame{"dns " + how, g.datagram(layers.Ethernet{SrcMAC: own.MAC, DstMAC: ServiceMAC}, from, to, 1024+g.uint16()%60000, 53, body)}
}

// datagram is a frame with a UDP datagram. The lengths of some are wrong, and some have options or are fragments.
func (g *Requests) datagram(ether layers.Ethernet, from, to netip.Addr, src, dst uint16, body []byte) []byte {
	var ip network
	if from.Is4() {
		four := &layers.IPv4{Version: 4, TTL: 64, Id: g.uint16(), Protocol: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		if g.chance(3) {
			four.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 7, OptionData: g.random(5)}}
		}
		if g.chance(2) {
			four.Flags = layers.IPv4MoreFragments
		}
		ip, ether.EthernetType = four, layers.EthernetTypeIPv4
	} else {
		ip = &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		ether.EthernetType = layers.EthernetTypeIPv6
	}
	if g.chance(3) {
		ether.SrcMAC = g.random(6)
	}
	udp := &layers.UDP{SrcPort: layers.UDPPort(src), DstPort: layers.UDPPort(dst)}
	_ = udp.SetNetworkLayerForChecksum(ip)
	b := slices.Clone(g.serialize(&ether, ip, udp, gopacket.Payload(body)))
	if g.chance(10) { // a length of the headers
		at := pick(g.Generator, []int{14, 16, 18, 38, 58})
		if at+2 <= len(b) {
			binary.BigEndian.PutUint16(b[at:], g.uint16()>>g.rng.IntN(12))
		}
	}
	return b
}

// spoil makes a valid message a malformed one, and says how.
func (g *Requests) spoil(b []byte) (spoiled []byte, how string) {
	const longest = 1300
	switch g.rng.IntN(20) {
	case 0:
		return g.random(g.rng.IntN(600)), "random"
	case 1:
		return nil, "empty"
	}
	for range 1 + g.rng.IntN(4) {
		at := 0
		if len(b) > 0 {
			at = g.rng.IntN(len(b))
		}
		switch g.rng.IntN(6) {
		case 0:
			b, how = b[:at], "cut"
		case 1:
			for range 1 + g.rng.IntN(8) {
				if len(b) > 0 {
					b[g.rng.IntN(len(b))] = byte(g.rng.Uint32())
				}
			}
			how = "changed"
		case 2:
			b, how = slices.Insert(b, at, bytes.Repeat(pick(g.Generator, [][]byte{{0}, {0xff}, {0xc0, 0x0c}, {63}}), g.rng.IntN(200))...), "filled"
		case 3:
			b, how = slices.Insert(b, at, slices.Clone(b[at:min(len(b), at+g.rng.IntN(300))])...), "repeated"
		case 4:
			if at < len(b) {
				b[at], how = pick(g.Generator, []byte{0, 1, 0x7f, 0x80, 0xc0, 0xfe, 0xff}), "edge"
			}
		case 5:
			b, how = append(b, g.random(g.rng.IntN(400))...), "longer"
		}
	}
	return b[:min(len(b), longest)], how
}

// dhcp4 is a valid message with many options.
func (g *Requests) dhcp4(hardware net.HardwareAddr) []byte {
	m := &layers.DHCPv4{Operation: layers.DHCPOpRequest, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, Xid: g.rng.Uint32(), ClientHWAddr: hardware, ServerName: []byte(Said)}
	option := func(t layers.DHCPOpt, data []byte) { m.Options = append(m.Options, layers.NewDHCPOption(t, data)) }
	option(layers.DHCPOptMessageType, []byte{byte(1 + g.rng.IntN(9))})
	option(layers.DHCPOptHostname, []byte(Said))
	option(layers.DHCPOptParamsRequest, g.random(1+g.rng.IntN(60)))
	for range g.rng.IntN(6) {
		option(layers.DHCPOpt(1+g.rng.IntN(253)), g.random(g.rng.IntN(60)))
	}
	return slices.Clone(g.serialize(m))
}

// dhcp6 is a valid message: a client, an identity association with an address, an option request; some in a relay's message.
func (g *Requests) dhcp6(hardware net.HardwareAddr) []byte {
	option := func(b []byte, code uint16, data []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, code)
		return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
	}
	b := append([]byte{byte(1 + g.rng.IntN(11))}, g.random(3)...)
	b = option(b, 1, append([]byte{0, 3, 0, 1}, hardware...))
	b = option(b, 3, option(g.random(12), 5, g.random(24)))
	b = option(b, 6, g.random(2*g.rng.IntN(20)))
	b = option(b, 39, append([]byte{0, byte(len(Said))}, Said...))
	if g.chance(20) {
		b = option(append([]byte{12, byte(g.rng.IntN(40))}, g.random(32)...), 9, b)
	}
	return b
}

// dns is a valid query.
func (g *Requests) dns() []byte {
	m := &layers.DNS{ID: g.uint16(), RD: true}
	for range 1 + g.rng.IntN(3)/2 {
		name := Said + strings.Repeat(fmt.Sprintf(".%x", g.rng.Uint32()), g.rng.IntN(20))
		m.Questions = append(m.Questions, layers.DNSQuestion{Name: []byte(name), Type: layers.DNSType(1 + g.rng.IntN(256)), Class: layers.DNSClassIN})
	}
	if g.chance(30) {
		m.Additionals = append(m.Additionals, layers.DNSResourceRecord{Type: layers.DNSTypeOPT, Class: layers.DNSClass(g.uint16()), OPT: []layers.DNSOPT{{Code: 10, Data: g.random(g.rng.IntN(30))}}})
	}
	return slices.Clone(g.serialize(m))
}

// HTTP is what a guest writes to a connection with the metadata service. Forged is the instance that it says to be.
func (g *Requests) HTTP(forged string) (kind string, text []byte) {
	line := fmt.Sprintf("GET /latest/%s-%x HTTP/1.1", Said, g.rng.Uint32())
	const host = "Host: 169.254.169.254"
	forge := []string{"X-Instance-ID: " + forged, "X_Instance_ID: " + forged, "X-Instance-Id : " + forged, "Connection: X-Instance-ID, X-Tenant-ID", "X-Forwarded-For: 10.0.0.1"}
	whole := func(lines ...string) []byte { return []byte(strings.Join(lines, "\r\n") + "\r\n\r\n") }
	next := string(whole(line, host, forge[0]))
	switch g.rng.IntN(12) {
	case 0:
		return "forged headers", whole(append([]string{line, host}, forge...)...)
	case 1:
		return "two lengths", append(whole(line, host, "Content-Length: 4", "Content-Length: 0"), next...)
	case 2:
		return "length and chunks", append(whole(line, host, "Content-Length: 4", "Transfer-Encoding: chunked"), "0\r\n\r\n"+next...)
	case 3:
		return "chunks", append(whole(line, host, "Transfer-Encoding: chunked"), pick(g.Generator, []string{"ffffffffffffffff\r\n", "-1\r\n", "4;" + strings.Repeat("a", 5000) + "\r\n", "4\r\nabcde\r\n"})+next...)
	case 4:
		return "method", whole(pick(g.Generator, []string{"CONNECT nova:8775 HTTP/1.1", "TRACE / HTTP/1.1", "PRI * HTTP/2.0", "OPTIONS * HTTP/1.1", string(g.random(20)) + " / HTTP/1.1"}), host)
	case 5:
		return "target", whole(pick(g.Generator, []string{"GET http://nova:8775/ HTTP/1.1", "GET //nova/ HTTP/1.1", "GET \\..\\.. HTTP/1.1", "GET /%zz HTTP/1.1", "GET /" + strings.Repeat("a", 20000) + " HTTP/1.1", "GET  HTTP/1.1", "GET /"}), host)
	case 6:
		return "large header", whole(line, host, "X: "+strings.Repeat("y", g.rng.IntN(40000)))
	case 7:
		return "many headers", whole(append([]string{line, host}, slices.Repeat(forge, 1+g.rng.IntN(300))...)...)
	case 8:
		return "header line", whole(line, host, pick(g.Generator, []string{"no colon", ": no name", "A: b\r\n c", "A:\x00", "A: b\nB: c", "Host: other", "Upgrade: h2c", "Expect: 100-continue", "Content-Length: -1", "Content-Length: 99999999999999999999"}))
	case 9:
		return "large body", append(whole(strings.Replace(line, "GET", "POST", 1), host, "Content-Length: 300000"), g.random(2000)...)
	case 10:
		return "random", g.random(1 + g.rng.IntN(2000))
	}
	b, how := g.spoil(whole(append([]string{line, host}, forge[:1+g.rng.IntN(4)]...)...))
	return "http " + how, b
}
