// SPDX-License-Identifier: Apache-2.0

package openflow

// A Field names one piece of a packet or of its metadata. The constants stand
// in the order in which Open vSwitch writes them in a match: sorting terms by
// Field gives the canonical encoding.
type Field uint8

// The fields of a match, in canonical order.
const (
	_ Field = iota

	ConjID
	InPort // 32-bit port number
	ActsetOutput

	EthSrc
	EthDst
	EthType

	VLANVID // 12-bit VLAN id plus VLANPresent
	VLANPCP

	MPLSTC
	MPLSBOS
	MPLSTTL
	MPLSLabel

	IPv4Src
	IPv4Dst
	IPv6Src
	IPv6Dst
	IPFrag
	IPDSCP // the six upper bits of the TOS byte, shifted down
	IPECN
	IPTTL
	IPv6Label
	IPProto
	TCPSrc
	TCPDst
	TCPFlags
	UDPSrc
	UDPDst
	SCTPSrc
	SCTPDst
	ICMPType
	ICMPCode
	ICMPv6Type
	ICMPv6Code
	NDTarget
	NDSLL
	NDTLL

	ARPOp
	ARPSPA
	ARPTPA
	ARPSHA
	ARPTHA

	TunID
	TunSrc
	TunDst
	TunIPv6Src
	TunIPv6Dst
	TunGBPID
	TunGBPFlags

	Reg0
	Reg1
	Reg2
	Reg3
	Reg4
	Reg5
	Reg6
	Reg7
	Reg8
	Reg9
	Reg10
	Reg11
	Reg12
	Reg13
	Reg14
	Reg15

	PktMark
	CTState
	CTZone
	CTMark
	CTLabel
	CTNwSrc
	CTIPv6Src
	CTNwDst
	CTIPv6Dst
	CTNwProto
	CTTpSrc
	CTTpDst
	Metadata

	// The remaining fields are other views of the ones above. XReg and XXReg
	// are accepted in a match, where they turn into 32-bit registers; the
	// others are for actions only.

	XReg0
	XReg1
	XReg2
	XReg3
	XReg4
	XReg5
	XReg6
	XReg7
	XXReg0
	XXReg1
	XXReg2
	XXReg3
	InPort16 // 16-bit port number, as learn() and move use it
	VLANTCI  // whole 802.1Q control information, with bit 12 as "present"
	IPTOS    // the TOS byte, two lowest bits zero

	// RawField marks a term of a match that this package does not know; its
	// bytes are kept as they came.
	RawField

	numFields
)

// Reg returns the 32-bit register n (0 to 15).
func Reg(n int) Field { return Reg0 + Field(n) }

// Ethernet types and IP protocols that terms and tests need all the time.
const (
	EtherIPv4  = 0x0800
	EtherARP   = 0x0806
	EtherRARP  = 0x8035
	EtherVLAN  = 0x8100
	EtherIPv6  = 0x86dd
	EtherMPLS  = 0x8847
	EtherMPLSM = 0x8848

	ProtoICMP   = 1
	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoICMPv6 = 58
	ProtoSCTP   = 132

	// VLANPresent is the bit of VLANVID that says that the packet is tagged.
	VLANPresent = 0x1000
)

// How a value is written in text.
type format uint8

const (
	fmtDec format = iota
	fmtHex
	fmtMAC
	fmtIPv4
	fmtIPv6
	fmtPort
	fmtPort16
	fmtCTState
	fmtTCPFlags
	fmtFrag
	fmtVLAN
)

// fieldInfo is one row of the field table. Adding a field is adding a
// constant and a row.
type fieldInfo struct {
	name     string // as ovs-ofctl names it in set_field and learn
	match    string // as ovs-ofctl names it in a match, if different
	nxm      string // name of the header in load, move, learn and ct
	oxmHdr   uint32 // match and set_field; experimenter class if exp is set
	exp      uint32 // experimenter id that follows oxmHdr, 0 for none
	nxmHdr   uint32 // load, move, learn, output, ct zone
	size     uint8  // bytes on the wire
	bits     uint8
	maskable bool
	writable bool
	format   format
}

