// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"net/netip"
)

// writable returns a field that may be written here, with a value it accepts.
func (g *gen) writable() (Field, Value) {
	list := []Field{EthSrc, EthDst, TunID, TunSrc, TunDst, TunIPv6Src, TunGBPID, PktMark, Metadata}
	for r := Reg0; r <= Reg15; r++ {
		list = append(list, r)
	}
	list = append(list, XReg0, XReg3, XReg7, XXReg0, XXReg3)
	switch g.etype {
	case EtherIPv4:
		list = append(list, IPv4Src, IPv4Dst, IPDSCP, IPECN, IPTTL)
	case EtherIPv6:
		list = append(list, IPv6Src, IPv6Dst, IPv6Label, IPDSCP, IPECN, IPTTL)
	case EtherARP, EtherRARP:
		list = append(list, ARPSPA, ARPTPA, ARPSHA, ARPTHA, ARPOp)
	case EtherMPLS:
		list = append(list, MPLSLabel, MPLSTC)
	}
	switch {
	case g.proto == ProtoTCP:
		list = append(list, TCPSrc, TCPDst)
	case g.proto == ProtoUDP:
		list = append(list, UDPSrc, UDPDst)
	case g.proto == ProtoSCTP:
		list = append(list, SCTPSrc, SCTPDst)
	case g.proto == ProtoICMP && g.etype == EtherIPv4:
		list = append(list, ICMPType, ICMPCode)
	case g.icmp6 != 0:
		list = append(list, NDTarget)
		if g.icmp6 == 135 {
			list = append(list, NDSLL)
		} else {
			list = append(list, NDTLL)
		}
	}
	if g.tagged {
		list = append(list, VLANPCP, VLANVID)
	}
	f := list[g.IntN(len(list))]
	v := g.value(f.Size())
	switch f {
	case VLANVID:
		v.Lo |= VLANPresent
	case ARPOp:
		v.Lo &= 0xff
	}
	return f, v
}

func (g *gen) bits(f Field, most int) Bits {
	size := min(f.Size(), most)
	n := 1 + g.IntN(size)
	if g.chance(30) && f.Size() <= most {
		return f.All()
	}
	return Bits{Field: f, Offset: uint8(g.IntN(f.Size() - n + 1)), Len: uint8(n)}
}

func (g *gen) regBits(n int) Bits {
	f := Reg(g.IntN(16))
	return Bits{Field: f, Offset: uint8(g.IntN(33 - n)), Len: uint8(n)}
}

func (g *gen) bytes(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return string(b)
}

func (g *gen) actions(table uint8) []Action {
	if g.chance(10) {
		return nil
	}
	if g.chance(8) { // conjunctions stand alone
		var list []Action
		for range 1 + g.IntN(4) {
			of := 2 + g.IntN(3)
			list = append(list, Conjunction{ID: g.Uint32(), Clause: uint8(1 + g.IntN(of)), Of: uint8(of)})
		}
		if g.chance(20) {
			list = append(list, Note(g.bytes(6)))
		}
		return list
	}
	var list []Action
	if g.chance(15) {
		list = append(list, Meter(1+g.IntN(genIDs)))
	}
	for range 1 + g.IntN(6) {
		list = append(list, g.action(0)...)
	}
	if g.chance(8) {
		list = append(list, ClearActions{})
	}
	if g.chance(8) {
		list = append(list, WriteActions{[]Action{SetQueue(g.Uint32()), Output(1 + g.IntN(100))}})
	}
	if g.chance(8) {
		m := g.Uint64() | 1
		list = append(list, WriteMetadata{g.Uint64() & m, m})
	}
	if g.chance(20) {
		list = append(list, GotoTable(int(table)+1+g.IntN(200-int(table)+1)))
	}
	return list
}

