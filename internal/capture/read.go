// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/trace"
)

// Content is what is in a frame.
type Content struct {
	Packet trace.Packet // addresses are zero where the frame has none
	VLAN   uint16       // the VM's own tag
	Text   string       // in a few words
	Flow   string       // as ofproto/trace takes it, without the port; "" for a frame that is too short
}

// flow adds terms to the flow.
func (c *Content) flow(format string, args ...any) { c.Flow += "," + fmt.Sprintf(format, args...) }

// EtherTypes and IP protocols that have words here.
const (
	typeIPv4, typeARP, typeVLAN, typeQinQ, typeIPv6 = 0x0800, 0x0806, 0x8100, 0x88a8, 0x86dd
	icmp, tcp, udp, icmpv6, sctp                    = 1, 6, 17, 58, 132
)

// Read decodes a frame. It does so for every frame: what cannot be decoded is named by its EtherType, or by its IP protocol.
func Read(data []byte) Content {
	c := Content{Packet: trace.Packet{Protocol: "0"}, Text: "a frame that is too short"}
	if len(data) < 14 {
		return c
	}
	c.Packet.DstMAC, c.Packet.SrcMAC = net.HardwareAddr(data[:6]).String(), net.HardwareAddr(data[6:12]).String()
	kind, rest := binary.BigEndian.Uint16(data[12:]), data[14:]
	if (kind == typeVLAN || kind == typeQinQ) && len(rest) >= 4 {
		c.VLAN, kind, rest = binary.BigEndian.Uint16(rest)&0xfff, binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	c.Text = fmt.Sprintf("EtherType 0x%04x", kind)
	c.Flow = fmt.Sprintf("dl_src=%s,dl_dst=%s", c.Packet.SrcMAC, c.Packet.DstMAC)
	if c.VLAN != 0 {
		c.flow("dl_vlan=%d", c.VLAN)
	}
	switch {
	case kind == typeARP && len(rest) >= 28:
		c.arp(rest)
	case kind == typeIPv4 && len(rest) >= 20:
		c.ipv4(rest)
	case kind == typeIPv6 && len(rest) >= 40:
		c.ipv6(rest)
	case kind >= 0x600: // anything less is a length
		c.flow("dl_type=0x%04x", kind)
	}
	return c
}

func (c *Content) arp(b []byte) {
	c.Packet.Protocol = trace.ARP
	c.Packet.Src, c.Packet.Dst = addr(b[14:18]), addr(b[24:28])
	c.flow("arp,arp_op=%d,arp_spa=%s,arp_tpa=%s,arp_sha=%s,arp_tha=%s", b[7], c.Packet.Src, c.Packet.Dst, net.HardwareAddr(b[8:14]), net.HardwareAddr(b[18:24]))
	switch op := binary.BigEndian.Uint16(b[6:]); {
	case op == 2:
		c.Text = fmt.Sprintf("ARP: %s is at %s", c.Packet.Src, net.HardwareAddr(b[8:14]))
	case op > 2:
		c.Text = fmt.Sprintf("ARP operation %d", op)
	case c.Packet.Src == c.Packet.Dst:
		c.Text = fmt.Sprintf("ARP: %s announces itself", c.Packet.Src)
	default:
		c.Text = fmt.Sprintf("ARP: who has %s, asks %s", c.Packet.Dst, c.Packet.Src)
	}
}

func addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b) // of four or sixteen bytes
	return a
}

func (c *Content) ipv4(b []byte) {
	c.Packet.Src, c.Packet.Dst, c.Packet.Size = addr(b[12:16]), addr(b[16:20]), int(binary.BigEndian.Uint16(b[2:]))
	b = b[:min(len(b), max(c.Packet.Size, 20))] // without the padding of short frames
	c.flow("ip,nw_src=%s,nw_dst=%s,nw_proto=%d,nw_ttl=%d", c.Packet.Src, c.Packet.Dst, b[9], b[8])
	header := int(b[0]&0xf) * 4
	if offset := binary.BigEndian.Uint16(b[6:]) & 0x1fff; offset != 0 {
		c.flow("nw_frag=later")
		c.protocol(b[9], nil)
		c.Text = "a later fragment, " + c.Text
		return
	}
	c.protocol(b[9], b[min(max(header, 20), len(b)):])
}

func (c *Content) ipv6(b []byte) {
	c.Packet.Src, c.Packet.Dst, c.Packet.Size = addr(b[8:24]), addr(b[24:40]), int(binary.BigEndian.Uint16(b[4:]))+40
	next, rest := b[6], b[40:min(len(b), c.Packet.Size)]
	// Hop-by-hop options, routing and destination options stand before what is sent.
	for (next == 0 || next == 43 || next == 60) && len(rest) >= 8 {
		length := int(rest[1])*8 + 8
		next, rest = rest[0], rest[min(length, len(rest)):]
	}
	c.flow("ipv6,ipv6_src=%s,ipv6_dst=%s,nw_proto=%d,nw_ttl=%d", c.Packet.Src, c.Packet.Dst, next, b[7])
	c.protocol(next, rest)
}