const (
	classNXM0   = 0x0000
	classNXM1   = 0x0001
	classOXM    = 0x8000
	classPktReg = 0x8001
	classExp    = 0xffff

	experimenterONF    = 0x4f4e4600
	experimenterNicira = 0x00002320
)

func header(class, field, size uint32) uint32 { return class<<16 | field<<9 | size }

const (
	ro = 0
	rw = 1
	mk = 2 // maskable
)

// row makes the entry of a field. A negative number means that there is no
// header of that kind.
func row(name, match, nxmName string, oxm, nxm0, nxm1 int, size, bits uint8, acc int, f format) fieldInfo {
	fi := fieldInfo{
		name: name, match: match, nxm: nxmName, size: size, bits: bits,
		maskable: acc&mk != 0, writable: acc&rw != 0, format: f,
	}
	if fi.match == "" {
		fi.match = name
	}
	n := uint32(size)
	switch {
	case nxm0 >= 0:
		fi.nxmHdr = header(classNXM0, uint32(nxm0), n)
	case nxm1 >= 0:
		fi.nxmHdr = header(classNXM1, uint32(nxm1), n)
	default:
		fi.nxmHdr = header(classOXM, uint32(oxm), n)
	}
	if oxm >= 0 {
		fi.oxmHdr = header(classOXM, uint32(oxm), n)
	} else {
		fi.oxmHdr = fi.nxmHdr
	}
	return fi
}

// info returns the row of f; a Field out of range gives an empty row, so that
// no input can index beyond the table.
func (f Field) info() *fieldInfo {
	if f < numFields {
		return &fieldTable[f]
	}
	return &fieldTable[0]
}

// fullMask is the mask that makes a match on the field exact. VLANVID has one
// bit more than the field that actions see: VLANPresent.
func (f Field) fullMask() Value {
	if f == VLANVID {
		return Value{Lo: 0x1fff}
	}
	return ones(int(f.info().bits))
}

// fieldIndex finds a field by its header: one array a class, indexed by the
// field number of the header.
type fieldIndex struct {
	oxm, nxm0, nxm1, pktReg, onf [128]Field
}

var fieldsByHeader = buildFieldIndex()

func buildFieldIndex() *fieldIndex {
	ix := new(fieldIndex)
	put := func(hdr, exp uint32, f Field) {
		num := hdr >> 9 & 0x7f
		switch {
		case exp == experimenterONF:
			ix.onf[num] = f
		case hdr>>16 == classOXM:
			ix.oxm[num] = f
		case hdr>>16 == classPktReg:
			ix.pktReg[num] = f
		case hdr>>16 == classNXM0:
			ix.nxm0[num] = f
		case hdr>>16 == classNXM1:
			ix.nxm1[num] = f
		}
	}
	for f := ConjID; f < RawField; f++ {
		fi := &fieldTable[f]
		put(fi.oxmHdr, fi.exp, f)
		if fi.nxmHdr != 0 {
			put(fi.nxmHdr, 0, f)
		}
	}
	return ix
}

// fieldByHeader returns the field of a header without its mask bit and
// length, or 0. For the experimenter class exp is the experimenter id.
func fieldByHeader(hdr, exp uint32) Field {
	num := hdr >> 9 & 0x7f
	switch hdr >> 16 {
	case classOXM:
		return fieldsByHeader.oxm[num]
	case classNXM1:
		return fieldsByHeader.nxm1[num]
	case classNXM0:
		return fieldsByHeader.nxm0[num]
	case classPktReg:
		return fieldsByHeader.pktReg[num]
	case classExp:
		if exp == experimenterONF {
			return fieldsByHeader.onf[num]
		}
	}
	return 0
}

// fieldByNXM returns the field that a whole header (without mask bit) names in
// an action, or 0.
func fieldByNXM(hdr uint32) Field {
	f := fieldByHeader(hdr, 0)
	if f == 0 || f.info().nxmHdr != hdr {
		return 0
	}
	return f
}

