// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// remote is a set of addresses that rules in force refer to: the members of a security group, or an address group.
type remote struct {
	id        string
	addresses bool // an address group
	pullState
	revision int64 // of the address group
	// peers counts for each address the members that have it.
	peers        map[Peer]int
	conjunctions map[Conjunction]bool
	changed      uint64 // see Members.Changed
}

func (r *remote) kind() neutron.Kind {
	if r.addresses {
		return neutron.KindAddressGroup
	}
	return neutron.KindPort
}

// member is a port, of any host, that is in a security group to which rules in force refer.
type member struct {
	revision int64
	groups   []string // all that it is in, sorted
	peers    []Peer   // sorted
	seen     uint64
}

// Members are the addresses that rules of the groups here refer to: those of ports of any host, and of address groups.
type Members struct {
	*filters
	byID      map[string]*member // ports of any host, by id
	peers     map[Peer][]string  // remote groups that an address is in
	ids       conjunctionIDs
	passed    map[string]int64 // see KeepRevisions; nil: none are kept
	strangers strangers
	changes   uint64 // of addresses of remote groups
}

// use enters a conjunction that rules have come to make.
func (w *Members) use(c Conjunction, addresses bool) {
	r := w.remotes[c.Remote]
	if r == nil {
		r = &remote{id: c.Remote, addresses: addresses, peers: map[Peer]int{}, conjunctions: map[Conjunction]bool{}, pullState: w.needed()}
		w.remotes[c.Remote] = r
		w.note(r)
		w.recall(r)
		for _, m := range w.byID {
			if !addresses && slices.Contains(m.groups, r.id) {
				w.addPeers(r, m.peers)
			}
		}
	}
	r.conjunctions[c] = true
	for _, moved := range w.ids.take(c) {
		w.renumber(moved)
	}
}

// disuse takes a conjunction back. Its remote group goes with Resolve, if nothing else refers to it.
func (w *Members) disuse(c Conjunction) {
	if r := w.remotes[c.Remote]; r != nil {
		delete(r.conjunctions, c)
	}
	w.ids.release(c)
}

// resolve forgets remote groups to which nothing refers.
func (w *Members) resolve() {
	forgotten := false
	for id, r := range w.remotes {
		if len(r.conjunctions) > 0 {
			continue
		}
		for peer := range r.peers {
			w.unlist(r, peer)
		}
		delete(w.remotes, id)
		forgotten = true
	}
	if !forgotten {
		return
	}
	for id, m := range w.byID {
		if !w.concerns(m.groups) {
			delete(w.byID, id)
			w.strangers.note(id, m.revision)
		}
	}
}

// concerns says whether one of the groups is one that rules in force refer to.
func (w *Members) concerns(groups []string) bool {
	return slices.ContainsFunc(groups, func(id string) bool { return w.remotes[id] != nil })
}

// addPeers and dropPeers note addresses that a remote group has or has no more. What it costs is the address on each
// segment whose rules refer to the group.
func (w *Members) addPeers(r *remote, peers []Peer) {
	for _, p := range peers {
		if r.peers[p]++; r.peers[p] == 1 {
			w.peers[p] = append(w.peers[p], r.id)
			w.note(r)
			w.markPeer(r, p)
		}
	}
}

func (w *Members) dropPeers(r *remote, peers []Peer) {
	for _, p := range peers {
		if r.peers[p]--; r.peers[p] == 0 {
			delete(r.peers, p)
			w.unlist(r, p)
			w.note(r)
			w.markPeer(r, p)
		}
	}
}

// note notes that a remote group has other addresses now.
func (w *Members) note(r *remote) {
	w.changes++
	r.changed = w.changes
}

func (w *Members) unlist(r *remote, p Peer) {
	if w.peers[p] = slices.DeleteFunc(w.peers[p], func(id string) bool { return id == r.id }); len(w.peers[p]) == 0 {
		delete(w.peers, p)
	}
}

