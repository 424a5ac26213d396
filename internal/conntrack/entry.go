// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	protoICMP   = 1
	protoICMPv6 = 58
)

// protocols are the names that ovs-vswitchd prints; others are numbers.
var protocols = map[string]uint8{
	"icmp": protoICMP, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": protoICMPv6, "sctp": 132, "udplite": 136,
}

// entry is one line about a connection.
type entry struct {
	Connection
	zone uint16
	mark uint32
}

var errEntry = errors.New("not a tracked connection")

// parseEntry reads one line of dpctl/dump-conntrack, such as
//
//	tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=4,dport=80),reply=(…),zone=5,mark=1,protoinfo=(state=ESTABLISHED)
func parseEntry(line string) (entry, error) {
	var e entry
	name, rest, _ := strings.Cut(line, ",")
	var ok bool
	if e.Protocol, ok = protocol(name); !ok {
		return entry{}, fmt.Errorf("%w: protocol %q", errEntry, name)
	}
	seen := false
	for rest != "" {
		var field string
		field, rest, ok = nextField(rest)
		if !ok {
			return entry{}, fmt.Errorf("%w: brackets", errEntry)
		}
		key, value, _ := strings.Cut(field, "=")
		var err error
		switch key {
		case "orig":
			seen = true
			err = e.parseTuple(value)
		case "zone":
			e.zone, err = number[uint16](value, 16)
		case "mark":
			e.mark, err = number[uint32](value, 32)
		}
		if err != nil {
			return entry{}, fmt.Errorf("%w: %s: %w", errEntry, key, err)
		}
	}
	if !seen {
		return entry{}, fmt.Errorf("%w: no addresses", errEntry)
	}
	return e, nil
}

func protocol(name string) (uint8, bool) {
	if p, ok := protocols[name]; ok {
		return p, true
	}
	p, err := number[uint8](name, 8)
	return p, err == nil
}

// nextField cuts off the text up to the next comma outside brackets.
func nextField(s string) (field, rest string, ok bool) {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return "", "", false
			}
		case ',':
			if depth == 0 {
				return s[:i], s[i+1:], true
			}
		}
	}
	return s, "", depth == 0
}

// parseTuple reads "(src=…,dst=…,…)".
func (c *Connection) parseTuple(s string) error {
	if len(s) < 2 || s[0] != '(' || s[len(s)-1] != ')' {
		return errors.New("no brackets")
	}
	for field := range strings.SplitSeq(s[1:len(s)-1], ",") {
		key, value, _ := strings.Cut(field, "=")
		var err error
		switch key {
		case "src":
			c.Src, err = netip.ParseAddr(value)
		case "dst":
			c.Dst, err = netip.ParseAddr(value)
		case "id":
			c.ICMPID, err = number[uint16](value, 16)
		case "sport":
			c.SrcPort, err = number[uint16](value, 16)
		case "dport":
			c.DstPort, err = number[uint16](value, 16)
		case "type":
			c.ICMPType, err = number[uint8](value, 8)
		case "code":
			c.ICMPCode, err = number[uint8](value, 8)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if !c.Src.IsValid() || !c.Dst.IsValid() || c.Src.Is4() != c.Dst.Is4() || c.Src.Zone() != "" || c.Dst.Zone() != "" {
		return errors.New("addresses")
	}
	return nil
}

func number[T uint8 | uint16 | uint32](s string, bits int) (T, error) {
	n, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of %d bits", s, bits)
	}
	return T(n), nil
}

// tuple is the connection as dpctl/flush-conntrack wants it. The protocol has to come before what depends on it. From OVS
// 3.1 on a port 0 there means any port: for protocols without ports that is the same connection.
func (c Connection) tuple() string {
	family := "ct_nw"
	if c.Src.Is6() {
		family = "ct_ipv6"
	}
	s := fmt.Sprintf("%s_src=%s,%s_dst=%s,ct_nw_proto=%d", family, c.Src, family, c.Dst, c.Protocol)
	if c.Protocol == protoICMP || c.Protocol == protoICMPv6 {
		return s + fmt.Sprintf(",icmp_id=%d,icmp_type=%d,icmp_code=%d", c.ICMPID, c.ICMPType, c.ICMPCode)
	}
	return s + fmt.Sprintf(",ct_tp_src=%d,ct_tp_dst=%d", c.SrcPort, c.DstPort)
}
