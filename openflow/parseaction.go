// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
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

// A textParser parses an action whose meaning depends on its text alone: the
// argument, and the whole item.
type textParser func(arg, item string) ([]Action, error)

// num is an action whose argument is a number.
func num[A interface {
	Action
	~uint8 | ~uint16 | ~uint32
}](bits int) textParser {
	return func(arg, _ string) ([]Action, error) {
		v, err := parseNum(arg, bits)
		return single(A(v), err)
	}
}

// alone is an action without an argument.
func alone(a Action) textParser {
	return func(string, string) ([]Action, error) { return []Action{a}, nil }
}

func ofArg(parse func(arg string) ([]Action, error)) textParser {
	return func(arg, _ string) ([]Action, error) { return parse(arg) }
}

func oneOfArg(parse func(arg string) (Action, error)) textParser {
	return func(arg, _ string) ([]Action, error) { return single(parse(arg)) }
}

var textParsers = map[string]textParser{
	"output":           parseOutput,
	"CONTROLLER":       parseController,
	"controller":       parseController,
	"push_vlan":        num[PushVLAN](16),
	"pop_vlan":         alone(PopVLAN{}),
	"strip_vlan":       alone(PopVLAN{}),
	"push_mpls":        num[PushMPLS](16),
	"pop_mpls":         num[PopMPLS](16),
	"dec_mpls_ttl":     alone(DecMPLSTTL{}),
	"set_queue":        num[SetQueue](32),
	"group":            num[Group](32),
	"mod_nw_ttl":       num[SetTTL](8),
	"meter":            num[Meter](32),
	"goto_table":       num[GotoTable](8),
	"dec_ttl":          ofArg(parseDecTTL),
	"resubmit":         parseResubmit,
	"load":             ofArg(parseLoad),
	"move":             ofArg(parseMove),
	"set_field":        ofArg(parseSetField),
	"conjunction":      ofArg(parseConjunction),
	"pop_queue":        alone(PopQueue{}),
	"exit":             alone(Exit{}),
	"ct_clear":         alone(CTClear{}),
	"clear_actions":    alone(ClearActions{}),
	"nat":              oneOfArg(parseNAT),
	"learn":            oneOfArg(parseLearn),
	"fin_timeout":      oneOfArg(parseFinTimeout),
	"check_pkt_larger": func(_, item string) ([]Action, error) { return parseCheckPktLarger(item) },
	"multipath":        oneOfArg(parseMultipath),
	"raw":              ofArg(parseRawAction),
}

func (p *actionParser) one(name, arg, item string, depth int) ([]Action, error) {
	if parse := textParsers[name]; parse != nil {
		return parse(arg, item)
	}
	switch name {
	case "NORMAL", "FLOOD", "ALL", "LOCAL", "IN_PORT", "TABLE", "normal", "flood", "all", "local", "in_port":
		port, err := parsePort(name)
		return single(Output(port), err)
	case "note":
		s, err := parseHexBytes(arg)
		return single(Note(s), err)
	case "ct":
		return p.ct(arg, depth)
	case "clone":
		list, err := p.list(arg, depth+1)
		return single(Clone{Actions: list}, err)
	case "write_actions":
		list, err := p.list(arg, depth+1)
		return single(WriteActions{Actions: list}, err)
	case "write_metadata":
		v, m, err := parseValue(Metadata, arg)
		return single(WriteMetadata{Value: v.Lo, Mask: m.Lo}, err)
	case "push":
		s, err := parseBits(arg)
		return single(Push{From: s}, err)
	case "pop":
		s, err := parseBits(arg)
		return single(Pop{To: s}, err)
	case "bundle", "bundle_load":
		return single(parseChoose(name, arg))
	}
	return p.old(name, arg)
}

// parseRawAction tells raw actions from raw instructions, which the text does
// not: an action of that type would not be raw.
func parseRawAction(arg string) ([]Action, error) {
	raw, err := parseRaw(arg)
	if err == nil && (len(raw) < 8 || len(raw)%8 != 0 || int(u16(raw[2:])) != len(raw)) {
		err = errors.New("not a whole action")
	}
	if err != nil {
		return nil, err
	}
	if typ := u16(raw); typ >= insGotoTable && typ <= insMeter && typ != insApplyActions {
		return []Action{RawInstruction(raw)}, nil
	}
	return []Action{RawAction(raw)}, nil
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

func parseOutput(arg, item string) ([]Action, error) {
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