func (g *gen) action(depth int) []Action {
	one := func(a Action) []Action { return []Action{a} }
	ip := g.etype == EtherIPv4 || g.etype == EtherIPv6
	switch g.IntN(30) {
	case 0, 1:
		return one(Output(1 + g.IntN(60000)))
	case 2:
		return one(Output([]uint32{PortInPort, PortNormal, PortFlood, PortAll, PortLocal}[g.IntN(5)]))
	case 3, 4, 5:
		f, v := g.writable()
		return one(Set(f, v))
	case 6, 7:
		f, v := g.writable()
		s := g.bits(f, 64)
		return one(Load{Value: v.Lo & ones(int(s.Len)).Lo, To: s})
	case 8:
		n := 1 + g.IntN(32)
		return one(Move{From: g.regBits(n), To: g.regBits(n)})
	case 9:
		f, _ := g.writable()
		to := f.All()
		if f == IPDSCP || f.Size() > 128 {
			return nil
		}
		return one(Move{From: Bits{XXReg0, 0, to.Len}, To: to})
	case 10, 11:
		return one(g.resubmit())
	case 12:
		if depth > 0 {
			return nil
		}
		return one(g.learn())
	case 13, 14, 15:
		if !ip || g.ctInvalid {
			return nil
		}
		return one(g.ct())
	case 16:
		return one(g.controller())
	case 17:
		return one(Note(g.bytes(6 + 8*g.IntN(4))))
	case 18:
		if depth > 1 {
			return nil
		}
		tagged := g.tagged
		var list []Action
		for range 1 + g.IntN(3) {
			list = append(list, g.action(depth+1)...)
		}
		g.tagged = tagged
		return one(Clone{Actions: list})
	case 19:
		return one(SetQueue(g.Uint32()))
	case 20:
		return one(PopQueue{})
	case 21:
		return one(Group(1 + g.IntN(genIDs)))
	case 22:
		if g.etype == EtherMPLS || g.tagged || depth > 0 {
			return nil
		}
		g.tagged = true
		return []Action{PushVLAN(EtherVLAN), SetVLAN(uint16(g.IntN(4096)))}
	case 23:
		if !g.tagged || depth > 0 {
			return nil
		}
		g.tagged = false
		return one(PopVLAN{})
	case 24:
		return one(OutputField{From: g.regBits(16)})
	case 25:
		if ip {
			return one(DecTTL{})
		}
		return nil
	case 26:
		if ip {
			return []Action{DecTTL{Controllers: []uint16{uint16(1 + g.IntN(9)), uint16(g.IntN(9))}}, SetTTL(g.IntN(255))}
		}
		if g.etype == EtherMPLS {
			return one(DecMPLSTTL{})
		}
		return nil
	case 27:
		f := Reg(g.IntN(16))
		return []Action{Push{From: g.bits(f, 32)}, Pop{To: g.bits(Reg(g.IntN(16)), 32)}}
	case 28:
		if depth > 0 {
			return nil
		}
		return g.rare()
	default:
		return one(CTClear{})
	}
}

func (g *gen) rare() []Action {
	switch g.IntN(5) {
	case 0:
		return []Action{OutputTrunc{Port: uint16(1 + g.IntN(100)), MaxLen: uint32(14 + g.IntN(1000))}}
	case 1:
		return []Action{CheckPktLarger{Len: uint16(g.IntN(9000)), To: g.regBits(1)}}
	case 2:
		return []Action{Multipath{Fields: uint16(g.IntN(2)), Basis: uint16(g.IntN(100)), Algorithm: uint16(g.IntN(3)), Links: uint16(1 + g.IntN(16)), To: Reg(3).All()}}
	case 3:
		a := Choose{Fields: uint16(g.IntN(2)), Basis: uint16(g.IntN(99)), Algorithm: uint16(g.IntN(2)), Ports: []uint16{1, 2, 3}[:1+g.IntN(3)]}
		if g.chance(50) {
			a.To = Reg(4).All()
		}
		return []Action{a}
	default:
		if g.proto == ProtoTCP && (g.etype == EtherIPv4 || g.etype == EtherIPv6) {
			return []Action{FinTimeout{Idle: uint16(g.IntN(99) + 1), Hard: uint16(g.IntN(99))}}
		}
		return []Action{Exit{}}
	}
}

func (g *gen) resubmit() Action {
	switch g.IntN(4) {
	case 0:
		return Resubmit{Port: uint16(1 + g.IntN(60000)), Table: SameTable}
	case 1:
		return Resubmit{Port: uint16(1 + g.IntN(60000)), Table: uint8(g.IntN(254))}
	case 2:
		if g.ctValid && (g.etype == EtherIPv4 || g.etype == EtherIPv6) {
			return Resubmit{Table: uint8(g.IntN(254)), CT: true}
		}
	}
	return To(uint8(g.IntN(254)))
}

func (g *gen) controller() Action {
	a := ToController(uint16(g.Uint32()))
	if g.chance(50) {
		return a
	}
	if g.chance(50) {
		a.ID = uint16(1 + g.IntN(9))
	}
	if g.chance(30) {
		a.Reason = Reason(g.IntN(3))
	}
	if g.chance(50) {
		a.Userdata = g.bytes(1 + g.IntN(20))
	}
	a.Pause = g.chance(30)
	if g.chance(20) {
		a.Meter = uint32(1 + g.IntN(genIDs))
	}
	return a
}

