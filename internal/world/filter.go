// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"net/netip"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Direction is that of traffic, seen from the port.
type Direction uint8

// The directions.
const (
	Egress Direction = iota
	Ingress
)

// String is Neutron's word.
func (d Direction) String() string { return [...]string{"egress", "ingress"}[d] }

// Rule allows one kind of traffic, with everything that Neutron leaves open to interpretation worked out. Rules that
// allow the same are equal.
type Rule struct {
	ID        string
	Direction Direction
	// IPVersion is 4 or 6.
	IPVersion uint8
	// Protocol is the number of the protocol; AnyProtocol for all of them.
	Protocol int
	// Min and Max are destination ports, or type and code of ICMP; nil where not given.
	Min, Max *int
	// Prefix is the other side's addresses; invalid for any.
	Prefix netip.Prefix
	// Remote is the group or address group that the other side must be a member of; empty for none.
	Remote string
}

// AnyProtocol stands for all protocols.
const AnyProtocol = -1

// Conjunction identifies what one block of conjunction ids stands for: traffic in one direction that the rules of a group
// allow to the members of another.
type Conjunction struct {
	Group     string
	Remote    string // a security group or an address group
	Direction Direction
	IPVersion uint8
}

// Compare orders conjunctions.
func (c Conjunction) Compare(d Conjunction) int {
	return cmp.Or(
		cmp.Compare(c.Group, d.Group), cmp.Compare(c.Remote, d.Remote),
		cmp.Compare(c.Direction, d.Direction), cmp.Compare(c.IPVersion, d.IPVersion),
	)
}

// Peer is an address that may be on the other side: that of a member of a remote group, or of an address group. It is
// always masked. MAC is zero unless the prefix is of length 0, where the address alone would let everyone in.
type Peer struct {
	Prefix netip.Prefix
	MAC    neutron.MAC
}
