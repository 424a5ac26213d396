// SPDX-License-Identifier: Apache-2.0

package openflow

import "math/rand/v2"

// gen makes random flows that Open vSwitch accepts, over all fields and
// actions of the package.
type gen struct {
	*rand.Rand
	// textual leaves out what ovs-ofctl's text cannot express, such as IPv6
	// masks that begin with a digit.
	textual bool
	// matchAll makes flows without a match, for oracles that know of none.
	matchAll bool

	etype, proto uint64
	icmp6        uint64 // type, if matched on
	tagged       bool
	ctValid      bool // the match asks for a tracked, valid connection
	ctInvalid    bool // or for an invalid one, on which ct() makes no sense
}

func newGen(seed uint64) *gen {
	return &gen{Rand: rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))}
}

// Ids of the groups and meters that live tests create.
const genIDs = 4

func (g *gen) chance(percent int) bool { return g.IntN(100) < percent }

func (g *gen) value(bits int) Value {
	v := Value{g.Uint64(), g.Uint64()}
	if g.chance(20) {
		v = Uint(uint64(g.IntN(4)))
	}
	return v.and(ones(bits))
}

func (g *gen) flow() Flow {
	f := Flow{Table: uint8(g.IntN(200)), Priority: uint16(g.Uint32()), Cookie: g.Uint64()}
	if f.Priority == DefaultPriority {
		f.Priority++ // ovs-ofctl does not print it
	}
	if g.chance(30) {
		f.IdleTimeout = uint16(30000 + g.IntN(30000))
	}
	if g.chance(30) {
		f.HardTimeout = uint16(30000 + g.IntN(30000))
	}
	if g.chance(20) {
		f.Flags = SendFlowRem
	}
	f.Match = g.match()
	f.Actions = g.actions(f.Table)
	return f
}

func (g *gen) match() Match {
	g.etype, g.proto, g.icmp6, g.tagged, g.ctValid, g.ctInvalid = 0, 0, 0, false, false, false
	if g.matchAll {
		return nil
	}
	var m Match
	any := func(f Field, percent int) {
		if g.chance(percent) {
			m = append(m, g.term(f))
		}
	}
	for f := EthSrc; f <= EthDst; f++ {
		any(f, 30)
	}
	if g.chance(20) {
		m = append(m, FromPort(uint32(1+g.IntN(60000))))
	}
	if g.chance(3) {
		m = append(m, FromPort(PortLocal))
		m = m[len(m)-1:]
	}
	if g.chance(8) {
		m = append(m, Num(ConjID, uint64(g.Uint32())))
	}
	if g.chance(5) {
		m = append(m, Num(ActsetOutput, uint64(1+g.IntN(1000))))
	}
	for f := TunID; f <= Metadata; f++ {
		switch {
		case f == TunSrc || f == TunIPv6Src || f >= CTState && f <= CTTpDst:
		case f == TunDst || f == TunIPv6Dst:
		default:
			any(f, 6)
		}
	}
	if g.chance(8) {
		any(TunSrc, 70)
		any(TunDst, 70)
	} else if g.chance(8) {
		any(TunIPv6Src, 70)
		any(TunIPv6Dst, 70)
	}
	m = g.vlan(m)
	m = g.protocol(m)
	m = g.ctFields(m)
	if g.chance(5) { // the wide views of registers
		m = m.withoutRegs()
		m = append(m, g.term(XReg0+Field(g.IntN(2))), g.term(XXReg1))
	}
	g.Shuffle(len(m), func(i, j int) { m[i], m[j] = m[j], m[i] })
	return m
}

func (m Match) withoutRegs() Match {
	var out Match
	for _, t := range m {
		if t.Field < Reg0 || t.Field > Reg15 {
			out = append(out, t)
		}
	}
	return out
}

// term makes a random condition on a field.
func (g *gen) term(f Field) Term {
	fi := f.info()
	v := g.value(int(fi.bits))
	if fi.format == fmtIPv6 && v == (Value{}) && g.textual {
		v.Lo = 1
	}
	if !fi.maskable || g.chance(50) || f == TunGBPFlags && g.textual {
		return Eq(f, v)
	}
	mask := g.value(int(fi.bits))
	switch {
	case fi.format == fmtIPv4 && g.chance(70):
		mask = prefixMask(1+g.IntN(32), 32)
	case fi.format == fmtIPv6 && (g.textual || g.chance(70)):
		mask = prefixMask(1+g.IntN(128), 128)
	case mask.isZero():
		mask = Uint(1)
	}
	return Masked(f, v.and(mask), mask)
}

func (g *gen) vlan(m Match) Match {
	switch g.IntN(8) {
	case 0:
		g.tagged = true
		m = append(m, VLAN(uint16(g.IntN(4096))))
		if g.chance(40) {
			m = append(m, Num(VLANPCP, uint64(g.IntN(8))))
		}
	case 1:
		m = append(m, Untagged())
	case 2:
		g.tagged = true
		mask := uint64(VLANPresent | g.IntN(0x1000))
		m = append(m, Masked(VLANVID, Uint(uint64(VLANPresent|g.IntN(0x1000))&mask), Uint(mask)))
	}
	return m
}

