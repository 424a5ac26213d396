// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Direction is that of traffic, seen from the port.
type Direction uint8

// The directions.
const (
	Egress Direction = iota
	Ingress
)

// String is Neutron's word.
func (d Direction) String() string { return [...]string{"egress", "ingress"}[d] }

// Rule allows one kind of traffic, with everything that Neutron leaves open to interpretation worked out. Rules that
// allow the same are equal but for their id.
type Rule struct {
	ID        string
	Direction Direction
	// IPVersion is 4 or 6.
	IPVersion uint8
	// Protocol is the number of the protocol; AnyProtocol for all of them.
	Protocol int
	// Min and Max are destination ports, or type and code of ICMP; nil where not given.
	Min, Max *int
	// Prefix is the other side's addresses; invalid for any.
	Prefix netip.Prefix
	// Remote is the group or address group that the other side must be a member of; empty for none.
	Remote string
}

// AnyProtocol stands for all protocols.
const AnyProtocol = -1

// Conjunction identifies what one block of conjunction ids stands for: traffic in one direction that the rules of a group
// allow to the members of another.
type Conjunction struct {
	Group     string
	Remote    string // a security group or an address group
	Direction Direction
	IPVersion uint8
}

// Compare orders conjunctions.
func (c Conjunction) Compare(d Conjunction) int {
	return cmp.Or(
		cmp.Compare(c.Group, d.Group), cmp.Compare(c.Remote, d.Remote),
		cmp.Compare(c.Direction, d.Direction), cmp.Compare(c.IPVersion, d.IPVersion),
	)
}

// Peer is an address that may be on the other side: that of a member of a remote group, or of an address group. It is
// always masked. MAC is zero unless the prefix is of length 0, where the address alone would let everyone in.
type Peer struct {
	Prefix netip.Prefix
	MAC    neutron.MAC
}

func (p Peer) version() uint8 {
	if p.Prefix.Addr().Is4() {
		return 4
	}
	return 6
}

// Checked says whether a wired port's traffic is to be filtered, or its senders checked. Ports of Neutron itself and those without
// port security are trusted. A VM's interface is no port of Neutron's, whatever the API calls its owner: the owner of a network
// may write "network:…" there. A VM that is to be trusted has port security switched off.
func Checked(p *Port) bool {
	return p.Details.PortSecurityEnabled() && (p.VIF.VM || !neutron.IsNetworkOwned(p.Details.DeviceOwner))
}

// Filtered says whether the port is wired and its traffic goes through filters: those of [Port.Groups].
func (w *common) Filtered(p *Port) bool {
	return w.Config.Filter && p.Wiring.State == Wired && Checked(p)
}

// Trusted says whether the port is wired, and there are filters on this host, but none for what it sends.
func (w *common) Trusted(p *Port) bool {
	return w.Config.Filter && p.Wiring.State == Wired && !Checked(p)
}

// Rules are those of a group, sorted, each kind of traffic once; nil when the group is not known. The slice is not to be
// changed.
func (w *Groups) Rules(group string) []Rule {
	if g := w.groups[group]; g != nil {
		return g.normal
	}
	return nil
}

// AllRules returns the rules of a group as [Groups.Rules] does, and with the ports of DCCP and UDP-Lite: flows cannot match them, iptables
// can. The slice is not to be changed.
func (w *Groups) AllRules(group string) []Rule {
	if g := w.groups[group]; g != nil {
		return g.all
	}
	return nil
}

// Stateless returns whether connections of the ports of a group are not to be tracked.
func (w *Groups) Stateless(group string) bool {
	g := w.groups[group]
	return g != nil && g.stateless
}

// Addresses returns the addresses of the members of a remote group, or of an address group, sorted.
func (w *Members) Addresses(remote string) []netip.Prefix {
	r := w.remotes[remote]
	if r == nil {
		return nil
	}
	out := make([]netip.Prefix, 0, len(r.peers))
	for p := range r.peers {
		out = append(out, p.Prefix)
	}
	slices.SortFunc(out, comparePrefix)
	return slices.Compact(out)
}