func (g *gen) ct() Action {
	a := ConnTrack{Commit: g.chance(60)}
	a.Force = a.Commit && g.chance(20)
	switch g.IntN(3) {
	case 0:
		a.Zone = uint16(g.Uint32())
	case 1:
		a.ZoneFrom = g.regBits(16)
	}
	if g.chance(50) {
		a.Recirc, a.Table = true, uint8(g.IntN(254))
	}
	if a.Commit && g.chance(50) {
		a.Exec = append(a.Exec, Set(CTMark, Uint(uint64(g.Uint32()))))
	}
	if a.Commit && g.chance(30) {
		s := g.bits(CTLabel, 64)
		a.Exec = append(a.Exec, Load{Value: g.Uint64() & ones(int(s.Len)).Lo, To: s})
	}
	if a.Commit && g.chance(20) {
		a.Exec = append(a.Exec, Move{From: g.regBits(8), To: CTMark.Bits(8, 15)})
	}
	if g.chance(40) {
		a.NAT = g.nat(a.Commit)
	}
	if a.Commit && g.proto == ProtoTCP && g.chance(10) {
		a.ALG = algFTP
	}
	return a
}

func (g *gen) nat(commit bool) *NAT {
	if !commit {
		return &NAT{}
	}
	a := &NAT{}
	if g.chance(50) {
		a.Src = true
	} else {
		a.Dst = true
	}
	if g.chance(15) {
		return a
	}
	addr := func(last byte) netip.Addr {
		if g.etype == EtherIPv4 {
			return netip.AddrFrom4([4]byte{10, 1, 2, last})
		}
		return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", last))
	}
	a.AddrMin = addr(byte(1 + g.IntN(100)))
	if g.chance(50) {
		a.AddrMax = addr(byte(101 + g.IntN(100)))
	}
	if g.chance(50) {
		a.PortMin = uint16(1 + g.IntN(30000))
		if g.chance(50) {
			a.PortMax = a.PortMin + 1 + uint16(g.IntN(30000))
		}
	}
	a.Persistent = g.chance(20)
	switch g.IntN(3) {
	case 0:
		a.Hash = true
	case 1:
		a.Random = true
	}
	return a
}

func (g *gen) learn() Action {
	a := Learn{
		Table: uint8(g.IntN(254)), Priority: uint16(g.Uint32()), Cookie: g.Uint64(),
		IdleTimeout: uint16(g.IntN(3) * 100), HardTimeout: uint16(g.IntN(3) * 100),
		FinIdleTimeout: uint16(g.IntN(2)), FinHardTimeout: uint16(g.IntN(2)),
		SendFlowRem: g.chance(20), DeleteLearned: g.chance(20),
	}
	if g.chance(20) {
		a.Limit = uint32(1 + g.IntN(1000))
		if g.chance(50) {
			a.ResultTo = g.regBits(1)
		}
	}
	all := []LearnSpec{
		LearnMatch(VLANTCI.Bits(0, 11), VLANTCI.Bits(0, 11)),
		LearnMatch(EthDst.All(), EthSrc.All()),
		LearnMatchValue(Reg(5).All(), Uint(uint64(g.Uint32()))),
		LearnMatchValue(Reg(6).Bits(3, 12), Uint(uint64(g.IntN(1024)))),
		LearnMatchValue(TunID.All(), Uint(g.Uint64())),
		LearnLoadValue(VLANTCI.All(), Uint(0)),
		LearnLoad(TunID.All(), TunID.All()),
		LearnLoad(Reg(1).Bits(0, 15), InPort16.All()),
		LearnLoadValue(XXReg0.All(), g.value(128)),
		LearnOutput(InPort16.All()),
		LearnOutput(InPort.All()),
		LearnOutput(Reg(7).Bits(0, 15)),
	}
	for _, s := range all {
		if g.chance(40) {
			a.Specs = append(a.Specs, s)
		}
	}
	if g.etype == EtherIPv4 && g.chance(40) {
		a.Specs = append([]LearnSpec{
			LearnMatchValue(EthType.All(), Uint(EtherIPv4)), LearnMatch(IPv4Src.All(), IPv4Dst.All()),
		}, a.Specs...)
		if g.proto == ProtoTCP {
			a.Specs = append(a.Specs, LearnMatchValue(IPProto.All(), Uint(ProtoTCP)), LearnMatch(TCPSrc.All(), TCPDst.All()))
		}
	}
	return a
}
