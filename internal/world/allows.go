// SPDX-License-Identifier: Apache-2.0

package world

import "net/netip"

// Connection is one between two addresses of a segment, as its first packet shows it.
type Connection struct {
	Src, Dst           netip.Addr
	Protocol           uint8
	DstPort            uint16
	ICMPType, ICMPCode uint8
}

// Allows says whether the rules of every filtered port here, to or from which the connection goes, allow it to begin.
// Nobody's connections are not allowed, and neither are those that only a peer of all addresses would allow: it is a
// question about what may be forgotten, so a doubt means no.
func (w *World) Allows(vlan uint16, c Connection) bool {
	found := false
	for _, s := range w.Segments.byKey {
		if s.VLAN != vlan {
			continue
		}
		for id := range s.ports {
			p := w.ports[id]
			if p == nil || !w.Filtered(p) {
				continue
			}
			for _, own := range peersOf(p.Details.Member()) {
				if own.Prefix.Contains(c.Dst) {
					if found = w.Groups.portAllows(p, Ingress, c, c.Src); !found {
						return false
					}
				}
				if own.Prefix.Contains(c.Src) {
					if found = w.Groups.portAllows(p, Egress, c, c.Dst); !found {
						return false
					}
				}
			}
		}
	}
	return found
}

func (w *Groups) portAllows(p *Port, d Direction, c Connection, other netip.Addr) bool {
	for _, group := range p.Groups {
		for _, r := range w.Rules(group) {
			if r.Direction == d && r.covers(c) && w.members.otherSide(r, other) {
				return true
			}
		}
	}
	return false
}

// covers says whether the rule is about connections of the kind, whoever the other side is.
func (r Rule) covers(c Connection) bool {
	version := uint8(6)
	if c.Dst.Is4() {
		version = 4
	}
	switch {
	case r.IPVersion != version:
		return false
	case r.Protocol == AnyProtocol:
		return true
	case r.Protocol != int(c.Protocol):
		return false
	case r.isICMP():
		return (r.Min == nil || *r.Min == int(c.ICMPType)) && (r.Max == nil || *r.Max == int(c.ICMPCode))
	}
	return (r.Min == nil || *r.Min <= int(c.DstPort)) && (r.Max == nil || int(c.DstPort) <= *r.Max)
}

// otherSide says whether the rule lets an address be on the other side.
func (w *Members) otherSide(r Rule, other netip.Addr) bool {
	if r.Remote == "" {
		return !r.Prefix.IsValid() || r.Prefix.Contains(other)
	}
	remote := w.remotes[r.Remote]
	if remote == nil {
		return false
	}
	for bits := other.BitLen(); bits > 0; bits-- {
		if prefix, err := other.Prefix(bits); err == nil && remote.peers[Peer{Prefix: prefix}] > 0 {
			return true
		}
	}
	return false
}
