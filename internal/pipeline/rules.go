// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Rules stand in the tables by how much they say: the more, the higher. Those about members of a group are below the others,
// because all flows of a conjunction need one priority.
const (
	conjunctive = 70
	plain       = 74
)

func isICMP(protocol int) bool { return protocol == of.ProtoICMP || protocol == of.ProtoICMPv6 }

// destinationPort is the field that holds it, for protocols whose ports a flow can match.
func destinationPort(protocol int) (of.Field, bool) {
	switch protocol {
	case of.ProtoTCP:
		return of.TCPDst, true
	case of.ProtoUDP:
		return of.UDPDst, true
	case of.ProtoSCTP:
		return of.SCTPDst, true
	}
	return 0, false
}

// otherSide is the field that holds the address of the other side.
func otherSide(d world.Direction, version uint8) of.Field {
	switch {
	case d == world.Egress && version == 4:
		return of.IPv4Dst
	case d == world.Egress:
		return of.IPv6Dst
	case version == 4:
		return of.IPv4Src
	}
	return of.IPv6Src
}

func rulesTable(d world.Direction) uint8 {
	if d == world.Egress {
		return fwRulesEgress
	}
	return fwRulesIngress
}

func etherTypeOf(version uint8) of.Term {
	if version == 4 {
		return etherType(of.EtherIPv4)
	}
	return etherType(of.EtherIPv6)
}

// ports are the destination ports of a rule. Not given at all they are any, which is no condition at all; ok is false when
// there are none, as of a range whose end is before its beginning.
func ports(r *world.Rule) (s span, all, ok bool) {
	if r.Min == nil && r.Max == nil {
		return anyPort, true, true
	}
	s = anyPort
	if r.Min != nil {
		s.lo = *r.Min
	}
	if r.Max != nil {
		s.hi = *r.Max
	}
	return s, false, s.lo >= 0 && s.hi <= 65535 && s.lo <= s.hi
}

// matchProtocol adds what a rule says about the packet apart from ports: the other side's prefix, protocol, type and code.
// It is false for a rule that no packet fits.
func matchProtocol(m of.Match, r *world.Rule) (of.Match, bool) {
	m = m.With(etherTypeOf(r.IPVersion))
	if r.Prefix.IsValid() {
		if r.Prefix.Addr().Is4() != (r.IPVersion == 4) {
			return nil, false
		}
		m = m.With(of.IP(otherSide(r.Direction, r.IPVersion), r.Prefix))
	}
	if r.Protocol == world.AnyProtocol {
		return m, true
	}
	m = m.With(of.Num(of.IPProto, uint64(r.Protocol)))
	kind, code := of.ICMPType, of.ICMPCode
	if r.Protocol == of.ProtoICMPv6 {
		kind, code = of.ICMPv6Type, of.ICMPv6Code
	}
	if !hasTypes(r) || r.Min == nil {
		return m, true
	}
	if m = m.With(of.Num(kind, uint64(*r.Min))); r.Max != nil {
		m = m.With(of.Num(code, uint64(*r.Max)))
	}
	return m, octet(r.Min) && octet(r.Max)
}

// hasTypes says whether the switch knows types and codes of a rule's protocol: those of ICMP, but not under the other IP
// version.
func hasTypes(r *world.Rule) bool {
	return r.IPVersion == 4 && r.Protocol == of.ProtoICMP || r.IPVersion == 6 && r.Protocol == of.ProtoICMPv6
}

func octet(n *int) bool { return n == nil || *n >= 0 && *n <= 255 }

// matchPorts makes one match of each piece of a range.
func matchPorts(m of.Match, field of.Field, s span) []of.Match {
	var out []of.Match
	for _, p := range s.masks() {
		out = append(out, m.With(of.Masked(field, of.Uint(uint64(p.value)), of.Uint(uint64(p.mask)))))
	}
	return out
}

// matches are those of a rule: several when it has a range of ports.
func matches(m of.Match, r *world.Rule) []of.Match {
	m, ok := matchProtocol(m, r)
	if !ok {
		return nil
	}
	field, hasPorts := destinationPort(r.Protocol)
	if !hasPorts {
		return []of.Match{m}
	}
	s, all, ok := ports(r)
	switch {
	case !ok:
		return nil
	case all:
		return []of.Match{m}
	}
	return matchPorts(m, field, s)
}

