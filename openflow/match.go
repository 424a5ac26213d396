// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// A Term is the condition that a match puts on one field. Make one with Eq,
// Masked or the constructors of this file; the zero Mask of a hand-made Term
// means that the field is not looked at.
type Term struct {
	Field Field
	Value Value
	Mask  Value
	Raw   string // the bytes of the term if Field is RawField
}

// Eq is the condition that f has the value v.
func Eq(f Field, v Value) Term { return Term{Field: f, Value: v, Mask: f.fullMask()} }

// Masked is the condition that f has the value v in the bits of mask.
func Masked(f Field, v, mask Value) Term { return Term{Field: f, Value: v, Mask: mask} }

// Num is the condition that f has the numeric value v.
func Num(f Field, v uint64) Term { return Eq(f, Value{Lo: v}) }

// HW is the condition that f, one of the Ethernet address fields, is m.
func HW(f Field, m MAC) Term { return Eq(f, m.Value()) }

// IP is the condition that f, one of the address fields, lies in p. The bits
// of p below its length are ignored.
func IP(f Field, p netip.Prefix) Term {
	n := int(f.info().bits)
	return Masked(f, Addr(p.Addr()), prefixMask(p.Bits(), n))
}

// FromPort is the condition that the packet came in by port p.
func FromPort(p uint32) Term { return Num(InPort, uint64(p)) }

// VLAN is the condition that the packet is tagged with the VLAN id vid.
func VLAN(vid uint16) Term { return Num(VLANVID, uint64(vid&0xfff|VLANPresent)) }

// Untagged is the condition that the packet has no VLAN tag.
func Untagged() Term { return Num(VLANVID, 0) }

// CTFlags is the condition that the bits of set are on and those of clear are off
// in the connection state.
func CTFlags(set, clear uint32) Term {
	return Masked(CTState, Uint(uint64(set)), Uint(uint64(set|clear)))
}

// A Match is the set of conditions of a flow, in any order and with each field
// at most once. A nil Match matches every packet.
type Match []Term

// With returns a new match that has the terms of m and those given.
func (m Match) With(terms ...Term) Match {
	return append(slices.Clip(slices.Clone(m)), terms...)
}

// Lookup returns the term of a field.
func (m Match) Lookup(f Field) (Term, bool) {
	for _, t := range m {
		if t.Field == f {
			return t, true
		}
	}
	return Term{}, false
}

// inlineTerms is how many terms a match may have before its encoding needs
// memory of its own.
const inlineTerms = 24

// appendTerms appends the match in canonical form: 64- and 128-bit registers
// split into 32-bit ones, sorted by field, values cut to their masks, no empty
// masks, exact terms without mask.
func (m Match) appendTerms(b []byte) ([]byte, error) {
	var buf [inlineTerms]Term
	terms := buf[:0]
	for _, t := range m {
		switch {
		case t.Field >= XReg0 && t.Field <= XReg7:
			r := Reg0 + 2*(t.Field-XReg0)
			terms = append(terms,
				Masked(r, Uint(t.Value.Lo>>32), Uint(t.Mask.Lo>>32)),
				Masked(r+1, Uint(t.Value.Lo&0xffffffff), Uint(t.Mask.Lo&0xffffffff)))
		case t.Field >= XXReg0 && t.Field <= XXReg3:
			r := Reg0 + 4*(t.Field-XXReg0)
			for i := range 4 {
				v, k := t.Value.shiftRight(96-32*i), t.Mask.shiftRight(96-32*i)
				terms = append(terms, Masked(r+Field(i), Uint(v.Lo&0xffffffff), Uint(k.Lo&0xffffffff)))
			}
		default:
			terms = append(terms, t)
		}
	}
	sortTerms(terms)
	prev := Field(0)
	for i := range terms {
		t := &terms[i]
		if t.Field == RawField {
			b = append(b, t.Raw...)
			continue
		}
		if t.Mask.and(t.Field.fullMask()).isZero() {
			continue
		}
		if t.Field == 0 || t.Field > Metadata {
			return b, fmt.Errorf("openflow: field %s (%d) cannot be matched on", t.Field, t.Field)
		}
		if t.Field == prev {
			return b, fmt.Errorf("openflow: match names %s twice", t.Field)
		}
		prev = t.Field
		full := t.Field.fullMask()
		if !t.Value.fits(full) {
			return b, fmt.Errorf("openflow: value %s does not fit into %s", appendHex128(nil, t.Value), t.Field)
		}
		b = appendTerm(b, t, full)
	}
	return b, nil
}

