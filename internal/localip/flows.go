// SPDX-License-Identifier: Apache-2.0

package localip

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Bounds of what a static translation learns: a connection is forgotten when the answering side has been silent for this long, and an address has no
// more connections of one protocol than this at a time, whatever guests do.
const (
	learnedIdle  = 300 // seconds
	learnedLimit = 20000
)

// trackedZones is added to the zone of a network, which its filters use, to have another one.
const trackedZones = 0x8000

const entry = 0 // table

var (
	network   = of.Reg6 // local VLAN, as the filters have it
	regPort   = of.Reg5 // number of the port whose filters are asked, as they have it
	answering = of.Reg0 // the packet has been looked at as an answer
)

// Compile implements extension.Extension.
func (l *LocalIP) Compile(o world.Object, want *pipeline.Want) {
	id, ok := world.PortID(o)
	if !ok {
		return
	}
	p, have := l.guest(id), l.ports[id]
	if p == nil || have == nil || len(l.segments[have.segment].leads) == 0 {
		return
	}
	f := &flows{LocalIP: l, p: p, want: want, filtered: l.w.Config.Filter && !l.w.Config.Hybrid}
	f.asks()
	for _, a := range l.active(id) {
		f.translate(a)
		f.respond(a)
		f.shield(a)
	}
}

// flows compiles one port.
type flows struct {
	*LocalIP
	p        *world.Port
	want     *pipeline.Want
	filtered bool // flows filter the ports of this host
}

func (f *flows) add(table uint8, priority uint16, reason string, m of.Match, actions ...of.Action) {
	f.want.Flow(f.w.Config.IntegrationBridge, reason, of.Flow{Table: table, Priority: priority, Match: m, Actions: actions})
}

func (f *flows) from() of.Term { return of.FromPort(f.p.VIF.OFPort) }
func (f *flows) vlan() uint16  { return f.p.Wiring.VLAN }
func (f *flows) mac() of.MAC   { return of.MAC(f.p.VIF.MAC) }

func (f *flows) here() of.Term { return of.Num(network, uint64(f.vlan())) }

func single(ip netip.Addr) netip.Prefix { return netip.PrefixFrom(ip, 32) }

func etherType(t uint64) of.Term { return of.Num(of.EthType, t) }

// asks leads what the port sends to the translation. Of a port that has port security only what it sends under its own addresses is led there: what is
// learned from a forged packet would count for whoever has the address.
func (f *flows) asks() {
	const reason = "the port may ask for a local IP"
	spoofs := world.Checked(f.p)
	if !spoofs || !f.w.Config.AntiSpoof { // else the check of addresses leads on
		f.add(entry, 8, reason, of.Match{f.from()}, of.GotoTable(pipeline.TableLocal))
	}
	on := []of.Action{of.Set(network, of.Uint(uint64(f.vlan()))), of.GotoTable(pipeline.TableLocalIP)}
	if !spoofs {
		f.add(pipeline.TableLocal, 10, reason, of.Match{f.from(), of.Untagged()}, on...)
		return
	}
	for _, s := range pipeline.Senders4(f.p) {
		own := of.Match{f.from(), of.Untagged(), of.HW(of.EthSrc, of.MAC(s.MAC))}
		f.add(pipeline.TableLocal, 10, reason, own.With(etherType(of.EtherIPv4), of.IP(of.IPv4Src, s.IP)), on...)
		f.add(pipeline.TableLocal, 10, reason, own.With(etherType(of.EtherARP), of.IP(of.ARPSPA, s.IP)), on...)
	}
}

// translate has packets to the address go to the port, and its answers bear the address.
func (f *flows) translate(a association) {
	to := fmt.Sprintf("local IP %s leads to the port", a.Local)
	local := of.Match{f.here(), etherType(of.EtherIPv4), of.IP(of.IPv4Dst, single(a.Local))}
	f.add(pipeline.TableLocalIP, 11, fmt.Sprintf("for the port itself %s is whoever has it in the network", a.Local), local.With(f.from()), of.GotoTable(pipeline.TableRateLimit))
	if !f.static && !f.filtered {
		f.track(to, local, nil, a)
	} else {
		f.track(to, local, of.Match{of.Num(of.IPProto, of.ProtoICMP)}, a)
		f.learn(to, local, of.ProtoTCP, of.TCPSrc, of.TCPDst, a)
		f.learn(to, local, of.ProtoUDP, of.UDPSrc, of.UDPDst, a)
	}
}

