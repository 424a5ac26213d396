// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"bytes"
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// What the filters keep in registers while a packet is with them.
const (
	regPort    = of.Reg5 // number of the port whose filters are asked
	regNetwork = of.Reg6 // local VLAN, which is the zone of connection tracking as well
	regAllowed = of.Reg7 // id of the conjunction that allowed the packet, for whoever logs it
)

// revoked is the mark of a connection that no rule allows any more.
const revoked = 1

// fresh is the state of a connection's first packet.
func fresh() of.Term { return of.CTFlags(of.CTNew, of.CTEst) }

func track(table uint8) of.Action {
	return of.ConnTrack{Recirc: true, Table: table, ZoneFrom: regNetwork.Bits(0, 15)}
}

func commit(exec ...of.Action) of.Action {
	return of.ConnTrack{Commit: true, ZoneFrom: regNetwork.Bits(0, 15), Exec: exec}
}

func setPort(n uint32) of.Action { return of.Set(regPort, of.Uint(uint64(n))) }

var etherTypesIP = []uint64{of.EtherIPv4, of.EtherIPv6}

// filterBase compiles the filters' flows that concern no port. They are there with the driver, even when it is told to filter
// nothing.
//
// The Python agent adds the two flows against packets that belong to no connection with every port, always the same
// ones, and never takes them away. Here they are there from the start.
func (c *compiler) filterBase(br string) {
	for _, table := range []uint8{fwBaseEgress, fwRulesEgress, fwAcceptOrIngress, fwBaseIngress, fwRulesIngress} {
		c.flow(br, "what nothing allows", of.Flow{Table: table})
	}
	c.flow(br, "packets that another port's filters have tracked start anew", of.Flow{
		Table: fwBaseEgress, Priority: 110, Match: of.Match{of.CTFlags(of.CTTrk, 0)}, Actions: []of.Action{of.CTClear{}, of.To(fwBaseEgress)},
	})
	if c.w.Config.Filter {
		for _, table := range []uint8{fwRulesEgress, fwRulesIngress} {
			c.flow(br, "packets that belong to no connection", of.Flow{
				Table: table, Priority: 50, Match: of.Match{of.CTFlags(of.CTInv|of.CTTrk, 0)}, Actions: []of.Action{of.To(fwDropped)},
			})
		}
		c.noServers(br)
	}
	c.flow(br, "new connections that were let out", of.Flow{Table: fwAcceptedEgress, Priority: 1, Actions: []of.Action{of.To(fwAcceptedNormal)}})
	c.flow(br, "new connections that were let in: the packet has been delivered", of.Flow{Table: fwAcceptedIngress})
	c.flow(br, "what was not allowed", of.Flow{Table: fwDropped})
	c.flow(br, "what may leave a port, by ordinary switching", of.Flow{
		Table: fwAcceptedNormal, Priority: 1, Actions: []of.Action{of.Output(of.PortNormal)},
	})
	if c.w.Config.EgressDirect {
		c.flow(br, directReason, of.Flow{Table: intTransient, Priority: 2, Actions: []of.Action{of.To(fwAcceptedNormal)}})
	}
}

// noServers drops what ports send as DHCP servers in fragments. The switch shows no ports of fragments, so that the flows of the
// base table do not see them; connection tracking puts them together and knows. The Python agent lets them pass.
func (c *compiler) noServers(br string) {
	for _, dhcp := range []struct{ ether, from, to uint64 }{{of.EtherIPv4, 67, 68}, {of.EtherIPv6, 547, 546}} {
		c.flow(br, "a port must not act as a DHCP server, in fragments either", of.Flow{
			Table: fwRulesEgress, Priority: aboveRules,
			Match: of.Match{
				etherType(dhcp.ether), of.CTFlags(of.CTTrk, of.CTInv), of.Num(of.CTNwProto, of.ProtoUDP),
				of.Num(of.CTTpSrc, dhcp.from), of.Num(of.CTTpDst, dhcp.to),
			},
			Actions: []of.Action{of.To(fwDropped)},
		})
	}
}

// aboveRules is a priority above those of all rules.
const aboveRules = 78

