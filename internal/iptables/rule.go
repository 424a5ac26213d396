// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// side is the option for the address of the other side, and the word for it in a match of a set.
func side(d world.Direction) (option, set string) {
	if d == world.Egress {
		return "-d", "dst"
	}
	return "-s", "src"
}

// ruleText returns a rule of a security group as iptables-save prints it: several where there are no sets and the rule is about the
// members of a group, none for a rule that no packet fits, or that iptables would refuse.
func (c *Config) ruleText(r *world.Rule, p *Port, members map[string][]netip.Prefix) []string {
	what, ok := c.protocolText(r)
	if !ok {
		return nil
	}
	option, set := side(r.Direction)
	from := func(prefix netip.Prefix) string {
		if !prefix.IsValid() || prefix.Bits() == 0 {
			return ""
		}
		return option + " " + prefix.String() + " "
	}
	switch {
	case r.Remote == "":
		return []string{from(r.Prefix) + what + "-j RETURN"}
	case !c.NoSets:
		return []string{fmt.Sprintf("%s%s-m set --match-set %s %s -j RETURN", from(r.Prefix), what, SetName(r.Remote, r.IPVersion), set)}
	}
	var out []string
	for _, m := range members[r.Remote] {
		own := m.IsSingleIP() && slices.Contains(p.FixedIPs, m.Addr())
		if versionOf(m.Addr()) == r.IPVersion && !own {
			out = append(out, from(m)+what+"-j RETURN")
		}
	}
	return out
}

// protocolText returns what a rule says about protocol, ports, type and code.
func (c *Config) protocolText(r *world.Rule) (text string, ok bool) {
	if r.Protocol == world.AnyProtocol || r.Protocol == 0 {
		return "", true
	}
	text = "-p " + c.Protocols.word(r.Protocol) + " "
	if r.Min == nil {
		return text, true
	}
	switch r.Protocol {
	case protoICMP, protoICMPv6:
		return icmpText(text, r)
	case protoTCP, protoUDP, protoSCTP, protoDCCP:
		text += map[int]string{protoTCP: "-m tcp ", protoUDP: "-m udp ", protoSCTP: "-m sctp ", protoDCCP: "-m dccp "}[r.Protocol]
	case protoUDPLite: // has no match of its own
	default:
		return text, true
	}
	if r.Max == nil {
		return text, false
	}
	lo, hi := *r.Min, *r.Max
	ok = lo >= 0 && lo <= hi && hi <= 65535
	switch {
	case lo != hi:
		text += fmt.Sprintf("-m multiport --dports %d:%d ", lo, hi)
	case r.Protocol == protoUDPLite:
		text += fmt.Sprintf("-m multiport --dports %d ", lo)
	default:
		text += fmt.Sprintf("--dport %d ", lo)
	}
	return text, ok
}

// anyICMP is the type that iptables takes for every type of ICMP of IPv4, whatever the code.
const anyICMP = 255

// icmpText adds type and code. The ICMP of the other IP version has neither: iptables has no match for them, and no host sends it.
func icmpText(text string, r *world.Rule) (string, bool) {
	match := "-m icmp --icmp-type "
	switch {
	case (r.IPVersion == 6) != (r.Protocol == protoICMPv6):
		return text, true
	case r.IPVersion == 6:
		match = "-m icmp6 --icmpv6-type "
	}
	kind := strconv.Itoa(*r.Min)
	switch {
	case r.IPVersion == 4 && *r.Min == anyICMP:
		kind = "any"
	case r.Max != nil:
		kind += "/" + strconv.Itoa(*r.Max)
	}
	octet := func(n *int) bool { return n == nil || *n >= 0 && *n <= 255 }
	return text + match + kind + " ", octet(r.Min) && octet(r.Max)
}
