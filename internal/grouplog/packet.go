// SPDX-License-Identifier: Apache-2.0

package grouplog

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	of "github.com/patchbay-sdn/patchbay/openflow"
)

// headers returns the headers of a packet as text, in the form of os-ken, which the Python agent prints packets with: name(key=value,…), keys
// sorted, joined by commas. It ends where the headers do, or what can be read of them: what a packet carries is not for a log. So are options
// of IP, and data of ICMP: None.
func headers(packet []byte) string {
	var r reader
	r.ethernet(packet)
	return strings.Join(r.out, ", ")
}

// reader collects the texts of headers.
type reader struct{ out []string }

func (r *reader) add(format string, args ...any) { r.out = append(r.out, fmt.Sprintf(format, args...)) }

var be = binary.BigEndian

func (r *reader) ethernet(b []byte) {
	if len(b) < 14 {
		return
	}
	kind := be.Uint16(b[12:])
	r.add("ethernet(dst='%s',ethertype=%d,src='%s')", net.HardwareAddr(b[:6]), kind, net.HardwareAddr(b[6:12]))
	r.network(kind, b[14:])
}

// maxTags bounds how many VLAN tags are read.
const maxTags = 4

func (r *reader) network(kind uint16, b []byte) {
	for range maxTags {
		if kind != of.EtherVLAN && kind != 0x88a8 || len(b) < 4 {
			break
		}
		name, tag := "vlan", be.Uint16(b)
		if kind == 0x88a8 {
			name = "svlan"
		}
		kind = be.Uint16(b[2:])
		r.add("%s(cfi=%d,ethertype=%d,pcp=%d,vid=%d)", name, tag>>12&1, kind, tag>>13, tag&0xfff)
		b = b[4:]
	}
	switch kind {
	case of.EtherIPv4:
		r.ipv4(b)
	case of.EtherIPv6:
		r.ipv6(b)
	case of.EtherARP:
		r.arp(b)
	}
}

func (r *reader) arp(b []byte) {
	if len(b) < 28 || b[4] != 6 || b[5] != 4 {
		return
	}
	ip := func(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }
	r.add("arp(dst_ip='%s',dst_mac='%s',hlen=6,hwtype=%d,opcode=%d,plen=4,proto=%d,src_ip='%s',src_mac='%s')",
		ip(b[24:28]), net.HardwareAddr(b[18:24]), be.Uint16(b), be.Uint16(b[6:]), be.Uint16(b[2:]), ip(b[14:18]), net.HardwareAddr(b[8:14]))
}

func (r *reader) ipv4(b []byte) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return
	}
	words, fragment, proto := int(b[0]&15), be.Uint16(b[6:]), b[9]
	r.add("ipv4(csum=%d,dst='%s',flags=%d,header_length=%d,identification=%d,offset=%d,option=None,proto=%d,src='%s',tos=%d,total_length=%d,ttl=%d,version=4)",
		be.Uint16(b[10:]), netip.AddrFrom4([4]byte(b[16:20])), fragment>>13, words, be.Uint16(b[4:]), fragment&0x1fff, proto,
		netip.AddrFrom4([4]byte(b[12:16])), b[1], be.Uint16(b[2:]), b[8])
	if words < 5 || len(b) < 4*words || fragment&0x1fff != 0 {
		return
	}
	r.transport(int(proto), b[4*words:])
}

// Extension headers of IPv6 whose ends are known.
const (
	hopOptions         = 0
	routingHeader      = 43
	fragmentHeader     = 44
	destinationOptions = 60
	maxExtensions      = 8
)

func (r *reader) ipv6(b []byte) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return
	}
	first, next, rest, more := be.Uint32(b), b[6], b[40:], true
	var extensions []string
	for more && len(extensions) < maxExtensions {
		var text string
		if text, next, rest, more = extensionHeader(next, rest); text != "" {
			extensions = append(extensions, text)
		}
	}
	r.add("ipv6(dst='%s',ext_hdrs=[%s],flow_label=%d,hop_limit=%d,nxt=%d,payload_length=%d,src='%s',traffic_class=%d,version=6)",
		netip.AddrFrom16([16]byte(b[24:40])), strings.Join(extensions, ", "), first&0xfffff, b[7], b[6], be.Uint16(b[4:]),
		netip.AddrFrom16([16]byte(b[8:24])), first>>20&0xff)
	if rest != nil {
		r.transport(int(next), rest)
	}
}