// Changed returns a number that is another one when the addresses of a remote group, or of an address group, have changed. It is 0 for one that
// no rule refers to.
func (w *Members) Changed(remote string) uint64 {
	if r := w.remotes[remote]; r != nil {
		return r.changed
	}
	return 0
}

// PeerConjunctions lists, sorted, what filtered ports of a segment allow to or from a peer because of the groups that it
// is a member of. The offsets that are in use of each are [Groups.Offsets].
func (w *Members) PeerConjunctions(key SegmentKey, peer Peer) []Conjunction {
	var out []Conjunction
	for _, id := range w.peers[peer] {
		for c := range w.remotes[id].conjunctions {
			if c.IPVersion == peer.version() && w.groups[c.Group].segments[key] > 0 {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, Conjunction.Compare)
	return out
}

// Offsets tells which of the four priorities rules of a conjunction use, as bits.
func (w *Groups) Offsets(c Conjunction) uint8 {
	if g := w.groups[c.Group]; g != nil {
		return g.conjunctions[c]
	}
	return 0
}

// filtersOf decides which groups are in force on a port that would be wired. A new port waits until all of its groups and
// the members that they refer to are known: it stays closed, and the reason says why. A port that has filters already
// keeps them meanwhile, so that an exchange of groups neither drops what both allow nor lets through what none does.
func (w *World) filtersOf(p *Port, next Wiring) Wiring {
	if !w.Config.Filter || next.State != Wired || !Checked(p) {
		w.Groups.need(p, nil)
		p.Groups, p.wants, p.filtered = nil, nil, ""
		return next
	}
	if reason := w.unfilterable(p); reason != "" {
		w.Groups.need(p, nil)
		p.Groups, p.wants, p.filtered = nil, nil, ""
		return Wiring{State: Dead, Reason: reason}
	}
	wants := slices.Sorted(slices.Values(p.Details.SecurityGroupIDs))
	wants = slices.Compact(wants)
	if p.filtered != p.VIF.Interface {
		p.Groups, p.filtered = nil, "" // those were another incarnation's
	}
	p.wants = wants
	w.Groups.need(p, slices.Concat(wants, p.Groups))
	reason, gone := w.Groups.unresolved(wants)
	switch {
	case reason == "":
		p.Groups = wants
	case p.filtered == "":
		if p.Wiring.State == Wired {
			w.shut(p) // it comes under filters
		}
		return Wiring{State: Waiting, Reason: reason}
	case gone:
		// The server has no such groups: what the others allow is all that is left.
		p.Groups = slices.DeleteFunc(slices.Clone(wants), func(id string) bool { return w.groups[id].unknown })
	}
	p.filtered = p.VIF.Interface
	w.Groups.need(p, slices.Concat(wants, p.Groups))
	return next
}

// unresolved says why groups cannot be turned into filters yet. Gone: nothing is missing but what the server does not have.
func (w *Groups) unresolved(groups []string) (reason string, gone bool) {
	gone = true
	for _, id := range groups {
		why, final := w.unready(w.groups[id])
		if why != "" && (reason == "" || !final) {
			reason = why
		}
		gone = gone && (why == "" || final)
	}
	return reason, gone
}

// unready says what a group is missing.
func (w *Groups) unready(g *group) (reason string, final bool) {
	switch {
	case g.unknown:
		return "the server does not know its security group " + g.id, true
	case !g.known && g.unread:
		return "what the server tells about its security group " + g.id + " cannot be read", false
	case !g.known:
		return "its security group " + g.id + " has not been told yet", false
	}
	var waits, gone string // of several the first, so that the reason does not depend on order
	for c := range g.conjunctions {
		switch r := w.remotes[c.Remote]; {
		case r.unknown:
			gone = first(gone, "the server does not know the address group "+r.id+" of its security group "+g.id)
		case !r.known && r.unread:
			waits = first(waits, "what the server tells about "+r.id+", to which its security group "+g.id+" refers, cannot be read")
		case !r.known && r.addresses:
			waits = first(waits, "the address group "+r.id+" of its security group "+g.id+" has not been told yet")
		case !r.known:
			waits = first(waits, "the members of group "+r.id+", to which its security group "+g.id+" refers, have not been told yet")
		}
	}
	return cmp.Or(waits, gone), waits == "" && gone != ""
}

func first(a, b string) string {
	if a == "" {
		return b
	}
	return min(a, b)
}

// place enters a port's groups into its segment: the addresses of the members that they refer to get flows there.
func (w *Groups) place(p *Port) {
	var next placing
	if w.Filtered(p) {
		next = placing{p.Wiring.Segment, p.Groups}
	}
	before := p.placed
	if before.segment == next.segment && slices.Equal(before.groups, next.groups) {
		return
	}
	p.placed = next
	for _, id := range next.groups {
		g := w.groups[id]
		if g.segments[next.segment]++; g.segments[next.segment] == 1 {
			w.markGroupOn(g, next.segment)
		}
	}
	for _, id := range before.groups {
		g := w.groups[id]
		if g.segments[before.segment]--; g.segments[before.segment] == 0 {
			delete(g.segments, before.segment)
			w.markGroupOn(g, before.segment)
		}
	}
}

// placing is where a port's filters are in force.
type placing struct {
	segment SegmentKey
	groups  []string
}

// markGroupOn has every peer that a group refers to compiled again on one segment.
func (w *Groups) markGroupOn(g *group, key SegmentKey) {
	for c := range g.conjunctions {
		w.members.markConjunction(c, key)
	}
}

func (w *Members) markConjunction(c Conjunction, key SegmentKey) {
	r := w.remotes[c.Remote]
	if r == nil {
		return
	}
	for peer := range r.peers {
		if peer.version() == c.IPVersion {
			w.mark(PeerObject{key, peer})
		}
	}
}

// Closed says whether the default of the integration bridge is to drop: packets of an interface pass only once it is
// known what the interface is, and if it is a port, once its filters are in place.
func (w *common) Closed() bool { return w.Config.Filter && w.Config.FailClosed && w.closed }

// Close makes the default of the integration bridge drop, from now on.
func (w *common) Close() {
	if !w.closed {
		w.closed = true
		w.mark(BridgeObject(w.Config.IntegrationBridge))
	}
}

// Shut takes a port out of its network until it is known what it is, since the switch has no filters for it: its row still says
// where an earlier run wired it, and by ordinary switching others would reach it.
func (w *World) Shut(id string) {
	if p := w.ports[id]; p != nil && p.VIF != nil {
		w.shut(p)
		w.mark(PortObject(id))
	}
}

func (w *World) shut(p *Port) { p.shut, w.exposed[p.ID] = p.VIF.Interface, true }

// IsShut says whether nothing may reach a port: one that waits and that the switch has no filters for, or that was wired
// and has to wait for filters now.
func (w *World) IsShut(p *Port) bool {
	return (w.Closed() || w.Config.Hybrid) && p.Wiring.State == Waiting && p.VIF != nil && p.shut == p.VIF.Interface
}

// Exposed says whether a port that is shut is still in a network, as far as the switch has told: flows have to wait until it is
// not.
func (w *World) Exposed() bool {
	for id := range w.exposed {
		if w.isExposed(id) {
			return true
		}
	}
	return false
}

// TakeExposed is Exposed, and takes the ports that are in no network any more.
func (w *World) TakeExposed() bool {
	for id := range w.exposed {
		if !w.isExposed(id) {
			delete(w.exposed, id)
		}
	}
	return w.Exposed()
}

func (w *World) isExposed(id string) bool {
	p := w.ports[id]
	if p == nil || !w.IsShut(p) {
		return false
	}
	return w.InVLAN(p)
}

// PlainPort finds the number of an interface of the integration bridge that stands for no Neutron port: a patch, the
// bridge's own, somebody's tap.
func (w *common) PlainPort(name string) (ofport uint32, ok bool) {
	i := w.View.InterfaceByName(name)
	if i == nil || i.ExternalIDs["iface-id"] != "" || i.OFPort == nil || *i.OFPort <= 0 {
		return 0, false
	}
	p := w.View.PortOf(i.UUID)
	if p == nil {
		return 0, false
	}
	if br := w.View.BridgeOf(p.UUID); br == nil || br.Name != w.Config.IntegrationBridge {
		return 0, false
	}
	return uint32(*i.OFPort), true
}