// sortTerms is an insertion sort: matches are short and mostly in order, and
// slices.SortFunc would make the terms escape to the heap.
func sortTerms(terms []Term) {
	for i := 1; i < len(terms); i++ {
		for j := i; j > 0 && terms[j].Field < terms[j-1].Field; j-- {
			terms[j], terms[j-1] = terms[j-1], terms[j]
		}
	}
}

func appendTerm(b []byte, t *Term, full Value) []byte {
	fi := t.Field.info()
	masked := t.Mask.and(full) != full
	hdr := fi.oxmHdr
	if masked {
		hdr |= 0x100
		hdr += uint32(fi.size)
	}
	b = binary.BigEndian.AppendUint32(b, hdr)
	if fi.exp != 0 {
		b = binary.BigEndian.AppendUint32(b, fi.exp)
	}
	b = appendValue(b, t.Value.and(t.Mask), int(fi.size))
	if masked {
		b = appendValue(b, t.Mask.and(full), int(fi.size))
	}
	return b
}

// decodeTerms decodes the terms of a match. Fields that are not known become
// RawField terms; only broken lengths are an error.
func decodeTerms(b []byte) (Match, error) { return appendDecodedTerms(nil, b) }

func appendDecodedTerms(m Match, b []byte) (Match, error) {
	if len(b) == 0 {
		return m, nil
	}
	m = slices.Grow(m, countTerms(b))
	for len(b) > 0 {
		if len(b) < 4 {
			return m, malformed("match", "%d bytes after the last term", len(b))
		}
		hdr := binary.BigEndian.Uint32(b)
		n := 4 + int(hdr&0xff)
		if n > len(b) {
			return m, malformed("match", "term of %d bytes in the last %d", n, len(b))
		}
		m = append(m, decodeTerm(hdr, b[:n]))
		b = b[n:]
	}
	return m, nil
}

func countTerms(b []byte) int {
	n := 0
	for len(b) >= 4 {
		k := 4 + int(b[3])
		if k > len(b) {
			break
		}
		n, b = n+1, b[k:]
	}
	return n
}

// decodeTerm decodes one term of which the length has been checked.
func decodeTerm(hdr uint32, b []byte) Term {
	var exp uint32
	payload := b[4:]
	if hdr>>16 == classExp {
		if len(payload) < 4 {
			return Term{Field: RawField, Raw: string(b)}
		}
		exp = binary.BigEndian.Uint32(payload)
		payload = payload[4:]
	}
	masked := hdr&0x100 != 0
	f := fieldByHeader(hdr, exp)
	if f == 0 || f > Metadata {
		return Term{Field: RawField, Raw: string(b)}
	}
	fi := f.info()
	if hdr>>9 != fi.oxmHdr>>9 {
		return Term{Field: RawField, Raw: string(b)} // another header of the same field
	}
	size := int(fi.size)
	if masked {
		size *= 2
	}
	if len(payload) != size {
		return Term{Field: RawField, Raw: string(b)}
	}
	full := f.fullMask()
	t := Term{Field: f, Value: readValue(payload[:fi.size]), Mask: full}
	if masked {
		t.Mask = readValue(payload[fi.size:])
		if t.Mask.isZero() || t.Mask == full || !t.Mask.fits(full) {
			return Term{Field: RawField, Raw: string(b)} // not canonical: keep it as it is
		}
	}
	if !t.Value.fits(t.Mask) {
		return Term{Field: RawField, Raw: string(b)}
	}
	return t
}

// appendMatch appends an ofp_match: type, length, terms and padding.
func appendMatch(b, terms []byte) []byte {
	n := 4 + len(terms)
	b = append(b, 0, 1, byte(n>>8), byte(n))
	b = append(b, terms...)
	return appendZeros(b, pad8(n))
}

func appendMatchString(b []byte, terms string) []byte {
	n := 4 + len(terms)
	b = append(b, 0, 1, byte(n>>8), byte(n))
	b = append(b, terms...)
	return appendZeros(b, pad8(n))
}

// cutMatch splits an ofp_match and its padding off the front of b.
func cutMatch(b []byte) (terms, rest []byte, err error) {
	if len(b) < 8 {
		return nil, nil, malformed("match", "%d bytes", len(b))
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if typ := binary.BigEndian.Uint16(b); typ != 1 {
		return nil, nil, malformed("match", "type %d", typ)
	}
	if n < 4 || n+pad8(n) > len(b) {
		return nil, nil, malformed("match", "length %d in %d bytes", n, len(b))
	}
	return b[4:n], b[n+pad8(n):], nil
}

// pad8 returns how many bytes bring n to a multiple of 8.
func pad8(n int) int { return -n & 7 }

func appendZeros(b []byte, n int) []byte {
	for range n {
		b = append(b, 0)
	}
	return b
}