// rules compiles what the port's groups allow.
func (f *filters) rules() {
	shapes := map[shape][]remoteRule{}
	for _, group := range f.p.Groups {
		rules := f.w.Groups.Rules(group)
		for i := range rules {
			r := &rules[i]
			if r.Remote == "" {
				f.plainRule(group, r)
				continue
			}
			id := f.w.Members.ConjunctionID(conjunctionOf(group, r))
			if id == 0 {
				continue
			}
			s := shape{r.Direction, r.IPVersion, r.Protocol, r.Prefix}
			shapes[s] = append(shapes[s], remoteRule{group, r, id + 2*uint32(r.Offset())})
		}
	}
	order := make([]shape, 0, len(shapes))
	for s := range shapes {
		order = append(order, s)
	}
	slices.SortFunc(order, shape.compare)
	for _, s := range order {
		f.remoteRules(shapes[s])
	}
}

func (f *filters) plainRule(group string, r *world.Rule) {
	reason := because(group, r)
	for _, m := range matches(of.Match{f.port()}, r) {
		for _, state := range states {
			f.add(rulesTable(r.Direction), plain+uint16(r.Offset()), reason, m.With(state.is()), f.allow(r.Direction, state)...)
		}
	}
}

// connState is the state of a connection in which the initiator's packets ask the rules.
type connState struct {
	set, clear uint32 // bits
	new        bool
	add        uint32 // to the id of a conjunction: flows of different states cannot share one
}

// A connection that is established is asked about again for every packet, as its initiator sends.
var states = []connState{{of.CTEst, of.CTRel | of.CTRpl, false, 0}, {of.CTNew, of.CTEst, true, 1}}

func (s connState) is() of.Term { return of.CTFlags(s.set, s.clear) }

// half is the state as both halves of a conjunction ask for it. That the packet is tracked goes without saying. It is said because the Python
// agent does not say it: an agent that takes over numbers conjunctions anew, and writes a hundred flows at a time. Its halves would replace
// ours one by one, packets would find no two of one number in between, and established connections would be marked as no longer allowed. As it is,
// ours stay until it removes them, after its last flow.
func (s connState) half() of.Term { return of.CTFlags(s.set|of.CTTrk, s.clear) }

// allow is what happens to a packet that a rule allows.
func (f *filters) allow(d world.Direction, s connState) []of.Action {
	switch {
	case d == world.Egress:
		return []of.Action{of.To(fwAcceptOrIngress)} // which remembers new connections, unless another filter has a say
	case s.new:
		return []of.Action{commit(), f.deliver(), of.To(fwAcceptedIngress)}
	}
	return []of.Action{f.deliver()}
}

func conjunctionOf(group string, r *world.Rule) world.Conjunction {
	return world.Conjunction{Group: group, Remote: r.Remote, Direction: r.Direction, IPVersion: r.IPVersion}
}

// shape is what rules must have in common for their flows to overlap.
type shape struct {
	direction world.Direction
	version   uint8
	protocol  int
	prefix    netip.Prefix
}

func (s shape) compare(t shape) int {
	return cmp.Or(cmp.Compare(s.direction, t.direction), cmp.Compare(s.version, t.version), cmp.Compare(s.protocol, t.protocol), s.prefix.Compare(t.prefix))
}

// remoteRule is a rule about members of a group, with the id of its conjunction in established connections.
type remoteRule struct {
	group string
	*world.Rule
	id uint32
}

// remoteRules compiles the port's half of conjunctions, for rules of one shape. The other half, the addresses of the members,
// is shared by all ports of a network: see peer.
func (f *filters) remoteRules(rules []remoteRule) {
	if field, ok := destinationPort(rules[0].Protocol); ok {
		f.portRules(rules, field)
	} else {
		f.equalRules(rules)
	}
	done := map[uint32]bool{}
	for _, r := range rules {
		if done[r.id] {
			continue
		}
		done[r.id] = true
		reason := fmt.Sprintf("group %s allows it, and the other side is a member of %s", r.group, r.Remote)
		for _, state := range states {
			id := of.Uint(uint64(r.id + state.add))
			f.add(rulesTable(r.Direction), conjunctive+uint16(r.Offset()), reason,
				of.Match{of.Eq(of.ConjID, id), etherTypeOf(r.IPVersion), f.port(), state.is()},
				append([]of.Action{of.Set(regAllowed, id)}, f.allow(r.Direction, state)...)...)
		}
	}
}

