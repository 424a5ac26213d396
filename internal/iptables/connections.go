// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Connections describes tracked connections that no rule allows any more. Conditions that are not set are met by all.
type Connections struct {
	Zone uint16
	// Whole stands for all connections of the zone.
	Whole bool
	// Direction is that of the first packet.
	Direction world.Direction
	Version   uint8
	// Local is the port's side, Remote the other one.
	Local, Remote netip.Prefix
	Protocol      int
	// Ports are the destination ports from the first to the second, if Ported.
	Ported bool
	Ports  [2]uint16
}

// Match returns whether a connection of the zone is one of those.
func (c *Connections) Match(t conntrack.Connection) bool {
	if c.Whole {
		return true
	}
	local, remote := t.Dst, t.Src
	if c.Direction == world.Egress {
		local, remote = t.Src, t.Dst
	}
	switch {
	case versionOf(t.Dst) != c.Version,
		c.Local.IsValid() && !c.Local.Contains(local),
		c.Remote.IsValid() && !c.Remote.Contains(remote),
		c.Protocol > 0 && c.Protocol != int(t.Protocol),
		c.Ported && (t.DstPort < c.Ports[0] || t.DstPort > c.Ports[1]):
		return false
	}
	return true
}

// narrowed returns the connections that a port may no longer have after its facts have changed: those of rules that are gone, and those of
// its addresses that are gone.
func narrowed(before, after *Port, zone uint16) []Connections {
	if zone == 0 || before.Kind != Filtered {
		return nil
	}
	var out []Connections
	for _, version := range []uint8{4, 6} {
		locals := before.addresses(version)
		still := after.addresses(version)
		for _, local := range locals {
			if !slices.Contains(still, local) {
				for _, d := range []world.Direction{world.Egress, world.Ingress} {
					out = append(out, Connections{Zone: zone, Direction: d, Version: version, Local: local, Protocol: world.AnyProtocol})
				}
			}
		}
		if after.Kind != Filtered {
			continue // everything is allowed now
		}
		for i := range before.Rules {
			r := &before.Rules[i]
			if r.IPVersion != version || slices.ContainsFunc(after.Rules, func(s world.Rule) bool { return sameTraffic(r, &s) }) {
				continue
			}
			for _, local := range locals {
				out = append(out, connectionsOf(r, zone, local))
			}
		}
	}
	return out
}

// connectionsOf returns the connections that a rule allowed to one address of the port. Those of a rule about members of a group are not
// limited to them: other rules that allow some of these let them begin anew.
func connectionsOf(r *world.Rule, zone uint16, local netip.Prefix) Connections {
	c := Connections{Zone: zone, Direction: r.Direction, Version: r.IPVersion, Local: local, Protocol: r.Protocol, Remote: r.Prefix}
	switch r.Protocol {
	case protoTCP, protoUDP, protoSCTP, protoDCCP, protoUDPLite:
		if r.Min != nil && r.Max != nil {
			c.Ported, c.Ports = true, [2]uint16{uint16(*r.Min), uint16(*r.Max)}
		}
	}
	return c
}

// sameTraffic returns whether two rules allow the same.
func sameTraffic(r, s *world.Rule) bool {
	equal := func(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }
	return r.Direction == s.Direction && r.IPVersion == s.IPVersion && r.Protocol == s.Protocol && r.Prefix == s.Prefix &&
		r.Remote == s.Remote && equal(r.Min, s.Min) && equal(r.Max, s.Max)
}

// left returns the connections of a port with members of a group that are in it no more.
func left(p *Port, zone uint16, remote string, version uint8, members []netip.Prefix) []Connections {
	var out []Connections
	for _, d := range []world.Direction{world.Egress, world.Ingress} {
		if !slices.ContainsFunc(p.Rules, func(r world.Rule) bool {
			return r.Remote == remote && r.IPVersion == version && r.Direction == d
		}) {
			continue
		}
		for _, local := range p.addresses(version) {
			for _, m := range members {
				out = append(out, Connections{Zone: zone, Direction: d, Version: version, Local: local, Remote: m, Protocol: world.AnyProtocol})
			}
		}
	}
	return out
}
