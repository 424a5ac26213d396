// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
)

var errUnknownArg = errors.New("no such argument")

// eachArg calls f with the arguments of an action.
func eachArg(s string, f func(key, value string) error) error {
	for item, rest := nextItem(s); item != ""; item, rest = nextItem(rest) {
		k, v := cutItem(item)
		if err := f(k, v); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

func parseController(arg, item string) ([]Action, error) {
	a := ToController(0xffff)
	if !strings.Contains(item, "(") {
		if arg == "" {
			return []Action{a}, nil
		}
		v, err := parseNum(arg, 16)
		a.MaxLen = uint16(v)
		return single(a, err)
	}
	err := eachArg(arg, func(k, v string) error {
		var n uint64
		var err error
		switch k {
		case "reason":
			for i, name := range reasonNames {
				if name == v {
					a.Reason = Reason(i)
					return nil
				}
			}
			n, err = parseNum(v, 8)
			a.Reason = Reason(n)
		case "max_len":
			n, err = parseNum(v, 16)
			a.MaxLen = uint16(n)
		case "id":
			n, err = parseNum(v, 16)
			a.ID = uint16(n)
		case "userdata":
			a.Userdata, err = parseHexBytes(v)
		case "pause":
			a.Pause = true
		case "meter_id":
			n, err = parseNum(v, 32)
			a.Meter = uint32(n)
		default:
			return errUnknownArg
		}
		return err
	})
	return single(a, err)
}

func parseDecTTL(arg string) ([]Action, error) {
	a := DecTTL{}
	err := eachArg(arg, func(k, _ string) error {
		v, err := parseNum(k, 16)
		a.Controllers = append(a.Controllers, uint16(v))
		return err
	})
	return single(a, err)
}

func parseResubmit(arg, item string) ([]Action, error) {
	a := Resubmit{Table: SameTable}
	if !strings.Contains(item, "(") {
		port, err := parsePort(arg)
		a.Port = port16(port)
		return single(a, err)
	}
	port, rest, _ := strings.Cut(arg, ",")
	table, ct, hasCT := strings.Cut(rest, ",")
	if port != "" {
		v, err := parsePort(port)
		if err != nil {
			return nil, err
		}
		if a.Port = port16(v); v == PortInPort {
			a.Port = 0
		}
	}
	if table != "" {
		v, err := parseNum(table, 8)
		if err != nil {
			return nil, err
		}
		a.Table = uint8(v)
	}
	if hasCT && ct != "ct" {
		return nil, errUnknownArg
	}
	a.CT = hasCT
	return []Action{a}, nil
}

func parseLoad(arg string) ([]Action, error) {
	value, to, _ := strings.Cut(arg, "->")
	s, err := parseBits(to)
	if err != nil {
		return nil, err
	}
	v, err := parseNum(value, 64)
	return single(Load{Value: v, To: s}, err)
}

func parseMove(arg string) ([]Action, error) {
	from, to, _ := strings.Cut(arg, "->")
	f, err := parseBits(from)
	if err != nil {
		return nil, err
	}
	t, err := parseBits(to)
	return single(Move{From: f, To: t}, err)
}

func parseSetField(arg string) ([]Action, error) {
	i := strings.LastIndex(arg, "->")
	if i < 0 {
		return nil, errors.New("lacks ->")
	}
	f := fieldByName(arg[i+2:])
	if f == 0 {
		return nil, fmt.Errorf("no such field: %q", arg[i+2:])
	}
	v, mask, err := parseValue(f, arg[:i])
	if err != nil {
		return nil, err
	}
	if mask == f.fullMask() {
		if f == VLANVID {
			v.Lo |= VLANPresent
		}
		return []Action{Set(f, v)}, nil
	}
	return LoadMasked(f, v, mask), nil
}

// LoadMasked returns the loads that write v to the bits of mask: what OpenFlow
// 1.3 and 1.4 have instead of a set_field with a mask.
func LoadMasked(f Field, v, mask Value) []Action {
	var list []Action
	size := int(f.info().bits)
	for ofs := 0; ofs < size; {
		m := mask.shiftRight(ofs)
		skip := bits.TrailingZeros64(m.Lo)
		if skip > 0 {
			ofs += min(skip, size-ofs)
			continue
		}
		n := min(bits.TrailingZeros64(^m.Lo), size-ofs)
		if n == 0 {
			break
		}
		val := v.shiftRight(ofs).and(ones(n)).Lo
		list = append(list, Load{Value: val, To: f.Bits(ofs, ofs+n-1)})
		ofs += n
	}
	return list
}

func parseConjunction(arg string) ([]Action, error) {
	id, clause, _ := strings.Cut(arg, ",")
	k, n, _ := strings.Cut(strings.TrimSpace(clause), "/")
	a := Conjunction{}
	v, err := parseNum(id, 32)
	if err != nil {
		return nil, err
	}
	a.ID = uint32(v)
	if v, err = parseNum(k, 8); err != nil {
		return nil, err
	}
	a.Clause = uint8(v)
	v, err = parseNum(n, 8)
	a.Of = uint8(v)
	return single(a, err)
}

func (p *actionParser) ct(arg string, depth int) ([]Action, error) {
	a := ConnTrack{}
	err := eachArg(arg, func(k, v string) error {
		var n uint64
		var err error
		switch k {
		case "commit":
			a.Commit = true
		case "force":
			a.Force = true
		case "table":
			n, err = parseNum(v, 8)
			a.Recirc, a.Table = true, uint8(n)
		case "zone":
			if n, err = parseNum(v, 16); err != nil {
				a.ZoneFrom, err = parseBits(v)
			}
			a.Zone = uint16(n)
		case "alg":
			switch v {
			case "ftp":
				a.ALG = algFTP
			case "tftp":
				a.ALG = algTFTP
			default:
				n, err = parseNum(v, 16)
				a.ALG = uint16(n)
			}
		case "nat":
			var nat Action
			if nat, err = parseNAT(v); err == nil {
				nat := nat.(NAT)
				a.NAT = &nat
			}
		case "exec":
			a.Exec, err = p.list(v, depth+1)
		default:
			err = errUnknownArg
		}
		return err
	})
	return single(a, err)
}

func parseNAT(arg string) (Action, error) {
	a := NAT{}
	err := eachArg(arg, func(k, v string) error {
		switch k {
		case "src":
			a.Src = true
		case "dst":
			a.Dst = true
		case "persistent":
			a.Persistent = true
			return nil
		case "hash":
			a.Hash = true
			return nil
		case "random":
			a.Random = true
			return nil
		default:
			return errUnknownArg
		}
		if v == "" {
			return nil
		}
		return a.parseRange(v)
	})
	return a, err
}

// parseRange parses ADDR[-ADDR][:PORT[-PORT]], IPv6 in brackets if ports
// follow.
func (a *NAT) parseRange(s string) error {
	addrs, ports := s, ""
	if i := strings.LastIndex(s, "]"); i >= 0 {
		addrs, ports = s[:i+1], strings.TrimPrefix(s[i+1:], ":")
	} else if i := strings.LastIndex(s, ":"); i >= 0 && strings.Count(s, ":") == 1 {
		addrs, ports = s[:i], s[i+1:]
	}
	lo, hi, isRange := strings.Cut(addrs, "-")
	var err error
	if a.AddrMin, err = netip.ParseAddr(strings.Trim(lo, "[]")); err != nil {
		return err
	}
	if isRange {
		if a.AddrMax, err = netip.ParseAddr(strings.Trim(hi, "[]")); err != nil {
			return err
		}
	}
	if ports == "" {
		return nil
	}
	lo, hi, isRange = strings.Cut(ports, "-")
	v, err := parseNum(lo, 16)
	a.PortMin = uint16(v)
	if err == nil && isRange {
		v, err = parseNum(hi, 16)
		a.PortMax = uint16(v)
	}
	return err
}

func parseFinTimeout(arg string) (Action, error) {
	a := FinTimeout{}
	err := eachArg(arg, func(k, v string) error {
		n, err := parseNum(v, 16)
		switch k {
		case "idle_timeout":
			a.Idle = uint16(n)
		case "hard_timeout":
			a.Hard = uint16(n)
		default:
			return errUnknownArg
		}
		return err
	})
	return a, err
}

func parseCheckPktLarger(item string) ([]Action, error) {
	_, rest, _ := strings.Cut(item, "(")
	size, to, ok := strings.Cut(rest, ")->")
	if !ok {
		return nil, errors.New("lacks ->")
	}
	n, err := parseNum(size, 16)
	if err != nil {
		return nil, err
	}
	s, err := parseBits(to)
	return single(CheckPktLarger{Len: uint16(n), To: s}, err)
}