// portRules cuts the ranges of ports so that no two flows overlap: a packet takes one flow only.
func (f *filters) portRules(rules []remoteRule, field of.Field) {
	var claims []claim
	whole := true // no rule says anything about ports
	for i, r := range rules {
		if s, all, ok := ports(r.Rule); ok {
			claims = append(claims, claim{s, r.id, i})
			whole = whole && all
		}
	}
	m, ok := matchProtocol(of.Match{f.port()}, rules[0].Rule)
	if !ok {
		return
	}
	pieces := split(claims)
	// Rules that together open all ports are no condition on ports. One that does so alone is taken at its word.
	whole = whole || len(claims) > 1 && len(pieces) == 1 && pieces[0].span == anyPort
	for _, p := range pieces {
		match := []of.Match{m}
		if !whole {
			match = matchPorts(m, field, p.span)
		}
		var by []remoteRule
		for _, i := range p.rules {
			by = append(by, rules[i])
		}
		f.secondHalf(match, p.ids, by)
	}
}

// equalRules joins rules that match the same packets: one flow names all of their conjunctions.
func (f *filters) equalRules(rules []remoteRule) {
	type key struct{ offset, kind, code int }
	joined := map[key][]remoteRule{}
	var order []key
	for _, r := range rules {
		k := key{r.Offset(), -1, -1}
		if hasTypes(r.Rule) && r.Min != nil {
			if k.kind = *r.Min; r.Max != nil {
				k.code = *r.Max
			}
		}
		if joined[k] == nil {
			order = append(order, k)
		}
		joined[k] = append(joined[k], r)
	}
	for _, k := range order {
		var ids []uint32
		for _, r := range joined[k] {
			ids = append(ids, r.id)
		}
		slices.Sort(ids)
		if m, ok := matchProtocol(of.Match{f.port()}, joined[k][0].Rule); ok {
			f.secondHalf([]of.Match{m}, slices.Compact(ids), joined[k])
		}
	}
}

// secondHalf compiles the flows that fulfil the port's part of conjunctions.
func (f *filters) secondHalf(match []of.Match, ids []uint32, by []remoteRule) {
	reasons := make([]string, len(by))
	for i, r := range by {
		reasons[i] = because(r.group, r.Rule)
	}
	reason := strings.Join(reasons, "; ")
	for _, m := range match {
		for _, state := range states {
			f.add(rulesTable(by[0].Direction), conjunctive+uint16(by[0].Offset()), reason, m.With(state.half()), conjunctions(ids, state, 2)...)
		}
	}
}

// conjunctions are the actions of a flow that fulfils one of two conditions of each.
func conjunctions(ids []uint32, state connState, clause uint8) []of.Action {
	actions := make([]of.Action, len(ids))
	for i, id := range ids {
		actions[i] = of.Conjunction{ID: id + state.add, Clause: clause, Of: 2}
	}
	return actions
}

// because puts a rule in words.
func because(group string, r *world.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rule %s of group %s allows %s: IPv%d", r.ID, group, r.Direction, r.IPVersion)
	_, hasPorts := destinationPort(r.Protocol)
	switch {
	case r.Protocol == world.AnyProtocol:
	case hasPorts:
		b.WriteString(" " + protocolNames[r.Protocol])
		if s, all, _ := ports(r); !all && s.lo == s.hi {
			fmt.Fprintf(&b, " port %d", s.lo)
		} else if !all {
			fmt.Fprintf(&b, " ports %d to %d", s.lo, s.hi)
		}
	case isICMP(r.Protocol):
		b.WriteString(" " + protocolNames[r.Protocol])
		if r.Min != nil {
			fmt.Fprintf(&b, " type %d", *r.Min)
		}
		if r.Min != nil && r.Max != nil {
			fmt.Fprintf(&b, " code %d", *r.Max)
		}
	default:
		b.WriteString(" protocol " + strconv.Itoa(r.Protocol))
	}
	side := " from "
	if r.Direction == world.Egress {
		side = " to "
	}
	if r.Prefix.IsValid() {
		b.WriteString(side + r.Prefix.String())
	}
	if r.Remote != "" {
		b.WriteString(side + "members of " + r.Remote)
	}
	return b.String()
}

var protocolNames = map[int]string{of.ProtoICMP: "icmp", of.ProtoICMPv6: "icmpv6", of.ProtoTCP: "tcp", of.ProtoUDP: "udp", of.ProtoSCTP: "sctp"}
