// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Protocols that rules treat in a special way.
const (
	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoICMPv6  = 58
	protoDCCP    = 33
	protoSCTP    = 132
	protoUDPLite = 136
)

// protocols are the names that Neutron's API takes.
func protocols() map[string]int {
	return map[string]int{
		"ah": 51, "dccp": protoDCCP, "egp": 8, "esp": 50, "gre": 47, "hopopt": 0, "icmp": protoICMP, "icmpv6": protoICMPv6, "igmp": 2,
		"ip": 0, "ipip": 4, "ipv6-encap": 41, "ipv6-frag": 44, "ipv6-icmp": protoICMPv6, "ipv6-nonxt": 59, "ipv6-opts": 60,
		"ipv6-route": 43, "ospf": 89, "pgm": 113, "rsvp": 46, "sctp": protoSCTP, "tcp": protoTCP, "udp": protoUDP,
		"udplite": protoUDPLite, "vrrp": 112,
	}
}

// protocolNumber reads a protocol as the API takes it: nothing, a number or a name. ICMP under IPv6 is that of IPv6.
func protocolNumber(text string, version uint8) (int, bool) {
	if text == "" {
		return AnyProtocol, true
	}
	if n, err := strconv.ParseUint(text, 10, 8); err == nil {
		return int(n), true
	}
	if version == 6 && text == "icmp" {
		return protoICMPv6, true
	}
	n, ok := protocols()[text]
	return n, ok
}

// isICMP says whether Min and Max are type and code.
func (r Rule) isICMP() bool { return r.Protocol == protoICMP || r.Protocol == protoICMPv6 }

// hasPorts says whether Min and Max are ports.
func (r Rule) hasPorts() bool {
	return r.Protocol == protoTCP || r.Protocol == protoUDP || r.Protocol == protoSCTP
}

// Offset is how much more a rule says than one that names no protocol, from 0 to 3. It is part of the priority of its
// flows: all parts of a conjunction must have the same.
func (r Rule) Offset() int {
	switch {
	case r.Protocol == AnyProtocol:
		return 0
	case r.isICMP() && r.Min == nil:
		return 1
	case r.isICMP() && r.Max == nil:
		return 2
	}
	return 3
}

// read works out what a rule allows. A rule that makes no sense allows nothing.
func read(n *neutron.SecurityGroupRule) (Rule, bool) {
	r := Rule{ID: n.ID}
	switch n.Direction {
	case "egress":
		r.Direction = Egress
	case "ingress":
		r.Direction = Ingress
	default:
		return Rule{}, false
	}
	switch strings.ToLower(n.EtherType) {
	case "ipv4":
		r.IPVersion = 4
	case "ipv6":
		r.IPVersion = 6
	default:
		return Rule{}, false
	}
	var ok bool
	if r.Protocol, ok = protocolNumber(n.Protocol, r.IPVersion); !ok {
		return Rule{}, false
	}
	switch {
	case r.isICMP():
		r.Min, r.Max = n.PortRangeMin, n.PortRangeMax
		if r.Min == nil {
			r.Max = nil
		}
	case r.hasPorts() && n.PortRangeMin != nil && n.PortRangeMax != nil:
		r.Min, r.Max = n.PortRangeMin, n.PortRangeMax
	}
	r.Remote = cmp.Or(n.RemoteGroupID, n.RemoteAddressGroupID)
	if n.RemoteIPPrefix != nil && n.RemoteIPPrefix.IsValid() {
		prefix := n.RemoteIPPrefix.Prefix
		if n.NormalizedCIDR != nil && n.NormalizedCIDR.IsValid() {
			prefix = n.NormalizedCIDR.Prefix
		}
		if prefix.Addr().Is4() != (r.IPVersion == 4) {
			return Rule{}, false
		}
		if prefix.Bits() > 0 {
			r.Prefix = prefix.Masked()
		}
	}
	return r, true
}

// readAll is read, with the ports of the protocols too whose ports flows cannot match.
func readAll(n *neutron.SecurityGroupRule) (Rule, bool) {
	r, ok := read(n)
	if (r.Protocol == protoDCCP || r.Protocol == protoUDPLite) && n.PortRangeMin != nil && n.PortRangeMax != nil {
		r.Min, r.Max = n.PortRangeMin, n.PortRangeMax
	}
	return r, ok
}

// normalise works out what rules allow: sorted, and each kind of traffic once, under the lowest id.
func normalise(rules map[string]entry, read func(*neutron.SecurityGroupRule) (Rule, bool)) []Rule {
	out := make([]Rule, 0, len(rules))
	for _, e := range rules {
		if r, ok := read(e.rule); ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Rule) int { return cmp.Or(a.compare(b), cmp.Compare(a.ID, b.ID)) })
	return slices.CompactFunc(out, func(a, b Rule) bool { return a.compare(b) == 0 })
}

// compare orders rules by what they allow.
func (r Rule) compare(s Rule) int {
	return cmp.Or(
		cmp.Compare(r.Direction, s.Direction), cmp.Compare(r.IPVersion, s.IPVersion), cmp.Compare(r.Protocol, s.Protocol),
		compareNumber(r.Min, s.Min), compareNumber(r.Max, s.Max),
		comparePrefix(r.Prefix, s.Prefix), cmp.Compare(r.Remote, s.Remote),
	)
}

// same says whether rules are equal, their ids included.
func same(r, s Rule) bool { return r.ID == s.ID && r.compare(s) == 0 }

func compareNumber(a, b *int) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
