// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"slices"
	"strings"
)

// ParseFlow parses a flow in the syntax of ovs-ofctl add-flow: everything that
// AppendText writes, and the older names (strip_vlan, mod_vlan_vid, tp_dst,
// dl_vlan …) that people type. Unlike ovs-ofctl it refuses a field whose
// protocol is not matched instead of leaving the field out.
func ParseFlow(s string) (Flow, error) {
	f := Flow{Priority: DefaultPriority}
	head, actions, ok := cutActions(s)
	p := matchParser{}
	for item, rest := nextItem(head); item != ""; item, rest = nextItem(rest) {
		name, arg := cutItem(item)
		done, err := f.parseHead(name, arg)
		if err == nil && !done {
			err = p.add(name, arg)
		}
		if err != nil {
			return f, fmt.Errorf("openflow: flow %q: %w", s, err)
		}
	}
	var err error
	if f.Match, err = p.match(); err != nil {
		return f, fmt.Errorf("openflow: flow %q: %w", s, err)
	}
	if !ok {
		return f, nil
	}
	ap := actionParser{match: f.Match}
	if f.Actions, err = ap.list(actions, 0); err != nil {
		return f, fmt.Errorf("openflow: flow %q: %w", s, err)
	}
	return f, nil
}

// ParseMatch parses the match part of a flow.
func ParseMatch(s string) (Match, error) {
	p := matchParser{}
	for item, rest := nextItem(s); item != ""; item, rest = nextItem(rest) {
		name, arg := cutItem(item)
		if err := p.add(name, arg); err != nil {
			return nil, fmt.Errorf("openflow: match %q: %w", s, err)
		}
	}
	m, err := p.match()
	if err != nil {
		return nil, fmt.Errorf("openflow: match %q: %w", s, err)
	}
	return m, nil
}

// ParseActions parses a list of actions.
func ParseActions(s string) ([]Action, error) {
	ap := actionParser{}
	list, err := ap.list(s, 0)
	if err != nil {
		return nil, fmt.Errorf("openflow: actions %q: %w", s, err)
	}
	return list, nil
}

// cutActions splits "…,actions=…" at a place outside of parentheses.
func cutActions(s string) (head, actions string, ok bool) {
	for _, word := range []string{"actions=", "action="} {
		if i := strings.Index(s, word); i >= 0 && (i == 0 || isSep(s[i-1])) {
			return s[:i], s[i+len(word):], true
		}
	}
	return s, "", false
}