// track translates by connection tracking, in a zone that the filters do not use. An answer is translated before the rest of the pipeline; where there are
// filters after those of the port, because they know the connection by the port's own address.
func (f *flows) track(to string, local, only of.Match, a association) {
	zone := f.vlan()
	next := uint8(pipeline.TableRateLimit)
	if f.filtered {
		zone |= trackedZones
		next = pipeline.TableLocalIP
	}
	f.add(pipeline.TableLocalIP, 10, to, local.With(only...), of.Set(of.EthDst, f.mac().Value()),
		of.ConnTrack{Commit: true, Recirc: true, Table: next, Zone: zone, NAT: &of.NAT{Dst: true, AddrMin: a.Fixed}})
	back := f.back(a.Fixed).With(only...)
	undo := func(table uint8) of.Action {
		return of.ConnTrack{Recirc: true, Table: table, Zone: zone, NAT: &of.NAT{}}
	}
	if !f.filtered {
		f.add(pipeline.TableLocalIP, 9, answers, back.With(of.CTFlags(0, of.CTTrk)), undo(pipeline.TableRateLimit))
		return
	}
	f.add(pipeline.TableLocalIP, 12, "what was translated meets filters that track it anew", of.Match{
		f.here(), etherType(of.EtherIPv4), of.CTFlags(of.CTTrk, 0), of.Num(of.CTZone, uint64(zone)), of.HW(of.EthDst, f.mac()), of.IP(of.IPv4Dst, single(a.Fixed)),
	}.With(only...), of.CTClear{}, of.GotoTable(pipeline.TableRateLimit))
	f.add(pipeline.TableNormal, 20, answers, back.With(of.Num(answering, 0)), looked(), undo(pipeline.TableNormal))
	f.add(pipeline.TableIngress, 51, answers, back.With(f.answer()...), looked(), undo(pipeline.TableLearned))
	f.add(pipeline.TableLearned, 1, "answers that the receiver's filters have let in",
		of.Match{f.from(), f.here(), etherType(of.EtherIPv4), of.Num(answering, 1)}.With(only...), of.OutputField{From: regPort.Bits(0, 15)})
}

const answers = "answers of the port come from the local IP that was asked"

// back matches what the port sends under an address.
func (f *flows) back(fixed netip.Addr) of.Match {
	return of.Match{f.from(), f.here(), etherType(of.EtherIPv4), of.HW(of.EthSrc, f.mac()), of.IP(of.IPv4Src, single(fixed))}
}

// answer matches answers in a connection that the receiver's filters have let in: those of a port without filters of its own.
func (f *flows) answer() of.Match {
	return of.Match{of.Num(answering, 0), of.CTFlags(of.CTEst|of.CTRpl|of.CTTrk, of.CTRel), of.Num(of.CTMark, 0), of.Num(of.CTZone, uint64(f.vlan()))}
}

func looked() of.Action { return of.Set(answering, of.Uint(1)) }

