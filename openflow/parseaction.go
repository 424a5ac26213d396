// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
)

// actionParser knows the match of the flow, on which the meaning of some
// actions depends.
type actionParser struct{ match Match }

func (p *actionParser) list(s string, depth int) ([]Action, error) {
	if depth > maxDepth {
		return nil, errors.New("actions nested too deep")
	}
	var list []Action
	for item, rest := nextItem(s); item != ""; item, rest = nextItem(rest) {
		if item == "drop" {
			if list != nil || strings.TrimSpace(rest) != "" {
				return nil, errors.New("drop must be the only action")
			}
			return nil, nil
		}
		name, arg := cutItem(item)
		more, err := p.one(name, arg, item, depth)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, more...)
	}
	return list, nil
}

func single(a Action, err error) ([]Action, error) {
	if err != nil {
		return nil, err
	}
	return []Action{a}, nil
}

// num is an action whose argument is a number.
func num[A Action](make func(uint64) A, arg string, bits int) ([]Action, error) {
	v, err := parseNum(arg, bits)
	return single(make(v), err)
}

func (p *actionParser) one(name, arg, item string, depth int) ([]Action, error) {
	switch name {
	case "output":
		return p.output(arg, item)
	case "NORMAL", "FLOOD", "ALL", "LOCAL", "IN_PORT", "TABLE", "normal", "flood", "all", "local", "in_port":
		port, err := parsePort(name)
		return single(Output(port), err)
	case "CONTROLLER", "controller":
		return parseController(arg, item)
	case "push_vlan":
		return num(func(v uint64) PushVLAN { return PushVLAN(v) }, arg, 16)
	case "pop_vlan", "strip_vlan":
		return []Action{PopVLAN{}}, nil
	case "push_mpls":
		return num(func(v uint64) PushMPLS { return PushMPLS(v) }, arg, 16)
	case "pop_mpls":
		return num(func(v uint64) PopMPLS { return PopMPLS(v) }, arg, 16)
	case "dec_mpls_ttl":
		return []Action{DecMPLSTTL{}}, nil
	case "set_queue":
		return num(func(v uint64) SetQueue { return SetQueue(v) }, arg, 32)
	case "group":
		return num(func(v uint64) Group { return Group(v) }, arg, 32)
	case "mod_nw_ttl":
		return num(func(v uint64) SetTTL { return SetTTL(v) }, arg, 8)
	case "meter":
		return num(func(v uint64) Meter { return Meter(v) }, arg, 32)
	case "goto_table":
		return num(func(v uint64) GotoTable { return GotoTable(v) }, arg, 8)
	case "dec_ttl":
		return parseDecTTL(arg)
	case "resubmit":
		return parseResubmit(arg, item)
	case "load":
		return parseLoad(arg)
	case "move":
		return parseMove(arg)
	case "set_field":
		return parseSetField(arg)
	case "conjunction":
		return parseConjunction(arg)
	case "note":
		s, err := parseHexBytes(arg)
		return single(Note(s), err)
	case "pop_queue":
		return []Action{PopQueue{}}, nil
	case "exit":
		return []Action{Exit{}}, nil
	case "ct_clear":
		return []Action{CTClear{}}, nil
	case "clear_actions":
		return []Action{ClearActions{}}, nil
	case "ct":
		return p.ct(arg, depth)
	case "nat":
		return single(parseNAT(arg))
	case "clone":
		list, err := p.list(arg, depth+1)
		return single(Clone{Actions: list}, err)
	case "write_actions":
		list, err := p.list(arg, depth+1)
		return single(WriteActions{Actions: list}, err)
	case "write_metadata":
		v, m, err := parseValue(Metadata, arg)
		return single(WriteMetadata{Value: v.Lo, Mask: m.Lo}, err)
	case "learn":
		return single(parseLearn(arg))
	case "push":
		s, err := parseBits(arg)
		return single(Push{From: s}, err)
	case "pop":
		s, err := parseBits(arg)
		return single(Pop{To: s}, err)
	case "fin_timeout":
		return single(parseFinTimeout(arg))
	case "check_pkt_larger":
		return parseCheckPktLarger(item)
	case "multipath":
		return single(parseMultipath(arg))
	case "bundle", "bundle_load":
		return single(parseChoose(name, arg))
	case "raw":
		raw, err := parseRaw(arg)
		if err == nil && (len(raw) < 8 || len(raw)%8 != 0 || int(u16(raw[2:])) != len(raw)) {
			err = errors.New("not a whole action")
		}
		if err != nil {
			return nil, err
		}
		return []Action{rawByType(raw)}, nil
	}
	return p.old(name, arg)
}

// rawByType tells raw actions from raw instructions, which the text does not:
// an action of that type would not be raw.
func rawByType(raw string) Action {
	if typ := u16(raw); typ >= insGotoTable && typ <= insMeter && typ != insApplyActions {
		return RawInstruction(raw)
	}
	return RawAction(raw)
}

// old handles the names of OpenFlow 1.0 that stand for set_field.
func (p *actionParser) old(name, arg string) ([]Action, error) {
	var f Field
	proto := uint64(0)
	if t, ok := p.match.Lookup(IPProto); ok {
		proto = t.Value.Lo
	}
	switch name {
	case "mod_vlan_vid", "set_vlan_vid":
		v, err := parseNum(arg, 12)
		set := SetVLAN(uint16(v))
		if t, ok := p.match.Lookup(VLANVID); name == "set_vlan_vid" || ok && t.Value.Lo&t.Mask.Lo&VLANPresent != 0 {
			return single(set, err)
		}
		return []Action{PushVLAN(EtherVLAN), set}, err
	case "mod_dl_src":
		f = EthSrc
	case "mod_dl_dst":
		f = EthDst
	case "mod_nw_src":
		f = IPv4Src
	case "mod_nw_dst":
		f = IPv4Dst
	case "mod_nw_ecn":
		f = IPECN
	case "mod_nw_tos":
		v, err := parseNum(arg, 8)
		return single(Set(IPDSCP, Uint(v>>2)), err)
	case "set_tunnel", "set_tunnel64":
		f = TunID
	case "mod_tp_src", "mod_tp_dst":
		src := name == "mod_tp_src"
		switch proto {
		case ProtoTCP:
			f = pick(src, TCPSrc, TCPDst)
		case ProtoUDP:
			f = pick(src, UDPSrc, UDPDst)
		case ProtoSCTP:
			f = pick(src, SCTPSrc, SCTPDst)
		default:
			return nil, errors.New("the match names no transport protocol")
		}
	default:
		if port, err := parsePort(name); err == nil && arg == "" {
			return []Action{Output(port)}, nil
		}
		return nil, errors.New("no such action")
	}
	v, err := parseOne(f.info().format, arg)
	return single(Set(f, v), err)
}

func (p *actionParser) output(arg, item string) ([]Action, error) {
	if strings.HasPrefix(item, "output(") {
		a := OutputTrunc{}
		err := eachArg(arg, func(k, v string) error {
			switch k {
			case "port":
				port, err := parsePort(v)
				a.Port = port16(port)
				return err
			case "max_len":
				n, err := parseNum(v, 32)
				a.MaxLen = uint32(n)
				return err
			}
			return errUnknownArg
		})
		return single(a, err)
	}
	if port, err := parsePort(arg); err == nil {
		if port == PortController {
			return []Action{ToController(0)}, nil
		}
		return []Action{Output(port)}, nil
	}
	s, err := parseBits(arg)
	return single(OutputField{From: s}, err)
}

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
