// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strconv"
)

// A Value holds the bits of any field, up to 128 of them, right-aligned.
type Value struct{ Hi, Lo uint64 }

// Uint returns the value of a number.
func Uint(v uint64) Value { return Value{Lo: v} }

// A MAC is an Ethernet address.
type MAC [6]byte

// Value returns the address as the value of a field.
func (m MAC) Value() Value {
	return Value{Lo: uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 |
		uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])}
}

// String returns the address in lower-case colon form.
func (m MAC) String() string { return string(appendMAC(nil, m.Value().Lo)) }

// Addr returns an IP address as the value of a field.
func Addr(a netip.Addr) Value {
	if a.Is4() {
		b := a.As4()
		return Value{Lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return Value{Hi: binary.BigEndian.Uint64(b[:8]), Lo: binary.BigEndian.Uint64(b[8:])}
}

// prefixMask returns the mask of a prefix of n of total bits.
func prefixMask(n, total int) Value {
	m := ones(total)
	low := ones(total - n)
	return Value{Hi: m.Hi &^ low.Hi, Lo: m.Lo &^ low.Lo}
}

// ones returns a value of n one bits.
func ones(n int) Value {
	switch {
	case n <= 0:
		return Value{}
	case n < 64:
		return Value{Lo: 1<<n - 1}
	case n < 128:
		return Value{Hi: 1<<(n-64) - 1, Lo: ^uint64(0)}
	}
	return Value{Hi: ^uint64(0), Lo: ^uint64(0)}
}

func (v Value) and(m Value) Value { return Value{v.Hi & m.Hi, v.Lo & m.Lo} }
func (v Value) isZero() bool      { return v.Hi == 0 && v.Lo == 0 }

// fits reports whether no bit of v lies outside m.
func (v Value) fits(m Value) bool { return v.Hi&^m.Hi == 0 && v.Lo&^m.Lo == 0 }

// shiftRight returns v without its n lowest bits.
func (v Value) shiftRight(n int) Value {
	if n >= 64 {
		return Value{Lo: v.Hi >> (n - 64)}
	}
	if n == 0 {
		return v
	}
	return Value{Hi: v.Hi >> n, Lo: v.Lo>>n | v.Hi<<(64-n)}
}

// appendValue appends the size lowest bytes of v.
func appendValue(b []byte, v Value, size int) []byte {
	switch size {
	case 1:
		return append(b, byte(v.Lo))
	case 2:
		return binary.BigEndian.AppendUint16(b, uint16(v.Lo))
	case 4:
		return binary.BigEndian.AppendUint32(b, uint32(v.Lo))
	case 8:
		return binary.BigEndian.AppendUint64(b, v.Lo)
	case 16:
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, v.Hi), v.Lo)
	}
	for i := size - 1; i >= 0; i-- {
		b = append(b, byte(v.shiftRight(8*i).Lo))
	}
	return b
}

// readValue reads a big-endian number of at most 16 bytes.
func readValue(b []byte) Value {
	switch len(b) {
	case 1:
		return Value{Lo: uint64(b[0])}
	case 2:
		return Value{Lo: uint64(binary.BigEndian.Uint16(b))}
	case 4:
		return Value{Lo: uint64(binary.BigEndian.Uint32(b))}
	case 8:
		return Value{Lo: binary.BigEndian.Uint64(b)}
	}
	var v Value
	for _, c := range b {
		v = Value{Hi: v.Hi<<8 | v.Lo>>56, Lo: v.Lo<<8 | uint64(c)}
	}
	return v
}

func appendDec(b []byte, v uint64) []byte { return strconv.AppendUint(b, v, 10) }

// appendHex writes a number as C's %#x does: zero has no prefix.
func appendHex(b []byte, v uint64) []byte {
	if v == 0 {
		return append(b, '0')
	}
	return strconv.AppendUint(append(b, "0x"...), v, 16)
}

const hexDigits = "0123456789abcdef"

// appendHexPad writes 0x and at least width digits.
func appendHexPad(b []byte, v uint64, width int) []byte {
	b = append(b, "0x"...)
	for i := max(width, (bits.Len64(v)+3)/4) - 1; i >= 0; i-- {
		b = append(b, hexDigits[v>>(4*i)&15])
	}
	return b
}

func appendHex128(b []byte, v Value) []byte {
	if v.Hi == 0 {
		return appendHex(b, v.Lo)
	}
	b = strconv.AppendUint(append(b, "0x"...), v.Hi, 16)
	for i := 15; i >= 0; i-- {
		b = append(b, hexDigits[v.Lo>>(4*i)&15])
	}
	return b
}

func appendMAC(b []byte, v uint64) []byte {
	for i := 5; i >= 0; i-- {
		c := byte(v >> (8 * i))
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
		if i > 0 {
			b = append(b, ':')
		}
	}
	return b
}

func appendIPv4(b []byte, v uint64) []byte {
	for i := 3; i >= 0; i-- {
		b = appendDec(b, v>>(8*i)&0xff)
		if i > 0 {
			b = append(b, '.')
		}
	}
	return b
}

func addr6(v Value) netip.Addr {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:8], v.Hi)
	binary.BigEndian.PutUint64(a[8:], v.Lo)
	return netip.AddrFrom16(a)
}