// learn translates connections of a protocol with ports, and learns how to translate the answers. What is learned says nothing about where an
// answer goes, and it goes through the same tables as without.
func (f *flows) learn(to string, local of.Match, proto uint64, src, dst of.Field, a association) {
	is := of.Num(of.IPProto, proto)
	f.add(pipeline.TableLocalIP, 10, to, local.With(is), of.Set(of.EthDst, f.mac().Value()), of.Learn{
		Table: pipeline.TableLearned, Priority: 20, IdleTimeout: learnedIdle, Limit: learnedLimit, Cookie: pipeline.Cookie,
		Specs: []of.LearnSpec{
			of.LearnMatchValue(of.EthType.All(), of.Uint(of.EtherIPv4)), of.LearnMatchValue(of.IPProto.All(), of.Uint(proto)),
			of.LearnMatchValue(network.Bits(0, 11), of.Uint(uint64(f.vlan()))),
			of.LearnMatch(of.EthDst.All(), of.EthSrc.All()), of.LearnMatchValue(of.EthSrc.All(), f.mac().Value()),
			of.LearnMatch(of.IPv4Dst.All(), of.IPv4Src.All()), of.LearnMatchValue(of.IPv4Src.All(), of.Addr(a.Fixed)),
			of.LearnMatch(dst.All(), src.All()), of.LearnMatch(src.All(), dst.All()),
			of.LearnLoadValue(of.IPv4Src.All(), of.Addr(a.Local)),
		},
	}, of.Set(of.IPv4Dst, of.Addr(a.Fixed)), of.GotoTable(pipeline.TableRateLimit))
	back, look := f.back(a.Fixed).With(is), looks(src, dst)
	if !f.filtered {
		f.add(pipeline.TableLocalIP, 9, answers, back, append(look, of.GotoTable(pipeline.TableRateLimit))...)
		return
	}
	look = append([]of.Action{looked()}, look...)
	f.add(pipeline.TableNormal, 20, answers, back.With(of.Num(answering, 0)), append(slices.Clone(look), of.To(pipeline.TableNormal))...)
	f.add(pipeline.TableIngress, 51, answers, back.With(f.answer()...), append(slices.Clone(look), of.To(pipeline.TableIngress))...)
}

// looks looks an answer up in what was learned. The switch keeps what it has decided for all packets that agree in the fields that it has read. It is made to read
// the receiver and both ports: else the first answer of a connection, which comes before the switch has looked at its decisions again, would be
// handled as that of a connection before it.
func looks(src, dst of.Field) []of.Action {
	return []of.Action{
		of.Move{From: of.IPv4Dst.All(), To: of.Reg(8).All()}, of.Move{From: src.All(), To: of.Reg(9).Bits(0, 15)}, of.Move{From: dst.All(), To: of.Reg(9).Bits(16, 31)},
		of.To(pipeline.TableLearned),
	}
}

// respond answers ARP requests for the address with the port's MAC. Not those of the port itself, and not the announcement of whoever has the address.
func (f *flows) respond(a association) {
	arp := of.Match{f.here(), etherType(of.EtherARP), of.Num(of.ARPOp, 1), of.IP(of.ARPTPA, single(a.Local))}
	const other = "who has the address in the network is asked for, or announces it"
	f.add(pipeline.TableLocalIP, 2, other, arp.With(f.from()), of.GotoTable(pipeline.TableRateLimit))
	f.add(pipeline.TableLocalIP, 3, other, arp.With(of.IP(of.ARPSPA, single(a.Local))), of.GotoTable(pipeline.TableRateLimit))
	f.add(pipeline.TableLocalIP, 1, fmt.Sprintf("answer for local IP %s", a.Local), arp, pipeline.ARPAnswer(f.mac(), a.Local)...)
}

// shield keeps announcements of whoever has the address in the network, on other hosts, from guests here. The port itself hears the answers to what
// it asked.
func (f *flows) shield(a association) {
	s := f.w.Segments.Get(f.p.Wiring.Segment)
	patch, tag := f.w.Config.IntPatch, of.VLAN(f.vlan())
	translated := []of.Action{of.GotoTable(pipeline.TableRateLimit)}
	if !s.Tunnelled() {
		patch, tag = world.IntPatchName(f.w.Config.Physical[s.Physnet]), of.VLAN(uint16(max(s.Key.ID, 0))) //nolint:gosec // a VLAN
		translated = []of.Action{of.SetVLAN(f.vlan()), translated[0]}
		if s.Type == "flat" {
			tag, translated = of.Untagged(), append([]of.Action{of.PushVLAN(of.EtherVLAN)}, translated...)
		}
	}
	number := f.w.OFPort(patch)
	if s.Type == "local" || number == 0 {
		return // compiled again when the patch has its number, see renumber
	}
	arp := of.Match{of.FromPort(number), tag, etherType(of.EtherARP), of.IP(of.ARPSPA, single(a.Local))}
	f.add(entry, 10, fmt.Sprintf("local IP %s is here for the guests of this host", a.Local), arp)
	f.add(entry, 11, "the port may ask who has its local IP in the network", arp.With(of.IP(of.ARPTPA, single(a.Fixed))), translated...)
}
