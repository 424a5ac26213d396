// SPDX-License-Identifier: Apache-2.0

package dvr

import (
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Tables of the integration bridge.
const (
	intEntry         = 0
	intRouted        = 1 // routed packets from tunnels: the gateway becomes their sender again
	intRoutedPhys    = 2 // the same from physical networks
	intToGateway     = 3 // answers to this host's router address, from tunnels
	intToGatewayPhys = 4
)

// Tables of the tunnel bridge.
const (
	tunEntry     = 0
	tunRouted    = 1 // packets of this host's routers get its router address
	tunFromLocal = 2
	tunNotLearn  = 9 // router addresses of other hosts are not learned: they are everywhere
	tunLearn     = 10
)

// Tables of a physical bridge.
const (
	physEntry     = 0
	physRouted    = 1
	physTranslate = 2 // local VLANs to the network's
	physNotLearn  = 3
)

// flood is a table of the tunnel bridge. The Python agent uses its number on physical bridges too, where nothing leads to it.
const flood = 22

const (
	typeARP   = 0x0806
	typeIPv6  = 0x86dd
	icmpv6    = 58
	routerAd  = 134
	replyARP  = 2
	otherHost = "distributed routers of another host"
)

// Compile implements extension.Extension.
func (r *routing) Compile(o world.Object, want *pipeline.Want) {
	switch o := o.(type) {
	case world.BridgeObject:
		r.bridge(string(o), want)
	case world.SegmentObject:
		r.segment(r.w.Segments.Get(world.SegmentKey(o)), want)
	case world.PortObject:
		r.port(r.w.Port(string(o)), want)
	case world.ExtensionObject:
		if mac, ok := own.Key(o); ok && r.macs[mac] {
			r.otherHost(of.MAC(mac), want)
		}
	}
}

// bridge changes the base of a bridge. It does not depend on what the server says, but for the answers to our router address.
func (r *routing) bridge(br string, want *pipeline.Want) {
	cfg := &r.w.Config
	goTo := func(table uint8, priority uint16, reason string, to uint8, match ...of.Term) {
		want.Flow(br, reason, of.Flow{Table: table, Priority: priority, Match: match, Actions: []of.Action{of.GotoTable(to)}})
	}
	if r.w.View.BridgeByName(br) == nil {
		return
	}
	if br == cfg.IntegrationBridge {
		for _, table := range []uint8{intRouted, intRoutedPhys} {
			want.Flow(br, "routed packets for nobody here", of.Flow{Table: table, Priority: 1})
		}
		if r.mac == (neutron.MAC{}) {
			return
		}
		const reason = "answers to this host's router address"
		to := of.HW(of.EthDst, of.MAC(r.mac))
		r.physical(func(_ string, inner, _ uint32) { goTo(intEntry, 5, reason, intToGatewayPhys, of.FromPort(inner), to) })
		if p := r.patch(cfg.IntPatch); p != 0 {
			goTo(intEntry, 5, reason, intToGateway, of.FromPort(p), to)
		}
		return
	}
	if cfg.Tunnels() && br == cfg.TunnelBridge {
		if p := r.patch(cfg.TunPatch); p != 0 {
			goTo(tunEntry, 1, "packets of this host's ports", tunRouted, of.FromPort(p))
		}
		goTo(tunRouted, 0, "not routed here", tunFromLocal)
		goTo(tunNotLearn, 0, "not routed elsewhere", tunLearn)
		return
	}
	r.physical(func(name string, _, outer uint32) {
		if name != br {
			return
		}
		from := of.FromPort(outer)
		goTo(physEntry, 2, "packets of this host's ports", physRouted, from)
		goTo(physEntry, 1, "packets of others", physNotLearn)
		goTo(physRouted, 0, "not routed here", physTranslate)
		want.Flow(br, "packets of this host that belong to no network on this bridge", of.Flow{Table: physTranslate, Priority: 2, Match: of.Match{from}})
		want.Flow(br, "ordinary switching on the physical network", of.Flow{
			Table: physNotLearn, Priority: 1, Actions: []of.Action{of.Output(of.PortNormal)},
		})
	})
}

// physical goes through the physical bridges whose patch to the integration bridge is there: its two ends.
func (r *routing) physical(do func(bridge string, inner, outer uint32)) {
	seen := map[string]bool{}
	for _, br := range r.w.Config.Physical {
		inner, outer := r.w.OFPort(world.IntPatchName(br)), r.w.OFPort(world.PhysPatchName(br))
		if inner != 0 && outer != 0 && !seen[br] && r.w.View.BridgeByName(br) != nil {
			do(br, inner, outer)
		}
		seen[br] = true
	}
}

// patch is the number of a patch port to or from the tunnel bridge; 0 when there is none.
func (r *routing) patch(name string) uint32 {
	if !r.w.Config.Tunnels() {
		return 0
	}
	return r.w.OFPort(name)
}

// segment leads packets of a network past the tables of routing.
func (r *routing) segment(s *world.Segment, want *pipeline.Want) {
	if s == nil || s.Type == "local" {
		return
	}
	for i, f := range want.Flows {
		flow, err := f.Entry.Flow()
		if err != nil {
			want.Err = err
			return
		}
		switch last := len(flow.Actions) - 1; {
		case s.Tunnelled() && f.Bridge == r.w.Config.TunnelBridge && last >= 0 && flow.Actions[last] == of.Action(of.GotoTable(tunLearn)):
			flow.Actions[last] = of.GotoTable(tunNotLearn)
		case !s.Tunnelled() && f.Bridge == r.w.Config.Physical[s.Physnet] && flow.Table == physEntry:
			flow.Table = physTranslate
		default:
			continue
		}
		if want.Flows[i].Entry, err = flow.Entry(); err != nil {
			want.Err = err
		}
	}
}

// otherHost takes in packets of the routers of another host.
func (r *routing) otherHost(mac of.MAC, want *pipeline.Want) {
	cfg := &r.w.Config
	from := of.HW(of.EthSrc, mac)
	arrive := func(priority uint16, patch uint32, to uint8) {
		want.Flow(cfg.IntegrationBridge, otherHost, of.Flow{
			Table: intEntry, Priority: priority, Match: of.Match{of.FromPort(patch), from}, Actions: []of.Action{of.GotoTable(to)},
		})
	}
	pass := func(br string, table uint8, priority uint16, patch uint32) {
		want.Flow(br, otherHost, of.Flow{Table: table, Priority: priority, Match: of.Match{from}, Actions: []of.Action{of.Output(patch)}})
	}
	r.physical(func(br string, inner, outer uint32) {
		arrive(4, inner, intRoutedPhys)
		pass(br, physNotLearn, 2, outer)
	})
	if inner, outer := r.patch(cfg.IntPatch), r.patch(cfg.TunPatch); inner != 0 && outer != 0 {
		arrive(2, inner, intRouted)
		pass(cfg.TunnelBridge, tunNotLearn, 1, outer)
	}
}

func (r *routing) port(p *world.Port, want *pipeline.Want) {
	if p == nil || r.mac == (neutron.MAC{}) {
		return
	}
	role, s := r.ports[p.ID], r.w.Segments.Get(p.Wiring.Segment)
	if role.part == none || s == nil {
		return
	}
	if role.part == gateway {
		r.gateway(p, s, want)
		return
	}
	for i, id := range role.subnets {
		// A SNAT port is reached by routers of other hosts, whether there is one here or not.
		sub := r.subnets[id]
		if sub.mac == (neutron.MAC{}) || !sub.owned && role.part != snat {
			continue
		}
		r.routedTo(p, s, p.VIF.MAC, ownMAC, of.MAC(sub.mac), want)
		if role.part == serviced {
			for _, mac := range pairMACs(p, p.Details.FixedIPs[i].IP.Is4()) {
				r.routedTo(p, s, mac, pairMAC, of.MAC(sub.mac), want)
			}
		}
	}
}

// Priorities of the flows of routed packets to a port. A MAC of an address pair counts below the MACs that ports have themselves, as
// with the filters, so that a pair cannot take the packets of another port. The Python agent has one priority for both.
const ownMAC, pairMAC = 20, 19

// pairMACs returns the other MACs under which a port is routed to in a subnet of IPv4 or IPv6: those of address pairs of a single
// address, each once. The Python agent compares the address with the subnet's, which is not known here.
func pairMACs(p *world.Port, v4 bool) []neutron.MAC {
	var macs []neutron.MAC
	for _, pair := range p.Details.AllowedAddressPairs {
		single := pair.IP.IsValid() && pair.IP.IsSingleIP() && pair.IP.Addr().Is4() == v4
		if single && pair.MAC != (neutron.MAC{}) && pair.MAC != p.VIF.MAC && !slices.Contains(macs, pair.MAC) {
			macs = append(macs, pair.MAC)
		}
	}
	return macs
}

// routedTo lets routed packets to a MAC come to a port as if its gateway had sent them.
func (r *routing) routedTo(p *world.Port, s *world.Segment, mac neutron.MAC, priority uint16, gateway of.MAC, want *pipeline.Want) {
	br, reason := r.w.Config.IntegrationBridge, "routed packets reach port "+p.ID
	table, to := uint8(intRoutedPhys), of.HW(of.EthDst, of.MAC(mac))
	from, translate := r.arrival(s)
	if s.Tunnelled() {
		table, from = intRouted, of.Match{of.VLAN(s.VLAN)} // only packets from the tunnel bridge come to this table
	}
	if from != nil {
		want.Flow(br, reason+" from their gateway", of.Flow{
			Table: table, Priority: priority, Match: from.With(to),
			Actions: append(append([]of.Action{of.Set(of.EthSrc, gateway.Value())}, translate...), of.GotoTable(pipeline.TableRateLimit)),
		})
	}
	want.Flow(br, reason, of.Flow{
		Table: pipeline.TableTransient, Priority: priority, Match: of.Match{of.VLAN(s.VLAN), to},
		Actions: []of.Action{of.PopVLAN{}, of.Output(p.VIF.OFPort)},
	})
}

// arrival matches packets of a segment as they come to the integration bridge from other hosts, and says how their VLAN
// becomes the local one. It is nil while the patch has no number.
//
// The Python agent matches the VLAN of the physical network alone, and does not translate it. That VLAN can be the local
// one of another network on this host, whose ports then get the packets.
func (r *routing) arrival(s *world.Segment) (from of.Match, translate []of.Action) {
	patch := r.patch(r.w.Config.IntPatch)
	if !s.Tunnelled() {
		patch = r.w.OFPort(world.IntPatchName(r.w.Config.Physical[s.Physnet]))
	}
	switch {
	case patch == 0:
		return nil, nil
	case s.Tunnelled():
		return of.Match{of.FromPort(patch), of.VLAN(s.VLAN)}, nil // the tunnel bridge has translated it
	case s.Type == "flat":
		return of.Match{of.FromPort(patch), of.Untagged()}, []of.Action{of.PushVLAN(of.EtherVLAN), of.SetVLAN(s.VLAN)}
	}
	return of.Match{of.FromPort(patch), of.VLAN(uint16(s.Key.ID))}, []of.Action{of.SetVLAN(s.VLAN)}
}

// gateway hides a router's interface from the other hosts, where the same address is.
func (r *routing) gateway(p *world.Port, s *world.Segment, want *pipeline.Want) {
	cfg := &r.w.Config
	own, host := of.MAC(p.VIF.MAC), of.MAC(r.mac)
	local := of.VLAN(s.VLAN)
	arrived, out, routed, onward := uint8(intToGatewayPhys), cfg.Physical[s.Physnet], uint8(physRouted), uint8(physTranslate)
	if s.Tunnelled() {
		arrived, out, routed, onward = intToGateway, cfg.TunnelBridge, tunRouted, tunFromLocal
	}
	reason := "gateway " + p.ID + " is on every host"
	want.Flow(cfg.IntegrationBridge, "answers to gateway "+p.ID, of.Flow{
		Table: arrived, Priority: 5, Match: of.Match{local, of.HW(of.EthDst, host)},
		Actions: []of.Action{of.Set(of.EthDst, own.Value()), of.PopVLAN{}, of.Output(p.VIF.OFPort)},
	})
	ip := p.Details.FixedIPs[0].IP
	asked := of.Match{local, of.Num(of.EthType, typeIPv6), of.Num(of.IPProto, icmpv6), of.Num(of.ICMPv6Type, routerAd), of.HW(of.EthSrc, own)}
	if ip.Is4() {
		asked = of.Match{local, of.Num(of.EthType, typeARP), of.IP(of.ARPTPA, netip.PrefixFrom(ip, 32))}
	}
	want.Flow(out, reason+": it is not asked for elsewhere", of.Flow{Table: flood, Priority: 3, Match: asked})
	want.Flow(out, reason+": packets to it stay here", of.Flow{Table: routed, Priority: 2, Match: of.Match{local, of.HW(of.EthDst, own)}})
	want.Flow(out, reason+": what it sends leaves with this host's router address", of.Flow{
		Table: routed, Priority: 1, Match: of.Match{local, of.HW(of.EthSrc, own)},
		Actions: []of.Action{of.Set(of.EthSrc, host.Value()), of.GotoTable(onward)},
	})
	from, translate := r.arrival(s)
	sub := r.subnets[p.Details.FixedIPs[0].SubnetID]
	if from == nil || !ip.Is4() || sub.mac == (neutron.MAC{}) {
		return
	}
	// The Python agent takes such an answer from anybody, ahead of the checks of senders: a VM could tell the gateway any address.
	target := of.MAC(sub.mac)
	want.Flow(cfg.IntegrationBridge, "answers to gateway "+p.ID+" that were sent to this host's router address", of.Flow{
		Table: intEntry, Priority: 99,
		Match:   from.With(of.Num(of.EthType, typeARP), of.HW(of.EthDst, host), of.Num(of.ARPOp, replyARP), of.HW(of.ARPTHA, target)),
		Actions: append(append([]of.Action{of.Set(of.EthDst, target.Value())}, translate...), of.GotoTable(pipeline.TableRateLimit)),
	})
}