// admit lets packets of a port into the pipeline, on a bridge whose default is to let none in.
func (c *compiler) admit(ofport uint32, reason string) {
	if c.w.Config.Filter && c.w.Config.FailClosed {
		c.flow(c.w.Config.IntegrationBridge, reason, of.Flow{
			Table: intEntry, Priority: 1, Match: of.Match{of.FromPort(ofport)}, Actions: []of.Action{of.GotoTable(intRateLimit)},
		})
	}
}

// localPort is the number under which the database has the port that every bridge is itself; OpenFlow has another.
const localPort = 65534

// foreign admits an interface of the integration bridge that stands for no port of Neutron's: a patch, the bridge itself,
// something that an operator has put there.
func (c *compiler) foreign(name string) {
	number, ok := c.w.PlainPort(name)
	if !ok {
		return
	}
	if number == localPort {
		number = of.PortLocal
	}
	c.admit(number, "interface "+name+" is no port of Neutron's")
}

// filters compiles one port that has some.
type filters struct {
	*compiler
	p      *world.Port
	bridge string
	number uint32
	vlan   uint16
}

func (c *compiler) filtersOf(p *world.Port) *filters {
	c.seen = map[of.Key]bool{}
	return &filters{c, p, c.w.Config.IntegrationBridge, p.VIF.OFPort, p.Wiring.VLAN}
}

func (f *filters) add(table uint8, priority uint16, reason string, m of.Match, actions ...of.Action) {
	f.flow(f.bridge, reason, of.Flow{Table: table, Priority: priority, Match: m, Actions: actions})
}

func (f *filters) from() of.Term       { return of.FromPort(f.number) }
func (f *filters) port() of.Term       { return of.Num(regPort, uint64(f.number)) }
func (f *filters) network() of.Term    { return of.Num(regNetwork, uint64(f.vlan)) }
func (f *filters) deliver() of.Action  { return of.Output(f.number) }
func (f *filters) remember() of.Action { return of.Set(regNetwork, of.Uint(uint64(f.vlan))) }

// trusted compiles a port that may send anything, and whose neighbours' filters are asked nevertheless.
func (c *compiler) trusted(p *world.Port) {
	f := c.filtersOf(p)
	const reason = "port is not filtered"
	c.admit(f.number, reason)
	f.add(intTransient, 100, reason, of.Match{f.from()}, setPort(f.number), f.remember(), of.To(fwAcceptOrIngress))
	f.add(fwAcceptOrIngress, 80, reason, of.Match{f.port()}, of.To(fwAcceptedNormal))
	f.direct()
}

// filtered compiles the filters of a port.
func (c *compiler) filtered(p *world.Port) {
	f := c.filtersOf(p)
	c.admit(f.number, "the filters of the port are in place")
	own := sendersOf(p)
	f.entry(own)
	f.egress(own)
	f.ingress()
	f.tracked()
	f.rules()
}

// Priorities of the flows that send packets by their destination MAC to a port's filters. A MAC of an address pair is claimed
// below a port's own MAC, so that a pair cannot take the packets of another port of the network.
const (
	ownMAC, pairMAC           = 90, 89 // in the transient table
	ownMACLocal, pairMACLocal = 100, 99
)

// entry sends packets from the port and to it to its filters.
//
// Packets to the port are known by the local VLAN alone. The Python agent also claims (physical VLAN, MAC), for routed
// packets of vlan and flat networks that distributed routing leaves untranslated. A physical VLAN can be another network's
// local VLAN; package dvr therefore translates them, and they need no claim.
func (f *filters) entry(own addresses) {
	f.add(intTransient, 100, "packets from the port", of.Match{f.from()}, setPort(f.number), f.remember(), of.To(fwBaseEgress))
	for _, mac := range own.macs {
		const reason = "packets to the port"
		transient, local := uint16(pairMAC), uint16(pairMACLocal)
		if mac == f.p.VIF.MAC {
			transient, local = ownMAC, ownMACLocal
		}
		to := of.HW(of.EthDst, hw(mac))
		f.add(intTransient, transient, reason, of.Match{to, of.VLAN(f.vlan)}, setPort(f.number), f.remember(), of.PopVLAN{}, of.To(fwBaseIngress))
		f.add(fwAcceptOrIngress, local, "packets of this host's ports to the port", of.Match{to, f.network()}, setPort(f.number), of.To(fwBaseIngress))
	}
}