func (w *Members) markPeer(r *remote, p Peer) {
	for c := range r.conjunctions {
		if c.IPVersion != p.version() {
			continue
		}
		for key := range w.groups[c.Group].segments {
			w.mark(PeerObject{key, p})
		}
	}
}

// peersOf are the addresses of a member: its own, and those of its address pairs. An address pair that stands for every
// address counts only together with its MAC.
func peersOf(m *neutron.Member) []Peer {
	var out []Peer
	add := func(prefix netip.Prefix, mac neutron.MAC) {
		p := Peer{Prefix: prefix.Masked()}
		if prefix.Bits() == 0 {
			p.MAC = mac
		}
		out = append(out, p)
	}
	for _, ip := range m.FixedIPs {
		if ip.IP.IsValid() {
			add(netip.PrefixFrom(ip.IP.WithZone(""), ip.IP.BitLen()), m.MAC)
		}
	}
	for _, pair := range m.AllowedAddressPairs {
		if pair.IP.IsValid() {
			mac := pair.MAC
			if mac == (neutron.MAC{}) {
				mac = m.MAC
			}
			add(pair.IP.Prefix, mac)
		}
	}
	return sortPeers(out)
}

func sortPeers(peers []Peer) []Peer {
	slices.SortFunc(peers, func(a, b Peer) int {
		if c := comparePrefix(a.Prefix, b.Prefix); c != 0 {
			return c
		}
		return slices.Compare(a.MAC[:], b.MAC[:])
	})
	return slices.Compact(peers)
}

// learn takes what the server says about a port as a member of groups, unless something newer is known.
func (w *Members) learn(n *neutron.Member) {
	before := w.byID[n.ID]
	if w.outdated(n.ID, n.Revision) || before != nil && n.Revision < before.revision {
		return
	}
	if w.passed != nil {
		w.passed[n.ID] = n.Revision
	}
	if !w.concerns(n.SecurityGroupIDs) {
		w.drop(n.ID)
		w.strangers.note(n.ID, n.Revision)
		return
	}
	w.seq++
	groups := slices.Sorted(slices.Values(n.SecurityGroupIDs))
	w.set(n.ID, &member{revision: n.Revision, groups: slices.Compact(groups), peers: peersOf(n), seen: w.seq})
}

// pushed takes that a push told about a port, which was a member before or not.
func (w *Members) pushed(id string, before bool) {
	m := w.byID[id]
	if m == nil || before {
		return
	}
	for _, id := range m.groups {
		if r := w.remotes[id]; r != nil {
			r.added(w.Time)
		}
	}
}

// outdated says whether something newer was heard about a port than a revision, by whatever way.
func (w *Members) outdated(id string, revision int64) bool {
	return w.Deleted(id) || revision < w.passed[id] || revision < w.strangers.revision(id)
}

// leave takes that the server had no such port at a moment.
func (w *Members) leave(id string, at uint64) {
	if m := w.byID[id]; m != nil && m.seen <= at {
		w.drop(id)
	}
}

func (w *Members) drop(id string) {
	if w.byID[id] != nil {
		w.set(id, nil)
	}
}

// set replaces a member; the remote groups that it joined or left, or in which its addresses changed, learn of it.
func (w *Members) set(id string, m *member) {
	before := w.byID[id]
	if before == nil {
		before = &member{}
	}
	after := m
	if after == nil {
		after = &member{}
		delete(w.byID, id)
	} else {
		w.byID[id] = m
	}
	samePeers := slices.Equal(before.peers, after.peers)
	for _, g := range after.groups {
		if r := w.remotes[g]; r != nil && !(samePeers && slices.Contains(before.groups, g)) {
			w.addPeers(r, after.peers)
		}
	}
	for _, g := range before.groups {
		if r := w.remotes[g]; r != nil && !(samePeers && slices.Contains(after.groups, g)) {
			w.dropPeers(r, before.peers)
		}
	}
}

