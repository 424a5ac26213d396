// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// priorities is how many there are for rules about members of a group.
const priorities = 4

// peer compiles the half of conjunctions that is about the other side: an address that members of groups have. The flows
// serve all ports of the segment, whatever their number.
func (c *compiler) peer(key world.SegmentKey, peer world.Peer) {
	s := c.w.Segments.Get(key)
	all := c.w.Members.PeerConjunctions(key, peer)
	if s == nil || len(all) == 0 {
		return
	}
	var ids [2][priorities][]uint32 // by direction
	var remotes []string
	version := uint8(6)
	if peer.Prefix.Addr().Is4() {
		version = 4
	}
	for _, conj := range all {
		base := c.w.Members.ConjunctionID(conj)
		if base == 0 || conj.IPVersion != version {
			continue
		}
		remotes = append(remotes, conj.Remote)
		used := c.w.Groups.Offsets(conj)
		for offset := range uint32(priorities) {
			if used&(1<<offset) != 0 {
				list := &ids[conj.Direction][offset]
				*list = append(*list, base+2*offset)
			}
		}
	}
	slices.Sort(remotes)
	reason := peerName(peer) + " is a member of " + strings.Join(slices.Compact(remotes), ", ")
	for _, d := range []world.Direction{world.Egress, world.Ingress} {
		m := of.Match{etherTypeOf(version), of.Num(regNetwork, uint64(s.VLAN)), of.IP(otherSide(d, version), peer.Prefix)}
		if peer.MAC != (neutron.MAC{}) {
			m = m.With(of.HW(of.EthSrc, hw(peer.MAC)))
		}
		for offset, list := range ids[d] {
			if len(list) == 0 {
				continue
			}
			slices.Sort(list)
			for _, state := range states {
				c.flow(c.w.Config.IntegrationBridge, reason, of.Flow{
					Table: rulesTable(d), Priority: conjunctive + uint16(offset), Match: m.With(state.half()), Actions: conjunctions(list, state, 1),
				})
			}
		}
	}
}

func peerName(p world.Peer) string {
	switch {
	case p.MAC != (neutron.MAC{}):
		return p.MAC.String() + " under any address"
	case p.Prefix.IsSingleIP():
		return p.Prefix.Addr().String()
	}
	return p.Prefix.String()
}