// protocol says what is in an IP packet.
func (c *Content) protocol(number uint8, b []byte) {
	p := &c.Packet
	p.Protocol = strconv.Itoa(int(number))
	c.Text = "IP protocol " + p.Protocol
	name := map[uint8]string{tcp: "tcp", udp: "udp", sctp: "sctp", icmp: "icmp", icmpv6: "icmp"}[number]
	if name == "" || len(b) < 8 {
		return
	}
	p.Protocol = name
	if number == icmp || number == icmpv6 {
		p.Type, p.Code = b[0], b[1]
		c.Text = icmpText(number, b[0])
		c.flow("%s_type=%d,%[1]s_code=%[3]d", map[bool]string{true: "icmpv6", false: "icmp"}[number == icmpv6], b[0], b[1])
		if number == icmpv6 && (b[0] == 135 || b[0] == 136) && len(b) >= 24 {
			c.flow("nd_target=%s", addr(b[8:24]))
		}
		return
	}
	p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	c.flow("%s_src=%d,%[1]s_dst=%[3]d", name, p.SrcPort, p.DstPort)
	c.Text = strings.ToUpper(name)
	switch {
	case number == tcp && len(b) >= 20:
		c.Text = "TCP " + tcpFlags(b[13]) + fmt.Sprintf(", %d bytes", max(len(b)-int(b[12]>>4)*4, 0))
	case number == udp:
		c.Text = fmt.Sprintf("UDP, %d bytes", len(b)-8)
		c.application(b[8:])
	}
}

func icmpText(number, kind uint8) string {
	name, known := "ICMP", map[uint8]string{0: "echo reply", 3: "destination unreachable", 8: "echo request", 11: "time exceeded"}
	if number == icmpv6 {
		name, known = "ICMPv6", map[uint8]string{
			1: "destination unreachable", 2: "packet too big", 3: "time exceeded", 128: "echo request", 129: "echo reply", 133: "router solicitation",
			134: "router advertisement", 135: "neighbour solicitation", 136: "neighbour advertisement", 143: "multicast report",
		}
	}
	if text := known[kind]; text != "" {
		return name + " " + text
	}
	return fmt.Sprintf("%s type %d", name, kind)
}

func tcpFlags(b byte) string {
	var out []string
	for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK"} {
		if b&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	if out == nil {
		return "without flags"
	}
	return strings.Join(out, " ")
}

// application names DHCP and DNS messages: with them most searches begin.
func (c *Content) application(b []byte) {
	has := func(port uint16) bool { return c.Packet.SrcPort == port || c.Packet.DstPort == port }
	switch {
	case (has(67) || has(68)) && len(b) >= 240:
		c.Text = "DHCP " + dhcpType(b[240:])
		if you := addr(b[16:20]); !you.IsUnspecified() {
			c.Text += " of " + you.String()
		}
	case (has(546) || has(547)) && len(b) >= 4:
		c.Text = "DHCPv6 " + word(b[0], "solicit", "advertise", "request", "confirm", "renew", "rebind", "reply", "release", "decline", "reconfigure", "information request")
	case has(53) && len(b) >= 12:
		c.Text = dnsText(b)
	}
}

// dhcpType finds the type among the options of a DHCPv4 message.
func dhcpType(options []byte) string {
	for len(options) >= 2 && options[0] != 255 {
		if options[0] == 0 { // padding
			options = options[1:]
			continue
		}
		end := 2 + int(options[1])
		if end > len(options) {
			break
		}
		if options[0] == 53 && end == 3 {
			return word(options[2], "discover", "offer", "request", "decline", "ack", "nak", "release", "inform")
		}
		options = options[end:]
	}
	return "message without a type"
}

// word is the name of a number that counts from one.
func word(n byte, names ...string) string {
	if int(n) >= 1 && int(n) <= len(names) {
		return names[n-1]
	}
	return fmt.Sprintf("type %d", n)
}

// dnsText says what a DNS message asks for, or answers.
func dnsText(b []byte) string {
	var labels []string
	rest := b[12:]
	for len(rest) > 0 && rest[0] != 0 && rest[0] < 64 && int(rest[0]) < len(rest) {
		labels = append(labels, string(rest[1:1+rest[0]]))
		rest = rest[1+rest[0]:]
	}
	name := strings.Join(labels, ".")
	if b[2]&0x80 == 0 {
		return "DNS question for " + name
	}
	failed := ""
	if code := b[3] & 0xf; code != 0 {
		failed = word(code, ", format error", ", server failed", ", no such name", ", not implemented", ", refused")
	}
	return fmt.Sprintf("DNS answer about %s, %d records%s", name, binary.BigEndian.Uint16(b[6:]), failed)
}