// extensionHeader reads an extension header, and returns its text and what follows. A rest of nil: nothing can be read after it. More: there may
// be another one.
func extensionHeader(kind byte, b []byte) (text string, next byte, rest []byte, more bool) {
	name := map[byte]string{hopOptions: "hop_opts", routingHeader: "routing", destinationOptions: "dst_opts"}[kind]
	switch {
	case kind == fragmentHeader && len(b) >= 8:
		offset := be.Uint16(b[2:])
		text = fmt.Sprintf("fragment(id_=%d,more=%d,nxt=%d,offset=%d)", be.Uint32(b[4:]), offset&1, b[0], offset>>3)
		if offset>>3 != 0 {
			return text, b[0], nil, false
		}
		return text, b[0], b[8:], true
	case name == "":
		return "", kind, b, false
	case len(b) < 8 || len(b) < 8+8*int(b[1]):
		return "", kind, nil, false
	}
	return fmt.Sprintf("%s(data=None,nxt=%d,size=%d)", name, b[0], b[1]), b[0], b[8+8*int(b[1]):], true
}

func (r *reader) transport(proto int, b []byte) {
	switch {
	case proto == of.ProtoTCP && len(b) >= 20:
		r.add("tcp(ack=%d,bits=%d,csum=%d,dst_port=%d,offset=%d,option=%s,seq=%d,src_port=%d,urgent=%d,window_size=%d)",
			be.Uint32(b[8:]), b[13]&0x3f, be.Uint16(b[16:]), be.Uint16(b[2:]), b[12]>>4, tcpOptions(b), be.Uint32(b[4:]), be.Uint16(b), be.Uint16(b[18:]), be.Uint16(b[14:]))
	case proto == of.ProtoUDP && len(b) >= 8:
		r.add("udp(csum=%d,dst_port=%d,src_port=%d,total_length=%d)", be.Uint16(b[6:]), be.Uint16(b[2:]), be.Uint16(b), be.Uint16(b[4:]))
	case proto == of.ProtoSCTP && len(b) >= 12:
		r.add("sctp(chunks=[],csum=%d,dst_port=%d,src_port=%d,vtag=%d)", be.Uint32(b[8:]), be.Uint16(b[2:]), be.Uint16(b), be.Uint32(b[4:]))
	case proto == of.ProtoICMP && len(b) >= 4:
		r.add("icmp(code=%d,csum=%d,data=%s,type=%d)", b[1], be.Uint16(b[2:]), icmpData(b, 0, 8), b[0])
	case proto == of.ProtoICMPv6 && len(b) >= 4:
		r.add("icmpv6(code=%d,csum=%d,data=%s,type_=%d)", b[1], be.Uint16(b[2:]), icmpData(b, 128, 129), b[0])
	}
}

// icmpData names an echo by its number, of which there are two types.
func icmpData(b []byte, one, other byte) string {
	if len(b) >= 8 && (b[0] == one || b[0] == other) {
		return fmt.Sprintf("echo(data=None,id=%d,seq=%d)", be.Uint16(b[4:]), be.Uint16(b[6:]))
	}
	return "None"
}

// tcpOptions lists the options of a TCP header.
func tcpOptions(b []byte) string {
	end := 4 * int(b[12]>>4)
	if end <= 20 || end > len(b) {
		return "None"
	}
	var out []string
	for b = b[20:end]; len(b) > 0; {
		text, n := tcpOption(b)
		if n == 0 {
			break
		}
		out = append(out, text)
		b = b[n:]
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// tcpOption returns the text of an option and its length; 0: it cannot be read, or there are no more.
func tcpOption(b []byte) (string, int) {
	switch b[0] {
	case 0:
		return "", 0
	case 1:
		return "TCPOptionNoOperation(kind=1,length=1)", 1
	}
	if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
		return "", 0
	}
	n := int(b[1])
	switch {
	case b[0] == 2 && n == 4:
		return fmt.Sprintf("TCPOptionMaximumSegmentSize(kind=2,length=4,max_seg_size=%d)", be.Uint16(b[2:])), n
	case b[0] == 3 && n == 3:
		return fmt.Sprintf("TCPOptionWindowScale(kind=3,length=3,shift_cnt=%d)", b[2]), n
	case b[0] == 4 && n == 2:
		return "TCPOptionSACKPermitted(kind=4,length=2)", n
	case b[0] == 8 && n == 10:
		return fmt.Sprintf("TCPOptionTimestamps(kind=8,length=10,ts_ecr=%d,ts_val=%d)", be.Uint32(b[6:]), be.Uint32(b[2:])), n
	}
	return fmt.Sprintf("TCPOptionUnknown(kind=%d,length=%d,value=None)", b[0], n), n
}