func isSep(c byte) bool { return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// nextItem cuts the next item off a list separated by commas or spaces;
// brackets of all kinds protect what is in them.
func nextItem(s string) (item, rest string) {
	for s != "" && isSep(s[0]) {
		s = s[1:]
	}
	depth := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case depth <= 0 && isSep(c):
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// cutItem splits name=arg, name:arg or name(arg).
func cutItem(s string) (name, arg string) {
	i := strings.IndexAny(s, "=:(")
	if i < 0 {
		return s, ""
	}
	if s[i] == '(' && s[len(s)-1] == ')' {
		return s[:i], s[i+1 : len(s)-1]
	}
	return s[:i], s[i+1:]
}

// parseHead handles what is not match; done is false if name is no such word.
func (f *Flow) parseHead(name, arg string) (done bool, err error) {
	var v uint64
	switch name {
	case "table":
		v, err = parseNum(arg, 8)
		f.Table = uint8(v)
	case "priority":
		v, err = parseNum(arg, 16)
		f.Priority = uint16(v)
	case "cookie":
		f.Cookie, err = parseNum(arg, 64)
	case "idle_timeout":
		v, err = parseNum(arg, 16)
		f.IdleTimeout = uint16(v)
	case "hard_timeout":
		v, err = parseNum(arg, 16)
		f.HardTimeout = uint16(v)
	case "importance":
		v, err = parseNum(arg, 16)
		f.Importance = uint16(v)
	case "duration", "n_packets", "n_bytes", "idle_age", "hard_age":
		// Counters of dump-flows.
	default:
		for _, n := range flowFlagNames {
			if n.name == name {
				f.Flags |= FlowFlags(n.bit)
				return true, nil
			}
		}
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return true, err
}

// shortNames are the words that stand for an Ethernet type and IP protocol.
var shortNames = []struct {
	name       string
	etype      uint64
	proto      uint64
	hasIPProto bool
}{
	{"ip", EtherIPv4, 0, false}, {"ipv6", EtherIPv6, 0, false}, {"ip6", EtherIPv6, 0, false},
	{"icmp", EtherIPv4, ProtoICMP, true}, {"icmp6", EtherIPv6, ProtoICMPv6, true},
	{"tcp", EtherIPv4, ProtoTCP, true}, {"tcp6", EtherIPv6, ProtoTCP, true},
	{"udp", EtherIPv4, ProtoUDP, true}, {"udp6", EtherIPv6, ProtoUDP, true},
	{"sctp", EtherIPv4, ProtoSCTP, true}, {"sctp6", EtherIPv6, ProtoSCTP, true},
	{"arp", EtherARP, 0, false}, {"rarp", EtherRARP, 0, false},
	{"mpls", EtherMPLS, 0, false}, {"mplsm", EtherMPLSM, 0, false},
}

type pair struct{ name, arg string }

// matchParser collects the items of a match: what tp_dst or nw_src mean is
// known only when the Ethernet type and the protocol are.
type matchParser struct {
	etype, proto       uint64
	hasEtype, hasProto bool
	pairs              []pair
}

func (p *matchParser) add(name, arg string) error {
	for _, s := range shortNames {
		if s.name != name || arg != "" {
			continue
		}
		if p.hasEtype && p.etype != s.etype {
			return fmt.Errorf("%s contradicts Ethernet type %#x", name, p.etype)
		}
		p.etype, p.hasEtype = s.etype, true
		if s.hasIPProto {
			p.proto, p.hasProto = s.proto, true
		}
		return nil
	}
	var err error
	switch name {
	case "dl_type", "eth_type":
		p.etype, err = parseNum(arg, 16)
		p.hasEtype = true
	case "nw_proto", "ip_proto":
		if p.hasEtype && (p.etype == EtherARP || p.etype == EtherRARP) {
			p.pairs = append(p.pairs, pair{"arp_op", arg})
			return nil
		}
		p.proto, err = parseNum(arg, 8)
		p.hasProto = true
	default:
		p.pairs = append(p.pairs, pair{name, arg})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (p *matchParser) match() (Match, error) {
	var m Match
	if p.hasEtype {
		m = append(m, Num(EthType, p.etype))
	}
	if p.hasProto {
		m = append(m, Num(IPProto, p.proto))
	}
	vlan := vlanParser{}
	for _, kv := range p.pairs {
		done, err := vlan.add(kv.name, kv.arg)
		if err == nil && !done {
			var t Term
			if t, err = p.term(kv.name, kv.arg); err == nil {
				m = append(m, t)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kv.name, err)
		}
	}
	m = vlan.terms(m)
	if err := m.checkPrerequisites(p.etype, p.proto); err != nil {
		return nil, err
	}
	// An encoding finds values that are too big and fields given twice.
	if _, err := m.appendTerms(nil); err != nil {
		return nil, err
	}
	return m, nil
}

func (p *matchParser) term(name, arg string) (Term, error) {
	if name == "raw" {
		raw, err := parseRaw(arg)
		return Term{Field: RawField, Raw: raw}, err
	}
	f := p.field(name)
	if f == 0 {
		return Term{}, fmt.Errorf("no such field in this place")
	}
	if name == "nw_tos" {
		v, err := parseNum(arg, 8)
		return Num(IPDSCP, v>>2), err
	}
	v, mask, err := parseValue(f, arg)
	if err != nil {
		return Term{}, err
	}
	if !v.fits(f.fullMask()) && f != VLANVID {
		return Term{}, fmt.Errorf("value %q too big", arg)
	}
	return Masked(f, v, mask), nil
}

// field resolves the name of a field in a match.
func (p *matchParser) field(name string) Field {
	arp := p.hasEtype && (p.etype == EtherARP || p.etype == EtherRARP)
	switch name {
	case "in_port":
		return InPort
	case "nw_src", "ip_src":
		if arp {
			return ARPSPA
		}
		return IPv4Src
	case "nw_dst", "ip_dst":
		if arp {
			return ARPTPA
		}
		return IPv4Dst
	case "nw_tos", "ip_dscp":
		return IPDSCP
	case "tp_src", "tp_dst":
		src := name == "tp_src"
		switch p.proto {
		case ProtoTCP:
			return pick(src, TCPSrc, TCPDst)
		case ProtoUDP:
			return pick(src, UDPSrc, UDPDst)
		case ProtoSCTP:
			return pick(src, SCTPSrc, SCTPDst)
		case ProtoICMP:
			return pick(src, ICMPType, ICMPCode)
		case ProtoICMPv6:
			return pick(src, ICMPv6Type, ICMPv6Code)
		}
		return 0
	case "icmp_type":
		return pick(p.etype == EtherIPv6, ICMPv6Type, ICMPType)
	case "icmp_code":
		return pick(p.etype == EtherIPv6, ICMPv6Code, ICMPCode)
	}
	f := fieldByName(name)
	if f > Metadata && f < XReg0 || f > XXReg3 {
		return 0
	}
	return f
}

func pick(cond bool, a, b Field) Field {
	if cond {
		return a
	}
	return b
}

// prerequisites are the protocols that a match has to ask for, by ranges of
// fields.
var prerequisites = []struct {
	first, last Field
	etypes      []uint64
	proto       uint64 // any if 0
}{
	{IPv4Src, IPv4Dst, []uint64{EtherIPv4}, 0},
	{IPv6Src, IPv6Dst, []uint64{EtherIPv6}, 0},
	{IPv6Label, IPv6Label, []uint64{EtherIPv6}, 0},
	{IPFrag, IPTTL, []uint64{EtherIPv4, EtherIPv6}, 0},
	{IPProto, IPProto, []uint64{EtherIPv4, EtherIPv6}, 0},
	{TCPSrc, TCPFlags, []uint64{EtherIPv4, EtherIPv6}, ProtoTCP},
	{UDPSrc, UDPDst, []uint64{EtherIPv4, EtherIPv6}, ProtoUDP},
	{SCTPSrc, SCTPDst, []uint64{EtherIPv4, EtherIPv6}, ProtoSCTP},
	{ICMPType, ICMPCode, []uint64{EtherIPv4}, ProtoICMP},
	{ICMPv6Type, NDTLL, []uint64{EtherIPv6}, ProtoICMPv6},
	{ARPOp, ARPTHA, []uint64{EtherARP, EtherRARP}, 0},
	{MPLSTC, MPLSLabel, []uint64{EtherMPLS, EtherMPLSM}, 0},
}

// checkPrerequisites refuses fields of a protocol that the match does not ask
// for; the switch would refuse the flow too.
func (m Match) checkPrerequisites(etype, proto uint64) error {
	for _, t := range m {
		for _, need := range prerequisites {
			if t.Field >= need.first && t.Field <= need.last && (!slices.Contains(need.etypes, etype) || need.proto != 0 && need.proto != proto) {
				return fmt.Errorf("%s without its protocol", t.Field)
			}
		}
	}
	return nil
}

// vlanParser joins the ways in which a VLAN can be written.
type vlanParser struct {
	vid, vidMask uint64
	pcp          uint64
	hasPCP       bool
}

func (p *vlanParser) add(name, arg string) (done bool, err error) {
	var v Value
	mask := Value{Lo: 0xffff}
	switch name {
	case "dl_vlan":
		v.Lo, err = parseNum(arg, 16)
		if v.Lo == 0xffff { // OpenFlow 1.0's way to say untagged
			p.vid, p.vidMask = 0, 0x1fff
			return true, err
		}
		p.vid, p.vidMask = v.Lo&0xfff|VLANPresent, 0x1fff
	case "vlan_vid":
		v, mask, err = parseValue(VLANVID, arg)
		p.vid, p.vidMask = v.Lo, mask.Lo&0x1fff
	case "dl_vlan_pcp", "vlan_pcp":
		p.pcp, err = parseNum(arg, 3)
		p.hasPCP = true
		p.vid, p.vidMask = p.vid|VLANPresent, p.vidMask|VLANPresent
	case "vlan_tci":
		v, mask, err = parseValue(VLANTCI, arg)
		p.vid, p.vidMask = v.Lo&0x1fff, mask.Lo&0x1fff
		if mask.Lo>>13 == 7 && p.vid&p.vidMask != 0 {
			p.pcp, p.hasPCP = v.Lo>>13, true
		}
	default:
		return false, nil
	}
	return true, err
}

func (p *vlanParser) terms(m Match) Match {
	if p.vidMask != 0 {
		m = append(m, Masked(VLANVID, Uint(p.vid), Uint(p.vidMask)))
	}
	if p.hasPCP {
		m = append(m, Num(VLANPCP, p.pcp))
	}
	return m
}