// protocol adds an Ethernet type and fields of its protocols.
func (g *gen) protocol(m Match) Match {
	pick := func(fields ...Field) {
		for _, f := range fields {
			if g.chance(40) {
				m = append(m, g.term(f))
			}
		}
	}
	switch g.IntN(8) {
	case 0:
		return m
	case 1:
		t := uint64(0x600 + g.IntN(0xf000))
		switch t {
		case EtherIPv4, EtherIPv6, EtherARP, EtherRARP, EtherMPLS, EtherMPLSM, 0x894f, 0x8100, 0x88a8:
			t = 0x88cc
		}
		return append(m, Num(EthType, t))
	case 2:
		g.etype = EtherARP
		if g.chance(20) {
			g.etype = EtherRARP
		}
		m = append(m, Num(EthType, g.etype))
		if g.chance(50) {
			m = append(m, Num(ARPOp, uint64(1+g.IntN(255))))
		}
		pick(ARPSPA, ARPTPA, ARPSHA, ARPTHA)
		return m
	case 3:
		if g.chance(50) {
			return m
		}
		g.etype = EtherMPLS
		m = append(m, Num(EthType, EtherMPLS))
		pick(MPLSLabel, MPLSTC, MPLSBOS, MPLSTTL)
		return m
	case 4, 5:
		g.etype = EtherIPv4
		m = append(m, Num(EthType, EtherIPv4))
		pick(IPv4Src, IPv4Dst)
	default:
		g.etype = EtherIPv6
		m = append(m, Num(EthType, EtherIPv6))
		pick(IPv6Src, IPv6Dst, IPv6Label)
	}
	pick(IPDSCP, IPECN, IPTTL)
	if g.chance(15) {
		n := fragNames[g.IntN(len(fragNames))]
		m = append(m, Masked(IPFrag, Uint(n.value), Uint(n.mask)))
		if n.name == "later" {
			return m // no transport header
		}
	}
	switch g.IntN(6) {
	case 0:
		return m
	case 1:
		g.proto = ProtoTCP
		pick(TCPSrc, TCPDst, TCPFlags)
	case 2:
		g.proto = ProtoUDP
		pick(UDPSrc, UDPDst)
	case 3:
		g.proto = ProtoSCTP
		pick(SCTPSrc, SCTPDst)
	case 4:
		g.proto = ProtoICMP
		if g.etype == EtherIPv6 {
			return g.icmpv6(m)
		}
		pick(ICMPType, ICMPCode)
	default:
		g.proto = uint64(200 + g.IntN(50))
	}
	return append(m, Num(IPProto, g.proto))
}

func (g *gen) icmpv6(m Match) Match {
	g.proto = ProtoICMPv6
	m = append(m, Num(IPProto, ProtoICMPv6))
	if g.chance(50) {
		if g.chance(50) {
			m = append(m, g.term(ICMPv6Type))
		}
		return m
	}
	g.icmp6 = 135 + uint64(g.IntN(2))
	m = append(m, Num(ICMPv6Type, g.icmp6), Num(ICMPv6Code, 0))
	if g.chance(50) {
		m = append(m, g.term(NDTarget))
	}
	if g.chance(50) {
		f := NDSLL
		if g.icmp6 == 136 {
			f = NDTLL
		}
		m = append(m, g.term(f))
	}
	return m
}

func (g *gen) ctFields(m Match) Match {
	if !g.chance(35) {
		return m
	}
	mask := uint32(1+g.IntN(0xfe)) | CTTrk // never all bits, which prints otherwise
	set := g.Uint32() & mask
	if g.chance(60) {
		set |= CTTrk
		set &^= CTInv
		mask |= CTInv
	}
	g.ctValid = set&CTTrk != 0 && set&CTInv == 0 && set&(CTNew|CTEst) != 0
	g.ctInvalid = set&CTInv != 0
	m = append(m, CTFlags(set, mask&^set))
	for _, f := range []Field{CTZone, CTMark, CTLabel} {
		if g.chance(40) {
			m = append(m, g.term(f))
		}
	}
	if !g.ctValid || g.etype != EtherIPv4 && g.etype != EtherIPv6 || !g.chance(40) {
		return m
	}
	src, dst := CTNwSrc, CTNwDst
	if g.etype == EtherIPv6 {
		src, dst = CTIPv6Src, CTIPv6Dst
	}
	m = append(m, g.term(src))
	if g.chance(50) {
		m = append(m, g.term(dst))
	}
	if g.chance(60) {
		m = append(m, Num(CTNwProto, 6), g.term(CTTpDst))
		if g.chance(50) {
			m = append(m, g.term(CTTpSrc))
		}
	}
	return m
}