// Messages of ICMPv6 that hosts need to find each other and their routers.
const (
	listenerQuery         = 130
	routerSolicitation    = 133
	routerAdvertisement   = 134
	neighborSolicitation  = 135
	neighborAdvertisement = 136
)

const permittedReason = "[securitygroup] permitted_ethertypes"

// egress checks what the port sends before its rules are asked: under its own addresses, and not as a server that leads
// others astray.
func (f *filters) egress(own addresses) {
	own4, own6 := own.v4, own.v6
	const address = "the port sends under its own address"
	icmp6 := func(kind uint64) of.Match {
		return of.Match{f.from(), f.port(), etherType(of.EtherIPv6), of.Num(of.IPProto, of.ProtoICMPv6), of.Num(of.ICMPv6Type, kind)}
	}
	udp := func(ether uint64, from, to uint64) of.Match {
		return of.Match{f.from(), f.port(), etherType(ether), of.Num(of.IPProto, of.ProtoUDP), of.Num(of.UDPSrc, from), of.Num(of.UDPDst, to)}
	}
	const lease = "the port asks for its address"
	for _, s := range own4 {
		mac := of.HW(of.EthSrc, hw(s.mac))
		f.add(fwBaseEgress, 95, address, of.Match{f.from(), f.port(), mac, etherType(of.EtherARP), of.IP(of.ARPSPA, s.ip)}, of.To(fwAcceptedNormal))
		f.add(fwBaseEgress, 65, address, of.Match{f.from(), f.port(), mac, etherType(of.EtherIPv4), of.IP(of.IPv4Src, s.ip)}, track(fwRulesEgress))
		f.add(fwBaseEgress, 80, lease, udp(of.EtherIPv4, 68, 67).With(mac, of.IP(of.IPv4Src, s.ip)), of.To(fwAcceptOrIngress))
	}
	f.add(fwBaseEgress, 80, lease, udp(of.EtherIPv4, 68, 67).With(
		of.HW(of.EthSrc, hw(f.p.VIF.MAC)), of.IP(of.IPv4Src, netip.PrefixFrom(netip.IPv4Unspecified(), 32)),
	), of.To(fwAcceptOrIngress))
	for _, s := range own6 {
		mac, ip := of.HW(of.EthSrc, hw(s.mac)), of.IP(of.IPv6Src, s.ip)
		for _, kind := range []uint64{listenerQuery, routerSolicitation, neighborSolicitation} {
			f.add(fwBaseEgress, 95, address, icmp6(kind).With(mac, ip), of.To(fwAcceptedNormal))
		}
		// An advertisement has three addresses, all of them the port's own, in any combination: VRRP tells of its virtual address
		// from others. Table 71 looks at the senders, table 24 at the target.
		for _, other := range own.macs {
			f.add(fwBaseEgress, 95, address, icmp6(neighborAdvertisement).With(of.HW(of.EthSrc, hw(other)), ip), of.To(intARPSpoof))
		}
		f.add(intARPSpoof, 2, "the port says where its own address is", icmp6(neighborAdvertisement).With(of.IP(of.NDTarget, s.ip)), of.To(fwAcceptedNormal))
		f.add(fwBaseEgress, 65, address, of.Match{f.from(), f.port(), mac, etherType(of.EtherIPv6), ip}, track(fwRulesEgress))
		f.add(fwBaseEgress, 80, lease, udp(of.EtherIPv6, 546, 547).With(mac, ip), of.To(fwAcceptOrIngress))
	}
	// The Python agent has this for MACs with an IPv4 address only. The announcement is about the MAC, whatever its addresses.
	for _, mac := range own.macs {
		f.add(fwBaseEgress, 95, "the hypervisor announces the port after a live migration",
			of.Match{f.from(), f.port(), of.HW(of.EthSrc, hw(mac)), etherType(of.EtherRARP)}, of.To(fwAcceptedNormal))
	}
	for _, ether := range f.w.Config.PermittedEtherTypes {
		for _, mac := range own.macs {
			f.add(fwBaseEgress, 95, permittedReason,
				of.Match{f.from(), f.port(), of.HW(of.EthSrc, hw(mac)), etherType(uint64(ether))}, of.To(fwAcceptedNormal))
		}
	}
	f.add(fwBaseEgress, 70, "the port must not act as a DHCP server", udp(of.EtherIPv4, 67, 68), of.To(fwDropped))
	f.add(fwBaseEgress, 70, "the port must not act as a DHCP server", udp(of.EtherIPv6, 547, 546), of.To(fwDropped))
	f.add(fwBaseEgress, 70, "the port must not act as a router", icmp6(routerAdvertisement), of.To(fwDropped))
	f.add(fwBaseEgress, 10, "the port sends under an address that is not its own", of.Match{f.from(), f.port()}, of.CTClear{}, of.To(fwDropped))

	for _, ether := range etherTypesIP {
		f.add(fwAcceptOrIngress, 90, "new connections of the port", of.Match{etherType(ether), f.port(), fresh()}, commit(), of.To(fwAcceptedEgress))
	}
	f.add(fwAcceptOrIngress, 80, "packets of the port that are allowed out", of.Match{f.port()}, of.To(fwAcceptedNormal))
	f.direct()
}