// Pulled takes the server's answer about the members of security groups. Unread names those of them that could not be read, with an
// empty id if not even that could: they keep the addresses that they had, or have none. A list is known all the same, since rules only
// allow: what is missing in it is closed, and one port must not hold up all others. It is asked for again.
func (w *Members) Pulled(asked []Item, found []neutron.Member, unread ...string) {
	for i := range found {
		w.learn(&found[i])
	}
	for _, item := range asked {
		t := w.answer(item)
		if t == nil {
			continue
		}
		// Ports that were heard of before the question and are not in the answer are members no more.
		w.dropLeavers(item, found, unread)
		w.answered(t)
		t.known = true
		if len(unread) > 0 {
			t.answered, t.unread = false, true
		}
		w.touchUsers(w.remotes[item.ID])
	}
}

func (w *Members) dropLeavers(item Item, found []neutron.Member, unread []string) {
	group := item.ID
	if slices.Contains(unread, "") {
		return // it may be any of them
	}
	in := make(map[string]bool, len(found))
	for _, m := range found {
		in[m.ID] = slices.Contains(m.SecurityGroupIDs, group)
	}
	for _, id := range unread {
		in[id] = true
	}
	for id, m := range w.byID {
		if m.seen > item.Asked || in[id] || !slices.Contains(m.groups, group) {
			continue
		}
		left := *m
		left.groups = slices.DeleteFunc(slices.Clone(m.groups), func(g string) bool { return g == group })
		if !w.concerns(left.groups) {
			w.drop(id)
		} else {
			w.set(id, &left)
		}
	}
}

// AddressGroupsPulled takes the server's answer about address groups.
func (w *Members) AddressGroupsPulled(asked []Item, found []neutron.AddressGroup) {
	for _, item := range asked {
		t := w.answer(item)
		if t == nil {
			continue
		}
		i := slices.IndexFunc(found, func(g neutron.AddressGroup) bool { return g.ID == item.ID })
		r := w.remotes[item.ID]
		if i < 0 || w.Deleted(item.ID) {
			t.absent()
			w.setAddresses(r, nil)
		} else {
			w.answered(t)
			w.learnAddresses(r, &found[i])
		}
	}
}

func (w *Members) learnAddresses(r *remote, g *neutron.AddressGroup) {
	if r.known && g.Revision < r.revision {
		return
	}
	r.known, r.unknown, r.revision = true, false, g.Revision
	peers := make([]Peer, 0, len(g.Addresses))
	for _, a := range g.Addresses {
		if a.Prefix.IsValid() {
			peers = append(peers, Peer{Prefix: a.Prefix.Masked()})
		}
	}
	w.setAddresses(r, sortPeers(peers))
}

// setAddresses replaces the addresses of an address group.
func (w *Members) setAddresses(r *remote, peers []Peer) {
	still := make(map[Peer]bool, len(peers))
	for _, p := range peers {
		still[p] = true
	}
	var gone []Peer
	for p := range r.peers {
		if !still[p] {
			gone = append(gone, p)
		}
	}
	w.addPeers(r, slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool { return r.peers[p] > 0 }))
	w.dropPeers(r, gone)
	w.touchUsers(r)
}

// touchUsers looks again at the ports whose rules refer to a remote group: they may have waited for it.
func (w *filters) touchUsers(r *remote) {
	for c := range r.conjunctions {
		for id := range w.groups[c.Group].ports {
			if p := w.ports[id]; p != nil && (p.Wiring.State == Waiting || !slices.Equal(p.Groups, p.wants)) {
				w.touched[id] = true
			}
		}
	}
}

// KeepRevisions says whether a question may be on its way whose answer has members. Meanwhile the revisions of all ports that are pushed
// are kept, so that its answer does not bring back what was said before.
func (w *Members) KeepRevisions(on bool) {
	if !on {
		w.passed = nil
	} else if w.passed == nil {
		w.passed = map[string]int64{}
	}
}
