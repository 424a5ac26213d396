// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// fit is how near a rule comes to a packet.
type fit int

const (
	other    fit = iota // another direction, protocol or port
	stranger            // all but the other side
	maybe               // all, if the other side is a member of the rule's group
	allowed             // all
)

// fits compares a rule with a packet; direction is seen from the port that has the rule.
func fits(r *inspect.Rule, direction string, p *Packet) fit {
	side := p.Src
	if direction == "egress" {
		side = p.Dst
	}
	if r.Direction != direction || (r.EtherType == "IPv6") != side.Is6() || !fitsProtocol(r, p) {
		return other
	}
	if r.Remote != "" {
		prefix, err := netip.ParsePrefix(r.Remote)
		if err != nil {
			a, err := netip.ParseAddr(r.Remote)
			if err != nil {
				return other
			}
			prefix = netip.PrefixFrom(a, a.BitLen())
		}
		if !prefix.Contains(side) {
			return stranger
		}
	}
	if r.Group != "" {
		return maybe
	}
	return allowed
}

func fitsProtocol(r *inspect.Rule, p *Packet) bool {
	if r.Protocol == "" || r.Protocol == "any" || r.Protocol == "0" {
		return true
	}
	if protocolNumber(r.Protocol, r.EtherType == "IPv6") != p.number() {
		return false
	}
	switch {
	case p.isICMP():
		return (r.PortMin == nil || *r.PortMin == int(p.Type)) && (r.PortMax == nil || *r.PortMax == int(p.Code))
	case p.hasPorts():
		return (r.PortMin == nil || *r.PortMin <= int(p.DstPort)) && (r.PortMax == nil || *r.PortMax >= int(p.DstPort))
	}
	return true
}

// protocolNumber reads the names that the server and ovs-ofctl use; the number stands for itself. -1: no protocol of IP.
func protocolNumber(name string, six bool) int {
	switch strings.ToLower(name) {
	case "tcp":
		return openflow.ProtoTCP
	case "udp":
		return openflow.ProtoUDP
	case "sctp":
		return openflow.ProtoSCTP
	case "icmp", "icmp6", "icmpv6", "ipv6-icmp":
		if six {
			return openflow.ProtoICMPv6
		}
		return openflow.ProtoICMP
	case "ah":
		return 51
	case "dccp":
		return 33
	case "egp":
		return 8
	case "esp":
		return 50
	case "gre":
		return 47
	case "igmp":
		return 2
	case "ospf":
		return 89
	case "pgm":
		return 113
	case "rsvp":
		return 46
	case "udplite":
		return 136
	case "vrrp":
		return 112
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return -1
	}
	return int(n)
}

// refused says that no rule of a port's groups allows a packet, which rules come near, and what they allow instead.
func (h *Host) refused(e *End, direction string, p *Packet) Verdict {
	side, word := p.Src, "from"
	if direction == "egress" {
		side, word = p.Dst, "to"
	}
	v := Verdict{Outcome: Dropped, Cause: "group"}
	if e.Port == nil {
		v.Text = fmt.Sprintf("no %s rule of the groups of %s allows %s %s %s", direction, e, p, word, side)
		return v
	}
	if len(e.Port.Groups) == 0 {
		v.Text = fmt.Sprintf("%s has no security group, so nothing may pass: %s %s %s neither", e, p, word, side)
		return v
	}
	var names, near, all []string
	for _, id := range e.Port.Groups {
		names = append(names, h.groupName(id))
		g := h.group(id)
		if g == nil || !g.Known {
			v.Hints = append(v.Hints, "the server has not told the rules of group "+h.groupName(id))
			continue
		}
		for i := range g.Rules {
			r := &g.Rules[i]
			text := fmt.Sprintf("rule %s of group %s: %s", short(r.ID), h.groupName(id), h.Named(r.Text))
			switch fits(r, direction, p) {
			case allowed:
				v.Cause = "missing-flow"
				v.Text = fmt.Sprintf("rule %s of group %s allows %s %s %s, but its flow is not in the switch", short(r.ID), h.groupName(id), p, word, side)
				return v
			case maybe:
				near = append(near, fmt.Sprintf("%s, and %s is no member", text, side))
			case stranger:
				near = append(near, fmt.Sprintf("%s, which %s is not", text, side))
			case other:
				if r.Direction == direction && (r.EtherType == "IPv6") == side.Is6() {
					all = append(all, text)
				}
			}
		}
	}
	label := "group "
	if len(names) > 1 {
		label = "groups "
	}
	v.Text = fmt.Sprintf("no %s rule of %s%s allows %s %s %s", direction, label, strings.Join(names, ", "), p, word, side)
	v.Hints = append(v.Hints, near...)
	if len(near) == 0 {
		v.Hints = append(v.Hints, fmt.Sprintf("%s (%s) has these %s rules:", e, e.Port.ID, direction))
		if len(all) == 0 {
			v.Hints[len(v.Hints)-1] = fmt.Sprintf("%s (%s) has no %s rule at all for IPv%d", e, e.Port.ID, direction, version(side))
		}
		v.Hints = append(v.Hints, all[:min(len(all), maxHints)]...)
		if n := len(all) - maxHints; n > 0 {
			v.Hints = append(v.Hints, fmt.Sprintf("and %d more: patchbay explain %s", n, portName(e.Port)))
		}
	}
	return v
}

const maxHints = 8

func version(a netip.Addr) int {
	if a.Is6() {
		return 6
	}
	return 4
}

// admitting finds the rule that let a packet pass, if it can be told.
func (h *Host) admitting(e *End, direction string, p *Packet) string {
	if e.Port == nil {
		return ""
	}
	best, text := other, ""
	for _, id := range e.Port.Groups {
		g := h.group(id)
		if g == nil {
			continue
		}
		for i := range g.Rules {
			if f := fits(&g.Rules[i], direction, p); f >= maybe && f > best {
				best, text = f, fmt.Sprintf("rule %s of group %s: %s", short(g.Rules[i].ID), h.groupName(id), h.Named(g.Rules[i].Text))
			}
		}
	}
	return text
}