// String returns the name that ovs-ofctl uses for the field.
func (f Field) String() string { return f.info().name }

// Size returns the number of bits of the field.
func (f Field) Size() int { return int(f.info().bits) }

// fieldTable is constant: nothing writes to it after the program is linked.
var fieldTable = [numFields]fieldInfo{
	ConjID:       row("conj_id", "", "NXM_NX_CONJ_ID", -1, -1, 37, 4, 32, ro, fmtDec),
	InPort:       row("in_port_oxm", "in_port", "OXM_OF_IN_PORT", 0, -1, -1, 4, 32, rw, fmtPort),
	ActsetOutput: onf(row("actset_output", "", "ONFOXM_ET_ACTSET_OUTPUT", 43, -1, -1, 4, 32, ro, fmtPort)),

	EthSrc:  row("eth_src", "dl_src", "NXM_OF_ETH_SRC", 4, 2, -1, 6, 48, rw|mk, fmtMAC),
	EthDst:  row("eth_dst", "dl_dst", "NXM_OF_ETH_DST", 3, 1, -1, 6, 48, rw|mk, fmtMAC),
	EthType: row("eth_type", "dl_type", "NXM_OF_ETH_TYPE", 5, 3, -1, 2, 16, ro, fmtHex),

	VLANVID: row("vlan_vid", "", "OXM_OF_VLAN_VID", 6, -1, -1, 2, 12, rw|mk, fmtVLAN),
	VLANPCP: row("vlan_pcp", "dl_vlan_pcp", "OXM_OF_VLAN_PCP", 7, -1, -1, 1, 3, rw, fmtDec),

	MPLSTC:    row("mpls_tc", "", "OXM_OF_MPLS_TC", 35, -1, -1, 1, 3, rw, fmtDec),
	MPLSBOS:   row("mpls_bos", "", "OXM_OF_MPLS_BOS", 36, -1, -1, 1, 1, ro, fmtDec),
	MPLSTTL:   row("mpls_ttl", "", "NXM_NX_MPLS_TTL", -1, -1, 30, 1, 8, rw, fmtDec),
	MPLSLabel: row("mpls_label", "", "OXM_OF_MPLS_LABEL", 34, -1, -1, 4, 20, rw, fmtDec),

	IPv4Src:    row("ip_src", "nw_src", "NXM_OF_IP_SRC", 11, 7, -1, 4, 32, rw|mk, fmtIPv4),
	IPv4Dst:    row("ip_dst", "nw_dst", "NXM_OF_IP_DST", 12, 8, -1, 4, 32, rw|mk, fmtIPv4),
	IPv6Src:    row("ipv6_src", "", "NXM_NX_IPV6_SRC", 26, -1, 19, 16, 128, rw|mk, fmtIPv6),
	IPv6Dst:    row("ipv6_dst", "", "NXM_NX_IPV6_DST", 27, -1, 20, 16, 128, rw|mk, fmtIPv6),
	IPFrag:     row("ip_frag", "nw_frag", "NXM_NX_IP_FRAG", -1, -1, 26, 1, 2, ro|mk, fmtFrag),
	IPDSCP:     row("ip_dscp", "", "OXM_OF_IP_DSCP", 8, -1, -1, 1, 6, rw, fmtDec),
	IPECN:      row("nw_ecn", "", "NXM_NX_IP_ECN", 9, -1, 28, 1, 2, rw, fmtDec),
	IPTTL:      row("nw_ttl", "", "NXM_NX_IP_TTL", -1, -1, 29, 1, 8, rw, fmtDec),
	IPv6Label:  row("ipv6_label", "", "NXM_NX_IPV6_LABEL", 28, -1, 27, 4, 20, rw|mk, fmtHex),
	IPProto:    row("nw_proto", "", "NXM_OF_IP_PROTO", 10, 6, -1, 1, 8, ro, fmtDec),
	TCPSrc:     row("tcp_src", "tp_src", "NXM_OF_TCP_SRC", 13, 9, -1, 2, 16, rw|mk, fmtDec),
	TCPDst:     row("tcp_dst", "tp_dst", "NXM_OF_TCP_DST", 14, 10, -1, 2, 16, rw|mk, fmtDec),
	TCPFlags:   onf(row("tcp_flags", "", "NXM_NX_TCP_FLAGS", 42, -1, 34, 2, 12, ro|mk, fmtTCPFlags)),
	UDPSrc:     row("udp_src", "tp_src", "NXM_OF_UDP_SRC", 15, 11, -1, 2, 16, rw|mk, fmtDec),
	UDPDst:     row("udp_dst", "tp_dst", "NXM_OF_UDP_DST", 16, 12, -1, 2, 16, rw|mk, fmtDec),
	SCTPSrc:    row("sctp_src", "tp_src", "OXM_OF_SCTP_SRC", 17, -1, -1, 2, 16, rw|mk, fmtDec),
	SCTPDst:    row("sctp_dst", "tp_dst", "OXM_OF_SCTP_DST", 18, -1, -1, 2, 16, rw|mk, fmtDec),
	ICMPType:   row("icmp_type", "", "NXM_OF_ICMP_TYPE", 19, 13, -1, 1, 8, rw, fmtDec),
	ICMPCode:   row("icmp_code", "", "NXM_OF_ICMP_CODE", 20, 14, -1, 1, 8, rw, fmtDec),
	ICMPv6Type: row("icmpv6_type", "icmp_type", "NXM_NX_ICMPV6_TYPE", 29, -1, 21, 1, 8, rw, fmtDec),
	ICMPv6Code: row("icmpv6_code", "icmp_code", "NXM_NX_ICMPV6_CODE", 30, -1, 22, 1, 8, rw, fmtDec),
	NDTarget:   row("nd_target", "", "NXM_NX_ND_TARGET", 31, -1, 23, 16, 128, rw|mk, fmtIPv6),
	NDSLL:      row("nd_sll", "", "NXM_NX_ND_SLL", 32, -1, 24, 6, 48, rw|mk, fmtMAC),
	NDTLL:      row("nd_tll", "", "NXM_NX_ND_TLL", 33, -1, 25, 6, 48, rw|mk, fmtMAC),

	ARPOp:  row("arp_op", "", "NXM_OF_ARP_OP", 21, 15, -1, 2, 16, rw, fmtDec),
	ARPSPA: row("arp_spa", "", "NXM_OF_ARP_SPA", 22, 16, -1, 4, 32, rw|mk, fmtIPv4),
	ARPTPA: row("arp_tpa", "", "NXM_OF_ARP_TPA", 23, 17, -1, 4, 32, rw|mk, fmtIPv4),
	ARPSHA: row("arp_sha", "", "NXM_NX_ARP_SHA", 24, -1, 17, 6, 48, rw|mk, fmtMAC),
	ARPTHA: row("arp_tha", "", "NXM_NX_ARP_THA", 25, -1, 18, 6, 48, rw|mk, fmtMAC),

	TunID:       row("tun_id", "", "NXM_NX_TUN_ID", 38, -1, 16, 8, 64, rw|mk, fmtHex),
	TunSrc:      row("tun_src", "", "NXM_NX_TUN_IPV4_SRC", -1, -1, 31, 4, 32, rw|mk, fmtIPv4),
	TunDst:      row("tun_dst", "", "NXM_NX_TUN_IPV4_DST", -1, -1, 32, 4, 32, rw|mk, fmtIPv4),
	TunIPv6Src:  row("tun_ipv6_src", "", "NXM_NX_TUN_IPV6_SRC", -1, -1, 109, 16, 128, rw|mk, fmtIPv6),
	TunIPv6Dst:  row("tun_ipv6_dst", "", "NXM_NX_TUN_IPV6_DST", -1, -1, 110, 16, 128, rw|mk, fmtIPv6),
	TunGBPID:    row("tun_gbp_id", "", "NXM_NX_TUN_GBP_ID", -1, -1, 38, 2, 16, rw|mk, fmtDec),
	TunGBPFlags: row("tun_gbp_flags", "", "NXM_NX_TUN_GBP_FLAGS", -1, -1, 39, 1, 8, rw|mk, fmtHex),

	Reg0:  reg("reg0", "NXM_NX_REG0", 0),
	Reg1:  reg("reg1", "NXM_NX_REG1", 1),
	Reg2:  reg("reg2", "NXM_NX_REG2", 2),
	Reg3:  reg("reg3", "NXM_NX_REG3", 3),
	Reg4:  reg("reg4", "NXM_NX_REG4", 4),
	Reg5:  reg("reg5", "NXM_NX_REG5", 5),
	Reg6:  reg("reg6", "NXM_NX_REG6", 6),
	Reg7:  reg("reg7", "NXM_NX_REG7", 7),
	Reg8:  reg("reg8", "NXM_NX_REG8", 8),
	Reg9:  reg("reg9", "NXM_NX_REG9", 9),
	Reg10: reg("reg10", "NXM_NX_REG10", 10),
	Reg11: reg("reg11", "NXM_NX_REG11", 11),
	Reg12: reg("reg12", "NXM_NX_REG12", 12),
	Reg13: reg("reg13", "NXM_NX_REG13", 13),
	Reg14: reg("reg14", "NXM_NX_REG14", 14),
	Reg15: reg("reg15", "NXM_NX_REG15", 15),

	PktMark:   row("pkt_mark", "", "NXM_NX_PKT_MARK", -1, -1, 33, 4, 32, rw|mk, fmtHex),
	CTState:   row("ct_state", "", "NXM_NX_CT_STATE", -1, -1, 105, 4, 32, ro|mk, fmtCTState),
	CTZone:    row("ct_zone", "", "NXM_NX_CT_ZONE", -1, -1, 106, 2, 16, ro, fmtHex),
	CTMark:    row("ct_mark", "", "NXM_NX_CT_MARK", -1, -1, 107, 4, 32, rw|mk, fmtHex),
	CTLabel:   row("ct_label", "", "NXM_NX_CT_LABEL", -1, -1, 108, 16, 128, rw|mk, fmtHex),
	CTNwProto: row("ct_nw_proto", "", "NXM_NX_CT_NW_PROTO", -1, -1, 119, 1, 8, ro, fmtDec),
	CTNwSrc:   row("ct_nw_src", "", "NXM_NX_CT_NW_SRC", -1, -1, 120, 4, 32, ro|mk, fmtIPv4),
	CTNwDst:   row("ct_nw_dst", "", "NXM_NX_CT_NW_DST", -1, -1, 121, 4, 32, ro|mk, fmtIPv4),
	CTIPv6Src: row("ct_ipv6_src", "", "NXM_NX_CT_IPV6_SRC", -1, -1, 122, 16, 128, ro|mk, fmtIPv6),
	CTIPv6Dst: row("ct_ipv6_dst", "", "NXM_NX_CT_IPV6_DST", -1, -1, 123, 16, 128, ro|mk, fmtIPv6),
	CTTpSrc:   row("ct_tp_src", "", "NXM_NX_CT_TP_SRC", -1, -1, 124, 2, 16, ro|mk, fmtDec),
	CTTpDst:   row("ct_tp_dst", "", "NXM_NX_CT_TP_DST", -1, -1, 125, 2, 16, ro|mk, fmtDec),
	Metadata:  row("metadata", "", "OXM_OF_METADATA", 2, -1, -1, 8, 64, rw|mk, fmtHex),

	XReg0:  xreg("xreg0", "OXM_OF_PKT_REG0", 0),
	XReg1:  xreg("xreg1", "OXM_OF_PKT_REG1", 1),
	XReg2:  xreg("xreg2", "OXM_OF_PKT_REG2", 2),
	XReg3:  xreg("xreg3", "OXM_OF_PKT_REG3", 3),
	XReg4:  xreg("xreg4", "OXM_OF_PKT_REG4", 4),
	XReg5:  xreg("xreg5", "OXM_OF_PKT_REG5", 5),
	XReg6:  xreg("xreg6", "OXM_OF_PKT_REG6", 6),
	XReg7:  xreg("xreg7", "OXM_OF_PKT_REG7", 7),
	XXReg0: row("xxreg0", "", "NXM_NX_XXREG0", -1, -1, 111, 16, 128, rw|mk, fmtHex),
	XXReg1: row("xxreg1", "", "NXM_NX_XXREG1", -1, -1, 112, 16, 128, rw|mk, fmtHex),
	XXReg2: row("xxreg2", "", "NXM_NX_XXREG2", -1, -1, 113, 16, 128, rw|mk, fmtHex),
	XXReg3: row("xxreg3", "", "NXM_NX_XXREG3", -1, -1, 114, 16, 128, rw|mk, fmtHex),

	InPort16: row("in_port", "", "NXM_OF_IN_PORT", -1, 0, -1, 2, 16, rw, fmtPort16),
	VLANTCI:  row("vlan_tci", "", "NXM_OF_VLAN_TCI", -1, 4, -1, 2, 16, rw|mk, fmtHex),
	IPTOS:    row("nw_tos", "", "NXM_OF_IP_TOS", -1, 5, -1, 1, 8, rw, fmtDec),
	RawField: {name: "raw", match: "raw"},
}

