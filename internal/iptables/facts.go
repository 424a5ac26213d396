// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Kind is how the traffic of a port is treated.
type Kind uint8

// The kinds of ports.
const (
	Filtered Kind = iota
	Open          // port security is off
	Trusted       // a port of Neutron itself
	Absent        // rules of it go, whether all ports are known or not: flows filter it now
)

// Port is what has to be known of a port to filter it. It is a value: two ports with equal fields have equal rules.
type Port struct {
	ID   string
	Kind Kind
	MAC  neutron.MAC
	// FixedIPs and Pairs are the addresses under which the port may send.
	FixedIPs []netip.Addr
	Pairs    []Pair
	// Rules are those of all of its groups.
	Rules []world.Rule
	// Stateless: its connections are not tracked.
	Stateless bool
}

// Pair is an allowed address pair.
type Pair struct {
	MAC    neutron.MAC
	Prefix netip.Prefix
}

// PortOf returns what is to be known of a port. It is false for a port that has no bridge of its own, or that is not wired: no rule is
// made for such a port, and its VLAN keeps it apart.
func PortOf(w *world.World, id string) (Port, bool) {
	p := w.Port(id)
	if p == nil || p.Details == nil || !w.Bridged(p) {
		return Port{}, false
	}
	out := Port{ID: id, MAC: p.Details.MAC}
	switch {
	case w.Filtered(p):
	case !w.Trusted(p):
		return Port{}, false
	case p.Details.PortSecurityEnabled():
		out.Kind = Trusted
		return out, true
	default:
		out.Kind = Open
		return out, true
	}
	for _, f := range p.Details.FixedIPs {
		if f.IP.IsValid() {
			out.FixedIPs = append(out.FixedIPs, f.IP.WithZone(""))
		}
	}
	for _, pair := range p.Details.AllowedAddressPairs {
		mac := pair.MAC
		if mac == (neutron.MAC{}) {
			mac = p.Details.MAC
		}
		if pair.IP.IsValid() {
			out.Pairs = append(out.Pairs, Pair{mac, pair.IP.Masked()})
		}
	}
	for _, group := range p.Groups {
		rules := w.Groups.AllRules(group)
		out.Rules = append(out.Rules, rules...)
		out.Stateless = out.Stateless || len(rules) > 0 && w.Groups.Stateless(group)
	}
	return out, true
}

// equals returns whether two ports have equal rules. A port that has not changed is the same pointer.
func (p *Port) equals(o *Port) bool { return p == o || reflect.DeepEqual(p, o) }

// Remotes returns the groups and address groups that the rules of a port refer to, sorted.
func (p *Port) Remotes() []string {
	var out []string
	for _, r := range p.Rules {
		if r.Remote != "" && p.Kind == Filtered {
			out = append(out, r.Remote)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// addresses returns all that a port may send under, of one IP version.
func (p *Port) addresses(version uint8) []netip.Prefix {
	var out []netip.Prefix
	for _, ip := range p.FixedIPs {
		if versionOf(ip) == version {
			out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	for _, pair := range p.Pairs {
		if versionOf(pair.Prefix.Addr()) == version {
			out = append(out, pair.Prefix)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

func versionOf(ip netip.Addr) uint8 {
	if ip.Is4() {
		return 4
	}
	return 6
}
