// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Packets can be sent straight to their port or bridge ([agent] explicitly_egress_direct), instead of leaving it to
// ordinary switching, which floods those whose way it has not learned. With filters that is the end of theirs, see
// filters.direct; without, it has tables of its own.

const directReason = "[agent] explicitly_egress_direct"

// directly says whether packets are sent straight without any filters.
func (c *compiler) directly() bool {
	return c.w.Config.EgressDirect && (!c.w.Config.Filter || c.w.Config.Hybrid)
}

func (c *compiler) directBase(br string) {
	if !c.directly() {
		return
	}
	names := []string{}
	if c.w.Config.Tunnels() {
		names = append(names, c.w.Config.IntPatch)
	}
	for _, bridge := range c.physical() {
		names = append(names, world.IntPatchName(bridge))
	}
	for _, name := range names {
		if p := c.w.OFPort(name); p != 0 {
			c.flow(br, directReason, of.Flow{
				Table: intTransient, Priority: 4, Match: of.Match{of.FromPort(p)}, Actions: []of.Action{of.GotoTable(intDirect)},
			})
		}
	}
	c.flow(br, directReason, of.Flow{Table: intDirect, Actions: []of.Action{of.GotoTable(intEgress)}})
}

// fromOtherBridges matches packets that no port of this host sent. Those of this host's ports have their network in the register, whatever VLAN
// the port writes into the frame.
func fromOtherBridges() of.Term { return of.Num(regNetwork, 0) }

// unfiltered compiles how packets get straight to a port without filters and from it.
func (c *compiler) unfiltered(p *world.Port) {
	if !c.directly() {
		return
	}
	br, mac, vlan := c.w.Config.IntegrationBridge, hw(p.Details.MAC), p.Wiring.VLAN
	from, to := of.FromPort(p.VIF.OFPort), of.Output(p.VIF.OFPort)
	network, out := of.Num(regNetwork, uint64(vlan)), of.HW(of.EthDst, mac)
	c.flow(br, directReason, of.Flow{
		Table: intTransient, Priority: 9, Match: of.Match{from, of.HW(of.EthSrc, mac)},
		Actions: []of.Action{of.Set(regNetwork, of.Uint(uint64(vlan))), of.To(intDirect)},
	})
	c.flow(br, directReason, of.Flow{
		Table: intDirect, Priority: 12, Match: of.Match{out, of.VLAN(vlan), fromOtherBridges()}, Actions: []of.Action{of.PopVLAN{}, to},
	})
	c.flow(br, directReason, of.Flow{Table: intDirect, Priority: 12, Match: of.Match{out, network}, Actions: []of.Action{to}})
	if patch := c.wayOut(p.Wiring.Segment); patch != 0 {
		c.flow(br, directReason, of.Flow{
			Table: intEgress, Priority: 10, Match: of.Match{from, of.HW(of.EthSrc, mac), unicast()},
			Actions: []of.Action{of.PushVLAN(of.EtherVLAN), of.SetVLAN(vlan), of.Output(patch)},
		})
	}
}

// wayOut is the port of the integration bridge through which packets of a segment leave the host. Flat networks have none
// here: the Python agent leaves theirs to ordinary switching.
func (c *compiler) wayOut(key world.SegmentKey) uint32 {
	s := c.w.Segments.Get(key)
	switch {
	case s.Tunnelled():
		return c.w.OFPort(c.w.Config.IntPatch)
	case s.Type == "vlan":
		return c.w.OFPort(world.IntPatchName(c.w.Config.Physical[s.Physnet]))
	}
	return 0
}