// appendIPv6 writes an address as inet_ntop does; IPv4-mapped and
// IPv4-compatible addresses keep their dotted tail.
func appendIPv6(b []byte, v Value) []byte {
	if v.Hi == 0 && v.Lo>>32 == 0 && v.Lo > 0xffff {
		return appendIPv4(append(b, "::"...), v.Lo)
	}
	return addr6(v).AppendTo(b)
}

// prefixLen returns the length of the prefix that a mask is, or -1.
func prefixLen(m Value, total int) int {
	n := bits.OnesCount64(m.Hi) + bits.OnesCount64(m.Lo)
	if prefixMask(n, total) == m {
		return n
	}
	return -1
}

// appendHexBytes writes bytes as ovs-ofctl does in note and userdata.
func appendHexBytes(b []byte, data string) []byte {
	for i := range len(data) {
		if i > 0 {
			b = append(b, '.')
		}
		b = append(b, hexDigits[data[i]>>4], hexDigits[data[i]&15])
	}
	return b
}

type flagName struct {
	bit  uint64
	name string
}

// appendFlags writes +a-b for the bits of a mask, or a|b if the mask is full.
func appendFlags(b []byte, names []flagName, v, mask, full uint64) []byte {
	if mask&full == full {
		if v == 0 {
			return append(b, '0')
		}
		for bit := uint64(1); v != 0; bit <<= 1 {
			if v&bit == 0 {
				continue
			}
			b = appendFlagName(b, names, bit)
			if v &^= bit; v != 0 {
				b = append(b, '|')
			}
		}
		return b
	}
	for bit := uint64(1); mask != 0; bit <<= 1 {
		if mask&bit == 0 {
			continue
		}
		mask &^= bit
		if v&bit != 0 {
			b = append(b, '+')
		} else {
			b = append(b, '-')
		}
		b = appendFlagName(b, names, bit)
	}
	return b
}

func appendFlagName(b []byte, names []flagName, bit uint64) []byte {
	for _, n := range names {
		if n.bit == bit {
			return append(b, n.name...)
		}
	}
	return appendHex(b, bit)
}

// The bits of CTState.
const (
	CTNew  = 0x01
	CTEst  = 0x02
	CTRel  = 0x04
	CTRpl  = 0x08
	CTInv  = 0x10
	CTTrk  = 0x20
	CTSNAT = 0x40
	CTDNAT = 0x80
)

var ctStateNames = []flagName{
	{CTNew, "new"}, {CTEst, "est"}, {CTRel, "rel"}, {CTRpl, "rpl"},
	{CTInv, "inv"}, {CTTrk, "trk"}, {CTSNAT, "snat"}, {CTDNAT, "dnat"},
}

var tcpFlagNames = []flagName{
	{0x001, "fin"}, {0x002, "syn"}, {0x004, "rst"}, {0x008, "psh"}, {0x010, "ack"},
	{0x020, "urg"}, {0x040, "ece"}, {0x080, "cwr"}, {0x100, "ns"},
	{0x200, "[200]"}, {0x400, "[400]"}, {0x800, "[800]"},
}

var fragNames = []struct {
	name        string
	value, mask uint64
}{
	{"no", 0, 3}, {"yes", 1, 1}, {"first", 1, 3}, {"later", 3, 3}, {"not_later", 0, 2},
}

// appendFieldValue writes a value the way set_field, learn and most of the
// fields of a match show it.
func appendFieldValue(b []byte, f Field, v Value) []byte {
	switch f.info().format {
	case fmtHex:
		return appendHex128(b, v)
	case fmtMAC:
		return appendMAC(b, v.Lo)
	case fmtIPv4:
		return appendIPv4(b, v.Lo)
	case fmtIPv6:
		return appendIPv6(b, v)
	case fmtPort:
		return appendPort(b, uint32(v.Lo))
	case fmtPort16:
		return appendPort(b, port32(uint16(v.Lo)))
	case fmtCTState:
		return appendFlags(b, ctStateNames, v.Lo, 0xff, 0xff)
	case fmtTCPFlags:
		return appendFlags(b, tcpFlagNames, v.Lo, 0xfff, 0xfff)
	}
	return appendDec(b, v.Lo)
}

// Reserved port numbers.
const (
	PortMax        = 0xffffff00
	PortUnset      = 0xfffffff7
	PortInPort     = 0xfffffff8
	PortTable      = 0xfffffff9
	PortNormal     = 0xfffffffa
	PortFlood      = 0xfffffffb
	PortAll        = 0xfffffffc
	PortController = 0xfffffffd
	PortLocal      = 0xfffffffe
	PortAny        = 0xffffffff
)

var portNames = []struct {
	port uint32
	name string
}{
	{PortUnset, "UNSET"}, {PortInPort, "IN_PORT"}, {PortTable, "TABLE"},
	{PortNormal, "NORMAL"}, {PortFlood, "FLOOD"}, {PortAll, "ALL"},
	{PortController, "CONTROLLER"}, {PortLocal, "LOCAL"}, {PortAny, "ANY"},
}

func appendPort(b []byte, p uint32) []byte {
	for _, n := range portNames {
		if n.port == p {
			return append(b, n.name...)
		}
	}
	return appendDec(b, uint64(p))
}

// Port numbers have 16 bits in Nicira's extensions: the reserved ones are the
// lower half of the 32-bit ones.

func port16(p uint32) uint16 { return uint16(p) }

func port32(p uint16) uint32 {
	if p >= 0xff00 {
		return 0xffff0000 | uint32(p)
	}
	return uint32(p)
}
