// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// fieldAliases are the names of a field beyond those in the table.
var fieldAliases = map[string]Field{
	"dl_src": EthSrc, "dl_dst": EthDst, "dl_type": EthType,
	"nw_src": IPv4Src, "nw_dst": IPv4Dst, "ip_proto": IPProto, "ip_ecn": IPECN,
	"tunnel_id": TunID, "nw_frag": IPFrag, "tp_src": TCPSrc, "tp_dst": TCPDst,
	"OXM_OF_ETH_SRC": EthSrc, "OXM_OF_ETH_DST": EthDst, "OXM_OF_TUNNEL_ID": TunID,
	"OXM_OF_IPV4_SRC": IPv4Src, "OXM_OF_IPV4_DST": IPv4Dst,
}

// fieldByName returns the field that ovs-ofctl knows by that name, or 0.
func fieldByName(name string) Field {
	for f := ConjID; f < RawField; f++ {
		if fi := &fieldTable[f]; fi.name == name || fi.nxm == name {
			return f
		}
	}
	return fieldAliases[name]
}

func parseNum(s string, bits int) (uint64, error) {
	v, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		var ne *strconv.NumError
		if errors.As(err, &ne) {
			err = ne.Err
		}
		return 0, fmt.Errorf("number %q: %w", s, err)
	}
	return v, nil
}

// parseNum128 parses a decimal number of 64 bits or a hexadecimal one of 128.
func parseNum128(s string) (Value, error) {
	digits, ok := strings.CutPrefix(s, "0x")
	if !ok || len(digits) <= 16 {
		v, err := parseNum(s, 64)
		return Value{Lo: v}, err
	}
	if len(digits) > 32 {
		return Value{}, fmt.Errorf("number %q: more than 128 bits", s)
	}
	cut := len(digits) - 16
	hi, err := strconv.ParseUint(digits[:cut], 16, 64)
	if err != nil {
		return Value{}, fmt.Errorf("number %q: not hexadecimal", s)
	}
	lo, err := strconv.ParseUint(digits[cut:], 16, 64)
	if err != nil {
		return Value{}, fmt.Errorf("number %q: not hexadecimal", s)
	}
	return Value{Hi: hi, Lo: lo}, nil
}

// parseValue parses value or value/mask of a field.
func parseValue(f Field, s string) (v, mask Value, err error) {
	fi := f.info()
	switch fi.format {
	case fmtFrag:
		for _, n := range fragNames {
			if n.name == s {
				return Uint(n.value), Uint(n.mask), nil
			}
		}
		return v, mask, fmt.Errorf("no such kind of fragment: %q", s)
	case fmtCTState:
		return parseFlags(ctStateNames, s, 0xffffffff, 0xff)
	case fmtTCPFlags:
		return parseFlags(tcpFlagNames, s, 0xfff, 0xfff)
	}
	text, maskText, masked := strings.Cut(s, "/")
	if v, err = parseOne(fi.format, text); err != nil {
		return v, mask, err
	}
	mask = f.fullMask()
	if !masked {
		return v, mask, nil
	}
	if fi.format == fmtIPv4 || fi.format == fmtIPv6 {
		if n, err := strconv.ParseUint(maskText, 10, 8); err == nil {
			if int(n) > int(fi.bits) {
				return v, mask, fmt.Errorf("prefix length %d", n)
			}
			mask = prefixMask(int(n), int(fi.bits))
			return v.and(mask), mask, nil
		}
	}
	if mask, err = parseOne(fi.format, maskText); err != nil {
		return v, mask, err
	}
	return v.and(mask), mask, nil
}

func parseOne(f format, s string) (Value, error) {
	switch f {
	case fmtMAC:
		m, err := ParseMAC(s)
		return m.Value(), err
	case fmtIPv4, fmtIPv6:
		a, err := netip.ParseAddr(s)
		if err != nil || a.Is4() != (f == fmtIPv4) || a.Zone() != "" {
			return Value{}, fmt.Errorf("address %q", s)
		}
		return Addr(a), nil
	case fmtPort:
		p, err := parsePort(s)
		return Uint(uint64(p)), err
	case fmtPort16:
		p, err := parsePort(s)
		return Uint(uint64(port16(p))), err
	}
	return parseNum128(s)
}