// ingress lets in what a host needs, and tracks the rest.
func (f *filters) ingress() {
	f.add(fwBaseIngress, 100, "ARP", of.Match{etherType(of.EtherARP), f.port()}, f.deliver())
	for _, ether := range f.w.Config.PermittedEtherTypes {
		f.add(fwBaseIngress, 100, permittedReason, of.Match{etherType(uint64(ether)), f.port()}, f.deliver())
	}
	for _, kind := range []uint64{listenerQuery, neighborSolicitation, neighborAdvertisement, routerAdvertisement} {
		f.add(fwBaseIngress, 100, "IPv6 neighbours and routers", of.Match{
			etherType(of.EtherIPv6), f.port(), of.Num(of.IPProto, of.ProtoICMPv6), of.Num(of.ICMPv6Type, kind),
		}, f.deliver())
	}
	for _, dhcp := range []struct{ ether, from, to uint64 }{{of.EtherIPv4, 67, 68}, {of.EtherIPv6, 547, 546}} {
		f.add(fwBaseIngress, 95, "answers of DHCP servers", of.Match{
			etherType(dhcp.ether), f.port(), of.Num(of.IPProto, of.ProtoUDP), of.Num(of.UDPSrc, dhcp.from), of.Num(of.UDPDst, dhcp.to),
		}, f.deliver())
	}
	for _, ether := range etherTypesIP {
		f.add(fwBaseIngress, 90, "find the connection of the packet", of.Match{etherType(ether), f.port(), of.CTFlags(0, of.CTTrk)}, track(fwRulesIngress))
	}
	f.add(fwBaseIngress, 80, "the connection of the packet is known", of.Match{f.port(), of.CTFlags(of.CTTrk, 0)}, of.To(fwRulesIngress))
}

