// SPDX-License-Identifier: Apache-2.0

package openflow

// textOrder is the order in which ovs-ofctl prints the fields of a match. The
// zero stands for the place of the protocol's short name.
var textOrder = []Field{
	PktMark, ConjID, ActsetOutput,
	CTState, CTZone, CTMark, CTLabel, CTNwSrc, CTIPv6Src, CTNwDst, CTIPv6Dst, CTNwProto, CTTpSrc, CTTpDst,
	0,
	Reg0, Reg1, Reg2, Reg3, Reg4, Reg5, Reg6, Reg7,
	Reg8, Reg9, Reg10, Reg11, Reg12, Reg13, Reg14, Reg15,
	XReg0, XReg1, XReg2, XReg3, XReg4, XReg5, XReg6, XReg7, XXReg0, XXReg1, XXReg2, XXReg3,
	TunID, TunSrc, TunDst, TunIPv6Src, TunIPv6Dst, TunGBPID, TunGBPFlags,
	Metadata, InPort, VLANVID, VLANPCP, EthSrc, EthDst, EthType,
	IPv6Src, IPv6Dst, IPv6Label, ARPSPA, ARPTPA, IPv4Src, IPv4Dst,
	ARPOp, IPProto, ARPSHA, ARPTHA, IPDSCP, IPECN, IPTTL,
	MPLSLabel, MPLSTC, MPLSTTL, MPLSBOS, IPFrag,
	ICMPType, ICMPCode, ICMPv6Type, ICMPv6Code, NDTarget, NDSLL, NDTLL,
	TCPSrc, TCPDst, UDPSrc, UDPDst, SCTPSrc, SCTPDst, TCPFlags,
	RawField,
}

// AppendText appends the match as ovs-ofctl prints it, without spaces. A match
// of everything appends nothing.
func (m Match) AppendText(b []byte) []byte {
	if len(m) == 0 {
		return b
	}
	start := len(b)
	sep := func() {
		if len(b) > start {
			b = append(b, ',')
		}
	}
	short, hidesProto := m.protocol()
	for _, f := range textOrder {
		if f == 0 {
			if short != "" {
				sep()
				b = append(b, short...)
			}
			continue
		}
		for i := range m {
			t := &m[i]
			if t.Field != f || f == EthType && short != "" || f == IPProto && hidesProto {
				continue
			}
			if f == RawField {
				sep()
				b = appendRawText(b, t.Raw)
				continue
			}
			if t.Mask.and(f.fullMask()).isZero() {
				continue
			}
			if f == VLANPCP && m.pcpPrinted() {
				continue
			}
			sep()
			b = m.appendTermText(b, t)
		}
	}
	return b
}

// String returns the match as ovs-ofctl prints it.
func (m Match) String() string { return string(m.AppendText(nil)) }

// protocol returns the short name that stands for the Ethernet type, and
// whether it stands for the IP protocol too.
func (m Match) protocol() (name string, hidesProto bool) {
	et, ok := m.Lookup(EthType)
	if !ok {
		return "", false
	}
	proto := uint64(0)
	if p, ok := m.Lookup(IPProto); ok {
		proto = p.Value.Lo
	}
	switch et.Value.Lo {
	case EtherIPv4:
		switch proto {
		case ProtoICMP:
			return "icmp", true
		case ProtoTCP:
			return "tcp", true
		case ProtoUDP:
			return "udp", true
		case ProtoSCTP:
			return "sctp", true
		}
		return "ip", false
	case EtherIPv6:
		switch proto {
		case ProtoICMPv6:
			return "icmp6", true
		case ProtoTCP:
			return "tcp6", true
		case ProtoUDP:
			return "udp6", true
		case ProtoSCTP:
			return "sctp6", true
		}
		return "ipv6", false
	case EtherARP:
		return "arp", false
	case EtherRARP:
		return "rarp", false
	case EtherMPLS:
		return "mpls", false
	case EtherMPLSM:
		return "mplsm", false
	}
	return "", false
}

// pcpPrinted reports whether the text of VLANVID already holds the priority:
// with an odd mask both are printed as one vlan_tci.
func (m Match) pcpPrinted() bool {
	_, ok := m.Lookup(VLANVID)
	return ok
}