// ParseMAC parses an Ethernet address in colon form.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 {
		return m, fmt.Errorf("openflow: Ethernet address %q", s)
	}
	for i := range m {
		if i > 0 && s[3*i-1] != ':' {
			return m, fmt.Errorf("openflow: Ethernet address %q", s)
		}
		hi, lo := unhex(s[3*i]), unhex(s[3*i+1])
		if hi > 15 || lo > 15 {
			return m, fmt.Errorf("openflow: Ethernet address %q", s)
		}
		m[i] = hi<<4 | lo
	}
	return m, nil
}

func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

func parsePort(s string) (uint32, error) {
	for _, n := range portNames {
		if strings.EqualFold(n.name, s) {
			return n.port, nil
		}
	}
	v, err := parseNum(s, 32)
	if err == nil && v >= 0xff00 && v <= 0xffff {
		v |= 0xffff0000
	}
	return uint32(v), err
}

// parseFlags parses +a-b, a|b and number/mask. full is the mask of a match
// that is exact, known the bits that have names.
func parseFlags(names []flagName, s string, full, known uint64) (v, mask Value, err error) {
	if s == "" {
		return v, mask, errors.New("no flags")
	}
	if s[0] != '+' && s[0] != '-' {
		if s[0] >= '0' && s[0] <= '9' {
			text, maskText, masked := strings.Cut(s, "/")
			v.Lo, err = parseNum(text, 32)
			mask.Lo = full
			if masked && err == nil {
				mask.Lo, err = parseNum(maskText, 32)
			} else if full > known {
				mask.Lo = known
			}
			return v, mask, err
		}
		for word := range strings.SplitSeq(s, "|") {
			bit, err := flagByName(names, word)
			if err != nil {
				return v, mask, err
			}
			v.Lo |= bit
		}
		return v, Uint(known), nil
	}
	for s != "" {
		sign := s[0]
		end := 1
		for end < len(s) && s[end] != '+' && s[end] != '-' {
			end++
		}
		bit, err := flagByName(names, s[1:end])
		if err != nil {
			return v, mask, err
		}
		mask.Lo |= bit
		if sign == '+' {
			v.Lo |= bit
		}
		s = s[end:]
	}
	return v, mask, nil
}

func flagByName(names []flagName, s string) (uint64, error) {
	for _, n := range names {
		if n.name == s {
			return n.bit, nil
		}
	}
	return 0, fmt.Errorf("no such flag: %q", s)
}

// parseBits parses FIELD[], FIELD[n], FIELD[a..b] or FIELD.
func parseBits(s string) (Bits, error) {
	name, rng, ok := strings.Cut(s, "[")
	f := fieldByName(name)
	if f == 0 || f.info().nxmHdr == 0 {
		return Bits{}, fmt.Errorf("no such field: %q", name)
	}
	if !ok {
		return f.All(), nil
	}
	rng, ok = strings.CutSuffix(rng, "]")
	if !ok {
		return Bits{}, fmt.Errorf("%q lacks a bracket", s)
	}
	if rng == "" {
		return f.All(), nil
	}
	lo, hi, isRange := strings.Cut(rng, "..")
	if !isRange {
		hi = lo
	}
	a, err := parseNum(lo, 8)
	if err != nil {
		return Bits{}, err
	}
	z, err := parseNum(hi, 8)
	if err != nil {
		return Bits{}, err
	}
	if z < a || z >= uint64(f.info().bits) {
		return Bits{}, fmt.Errorf("%q names bits that do not exist", s)
	}
	return f.Bits(int(a), int(z)), nil
}

// parseHexBytes parses 01.02.ff or 0102ff.
func parseHexBytes(s string) (string, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, ".", ""))
	if err != nil {
		return "", fmt.Errorf("bytes %q: %w", s, err)
	}
	return string(b), nil
}

func parseRaw(s string) (string, error) {
	digits, ok := strings.CutPrefix(s, "0x")
	if !ok {
		return "", fmt.Errorf("raw bytes %q", s)
	}
	return parseHexBytes(digits)
}
