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

// protocols are the numbers of protocols by the names that the server and ovs-ofctl use.
var protocols = map[string]int{
	"tcp": openflow.ProtoTCP, "udp": openflow.ProtoUDP, "sctp": openflow.ProtoSCTP, "ah": 51, "dccp": 33, "egp": 8, "esp": 50, "gre": 47,
	"igmp": 2, "ospf": 89, "pgm": 113, "rsvp": 46, "udplite": 136, "vrrp": 112,
}

// protocolNumber returns the number of a protocol; the number stands for itself. -1: no protocol of IP.
func protocolNumber(name string, six bool) int {
	switch name = strings.ToLower(name); name {
	case "icmp", "icmp6", "icmpv6", "ipv6-icmp":
		if six {
			return openflow.ProtoICMPv6
		}
		return openflow.ProtoICMP
	}
	if n, ok := protocols[name]; ok {
		return n
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return -1
	}
	return int(n)
}

// refused says that no rule of a port's groups allows a packet, which rules come near, and what they allow instead.
func (j *judge) refused(e *End, direction string) Verdict {
	p := &j.Packet
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
		names = append(names, j.h.groupName(id))
		g := j.h.group(id)
		if g == nil || !g.Known {
			v.Hints = append(v.Hints, "the rules of group "+j.h.groupName(id)+" are not pulled yet")
			continue
		}
		for i := range g.Rules {
			r := &g.Rules[i]
			text := fmt.Sprintf("rule %s of group %s: %s", short(r.ID), j.h.groupName(id), j.h.Named(r.Text))
			switch fits(r, direction, p) {
			case allowed:
				v.Cause = "missing-flow"
				v.Text = fmt.Sprintf("rule %s of group %s allows %s %s %s, but its flow is not in the switch", short(r.ID), j.h.groupName(id), p, word, side)
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
func (j *judge) admitting(e *End, direction string) string {
	if e.Port == nil {
		return ""
	}
	best, text := other, ""
	for _, id := range e.Port.Groups {
		g := j.h.group(id)
		if g == nil {
			continue
		}
		for i := range g.Rules {
			if f := fits(&g.Rules[i], direction, &j.Packet); f >= maybe && f > best {
				best, text = f, fmt.Sprintf("rule %s of group %s: %s", short(g.Rules[i].ID), j.h.groupName(id), j.h.Named(g.Rules[i].Text))
			}
		}
	}
	return text
}