// tracked decides by the state of connections. What initiators send is not here: each of their packets needs a rule, so that
// the end of a rule is the end of its connections.
func (f *filters) tracked() {
	in := []of.Action{f.deliver()}
	if f.w.View.Capabilities().HWOffload && !f.w.Config.EgressDirect {
		// A card does not take on what switching has not learned.
		in = []of.Action{of.PushVLAN(of.EtherVLAN), of.SetVLAN(f.vlan), of.Output(of.PortNormal)}
	}
	for _, d := range []struct {
		table uint8
		pass  []of.Action
	}{{fwRulesEgress, []of.Action{of.To(fwAcceptedNormal)}}, {fwRulesIngress, in}} {
		f.add(d.table, 50, "connections that no rule allows any more", of.Match{f.port(), of.Num(of.CTMark, revoked)}, of.To(fwDropped))
		valid := of.Match{f.port(), of.Num(of.CTZone, uint64(f.vlan)), of.Num(of.CTMark, 0)}
		f.add(d.table, 50, "answers in connections that a rule allows", valid.With(of.CTFlags(of.CTEst|of.CTRpl, of.CTRel)), d.pass...)
		f.add(d.table, 50, "what belongs to connections that a rule allows", valid.With(of.CTFlags(of.CTRel, of.CTNew|of.CTEst|of.CTInv)), d.pass...)
		f.add(d.table, 40, "new connections that no rule allows", of.Match{f.port(), of.CTFlags(0, of.CTEst)}, of.To(fwDropped))
		for _, ether := range etherTypesIP {
			f.add(d.table, 40, "a connection that no rule allows any more: mark it", of.Match{etherType(ether), f.port(), of.CTFlags(of.CTEst, 0)},
				commit(of.Set(of.CTMark, of.Uint(revoked))))
		}
	}
}

// direct sends packets straight to their port or bridge instead of flooding those whose way has not been learned.
func (f *filters) direct() {
	if !f.w.Config.EgressDirect {
		return
	}
	mac := hw(f.p.VIF.MAC)
	f.add(fwAcceptedNormal, 12, directReason, of.Match{of.HW(of.EthDst, mac), f.network()}, f.deliver())
	f.add(fwAcceptedNormal, 12, directReason, of.Match{of.HW(of.EthDst, mac), of.VLAN(f.vlan), fromOtherBridges()}, of.PopVLAN{}, f.deliver())
	if patch := f.wayOut(f.p.Wiring.Segment); patch != 0 {
		f.add(fwAcceptedNormal, 10, directReason, of.Match{of.HW(of.EthSrc, mac), unicast(), f.network()},
			of.PushVLAN(of.EtherVLAN), of.SetVLAN(f.vlan), of.Output(patch))
	}
}

// Sender is an IPv4 address under which a port may send, with the MAC that belongs to it.
type Sender struct {
	MAC neutron.MAC
	IP  netip.Prefix
}

// Senders4 returns those of a port, sorted.
func Senders4(p *world.Port) []Sender {
	own := sendersOf(p).v4
	out := make([]Sender, len(own))
	for i, s := range own {
		out[i] = Sender{s.mac, s.ip}
	}
	return out
}

// sender is an address under which a port may send, on both layers.
type sender struct {
	mac neutron.MAC
	ip  netip.Prefix
}

// addresses are all of those, sorted, each once.
type addresses struct {
	v4, v6 []sender
	macs   []neutron.MAC
}

// sendersOf lists a port's addresses: its own, those of its address pairs, and the link-local IPv6 address of its MAC.
func sendersOf(p *world.Port) addresses {
	own := p.VIF.MAC
	set := map[sender]bool{{own, netip.PrefixFrom(linkLocal(own), 128)}: true}
	macs := map[neutron.MAC]bool{own: true}
	for _, f := range p.Details.FixedIPs {
		if f.IP.IsValid() {
			set[sender{own, netip.PrefixFrom(f.IP, f.IP.BitLen())}] = true
		}
	}
	for _, pair := range p.Details.AllowedAddressPairs {
		mac := pair.MAC
		if mac == (neutron.MAC{}) {
			mac = own // that is what a pair without one means
		}
		if pair.IP.IsValid() {
			macs[mac] = true
			set[sender{mac, pair.IP.Masked()}] = true
		}
	}
	var a addresses
	for s := range set {
		if s.ip.Addr().Is4() {
			a.v4 = append(a.v4, s)
		} else {
			a.v6 = append(a.v6, s)
		}
	}
	order := func(s, t sender) int { return cmp.Or(bytes.Compare(s.mac[:], t.mac[:]), s.ip.Compare(t.ip)) }
	slices.SortFunc(a.v4, order)
	slices.SortFunc(a.v6, order)
	a.macs = slices.SortedFunc(maps.Keys(macs), func(s, t neutron.MAC) int { return bytes.Compare(s[:], t[:]) })
	return a
}