func (m Match) appendTermText(b []byte, t *Term) []byte {
	full := t.Field.fullMask()
	exact := t.Mask.and(full) == full
	switch t.Field {
	case VLANVID:
		return m.appendVLANText(b, t)
	case IPDSCP:
		return appendDec(append(b, "nw_tos="...), t.Value.Lo<<2)
	case EthType:
		return appendHexPad(append(b, "dl_type="...), t.Value.Lo, 4)
	}
	fi := t.Field.info()
	b = append(append(b, fi.match...), '=')
	switch fi.format {
	case fmtIPv4:
		b = appendIPv4(b, t.Value.Lo)
		if exact {
			return b
		}
		b = append(b, '/')
		if n := prefixLen(t.Mask, 32); n >= 0 {
			return appendDec(b, uint64(n))
		}
		return appendIPv4(b, t.Mask.Lo)
	case fmtIPv6:
		b = appendIPv6(b, t.Value)
		if exact {
			return b
		}
		b = append(b, '/')
		if n := prefixLen(t.Mask, 128); n >= 0 {
			return appendDec(b, uint64(n))
		}
		return appendIPv6(b, t.Mask)
	case fmtMAC:
		b = appendMAC(b, t.Value.Lo)
		if !exact {
			b = appendMAC(append(b, '/'), t.Mask.Lo)
		}
		return b
	case fmtCTState:
		return appendFlags(b, ctStateNames, t.Value.Lo, t.Mask.Lo, 0xff)
	case fmtTCPFlags:
		return appendFlags(b, tcpFlagNames, t.Value.Lo, t.Mask.Lo, 0xfff)
	case fmtFrag:
		for _, n := range fragNames {
			if n.value == t.Value.Lo && n.mask == t.Mask.Lo {
				return append(b, n.name...)
			}
		}
		return append(b, "no"...) // 0/1, for which ovs-ofctl has no other word
	case fmtPort:
		return appendPort(b, uint32(t.Value.Lo))
	case fmtDec:
		if exact {
			return appendDec(b, t.Value.Lo)
		}
	}
	if t.Field == IPv6Label {
		b = appendHexPad(b, t.Value.Lo, 5)
		if !exact {
			b = appendHexPad(append(b, '/'), t.Mask.Lo, 5)
		}
		return b
	}
	if fi.format == fmtDec { // a masked number
		b = appendHexPad(b, t.Value.Lo, 1)
		return appendHexPad(append(b, '/'), t.Mask.Lo, 1)
	}
	if t.Field == CTZone {
		return appendDec(b, t.Value.Lo)
	}
	b = appendHex128(b, t.Value)
	if !exact {
		b = appendHex128(append(b, '/'), t.Mask)
	}
	return b
}

func (m Match) appendVLANText(b []byte, t *Term) []byte {
	pcp, hasPCP := m.Lookup(VLANPCP)
	vidMask := t.Mask.Lo & 0xfff
	present := t.Mask.Lo&VLANPresent != 0 && t.Value.Lo&VLANPresent != 0
	if present && (vidMask == 0xfff || vidMask == 0 && hasPCP) {
		if vidMask != 0 {
			b = appendDec(append(b, "dl_vlan="...), t.Value.Lo&0xfff)
			if hasPCP {
				b = append(b, ',')
			}
		}
		if hasPCP {
			b = appendDec(append(b, "dl_vlan_pcp="...), pcp.Value.Lo)
		}
		return b
	}
	value, mask := t.Value.Lo&t.Mask.Lo, t.Mask.Lo
	if hasPCP {
		value |= pcp.Value.Lo << 13
		mask |= 7 << 13
	}
	b = appendHexPad(append(b, "vlan_tci="...), value, 4)
	if mask != 0xffff {
		b = appendHexPad(append(b, '/'), mask, 4)
	}
	return b
}

func appendRawText(b []byte, raw string) []byte {
	b = append(b, "raw(0x"...)
	for i := range len(raw) {
		b = append(b, hexDigits[raw[i]>>4], hexDigits[raw[i]&15])
	}
	return append(b, ')')
}