func reg(name, nxm string, n int) fieldInfo {
	return row(name, "", nxm, -1, -1, n, 4, 32, rw|mk, fmtHex)
}

func xreg(name, nxm string, n uint32) fieldInfo {
	fi := row(name, "", nxm, 0, -1, -1, 8, 64, rw|mk, fmtHex)
	fi.oxmHdr = header(classPktReg, n, 8)
	fi.nxmHdr = fi.oxmHdr
	return fi
}

// onf turns the OXM header of a row into one of the ONF experimenter class,
// whose length counts the four bytes of the experimenter id.
func onf(fi fieldInfo) fieldInfo {
	num := fi.oxmHdr >> 9 & 0x7f
	fi.oxmHdr = header(classExp, num, uint32(fi.size)+4)
	fi.exp = experimenterONF
	if fi.nxmHdr>>16 == classOXM {
		fi.nxmHdr = 0 // cannot be named where only four bytes fit
	}
	return fi
}

// Bits is a part of a field: n bits from bit ofs on. The zero value names no
// field.
type Bits struct {
	Field  Field
	Offset uint8
	Len    uint8
}

// All returns the whole of the field.
func (f Field) All() Bits { return Bits{Field: f, Len: f.info().bits} }

// Bits returns the bits lo to hi of the field, both included.
func (f Field) Bits(lo, hi int) Bits {
	return Bits{Field: f, Offset: uint8(lo), Len: uint8(hi - lo + 1)}
}

func (s Bits) isAll() bool { return s.Offset == 0 && s.Len == s.Field.info().bits }

func (s Bits) valid() bool {
	fi := s.Field.info()
	return fi.nxmHdr != 0 && s.Len > 0 && int(s.Offset)+int(s.Len) <= int(fi.bits)
}

// ofsNBits is the packing that load, output and ct use.
func (s Bits) ofsNBits() uint16 { return uint16(s.Offset)<<6 | uint16(s.Len-1) }

func (s Bits) appendText(b []byte) []byte {
	fi := s.Field.info()
	b = append(b, fi.nxm...)
	b = append(b, '[')
	if !s.isAll() {
		b = appendDec(b, uint64(s.Offset))
		if s.Len != 1 {
			b = append(b, ".."...)
			b = appendDec(b, uint64(s.Offset)+uint64(s.Len)-1)
		}
	}
	return append(b, ']')
}
