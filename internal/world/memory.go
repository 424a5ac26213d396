// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Memory is what the server said about everything that concerns this host: enough to wire its ports again while no server
// answers. It is plain data; MemoryVersion changes with its meaning.
type Memory struct {
	Ports   []neutron.Port          `json:"ports"`
	Groups  []neutron.SecurityGroup `json:"groups"`
	Members []MemberMemory          `json:"members"`
	// Remotes are the groups whose members are all in Members, and the address groups.
	Remotes  []RemoteMemory  `json:"remotes"`
	Tunnels  []Endpoint      `json:"tunnels"`
	Segments []SegmentMemory `json:"segments"`
	// Extensions is what extensions remember, by name. They read it themselves.
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`
}

// MemoryVersion is that of the layout of [Memory].
const MemoryVersion = 1

// MemberMemory is a port of any host, as a member of groups.
type MemberMemory struct {
	ID       string   `json:"id"`
	Revision int64    `json:"revision"`
	Groups   []string `json:"groups"`
	Peers    []Peer   `json:"peers"`
}

// RemoteMemory is a security group or an address group to which rules refer.
type RemoteMemory struct {
	ID       string `json:"id"`
	Revision int64  `json:"revision,omitempty"`
	Peers    []Peer `json:"peers,omitempty"` // of an address group
}

// SegmentMemory is what the server told about the addresses of a segment on other hosts.
type SegmentMemory struct {
	Network  string          `json:"network"`
	ID       int             `json:"id"`
	Stations []StationMemory `json:"stations"`
}

// StationMemory is one forwarding entry.
type StationMemory struct {
	Endpoint netip.Addr       `json:"endpoint"`
	Entry    neutron.FDBEntry `json:"entry"`
}

// Memory writes down what is known. The result shares nothing with the world that changes later.
func (w *World) Memory() *Memory {
	m := &Memory{}
	for _, id := range w.PortIDs() {
		if d := w.ports[id].Details; d != nil {
			m.Ports = append(m.Ports, *d)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.groups)) {
		if g := w.groups[id]; g.known {
			sg := neutron.SecurityGroup{ID: id, Name: g.name}
			if g.stateless {
				sg.Stateful = new(bool)
			}
			for _, rule := range slices.Sorted(maps.Keys(g.rules)) {
				sg.Rules = append(sg.Rules, *g.rules[rule].rule)
			}
			m.Groups = append(m.Groups, sg)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.Members.byID)) {
		p := w.Members.byID[id]
		m.Members = append(m.Members, MemberMemory{id, p.revision, p.groups, p.peers})
	}
	for _, id := range slices.Sorted(maps.Keys(w.remotes)) {
		r := w.remotes[id]
		if !r.known {
			continue
		}
		remote := RemoteMemory{ID: id, Revision: r.revision}
		if r.addresses {
			remote.Peers = sortPeers(slices.Collect(maps.Keys(r.peers)))
		}
		m.Remotes = append(m.Remotes, remote)
	}
	m.Tunnels = slices.SortedFunc(maps.Keys(w.Tunnels.endpoints), func(a, b Endpoint) int { return cmp.Compare(a.String(), b.String()) })
	for _, s := range w.Segments.All() {
		if !s.fdb.known {
			continue
		}
		segment := SegmentMemory{Network: s.Key.Network, ID: s.Key.ID}
		for _, e := range s.fdb.entries() {
			segment.Stations = append(segment.Stations, StationMemory{e.endpoint, e.entry})
		}
		m.Segments = append(m.Segments, segment)
	}
	return m
}

// recalled is a memory, by what is looked for in it.
type recalled struct {
	ports    map[string]*neutron.Port
	groups   map[string]*neutron.SecurityGroup
	remotes  map[string]*RemoteMemory
	members  []MemberMemory
	segments map[SegmentKey]*SegmentMemory
}

// Recall takes what an earlier run wrote down, before anything else is heard. It counts for what is plugged in, and only
// until the server says something else: everything is asked about as if nothing were known.
func (w *World) Recall(m *Memory) {
	w.recalled = recalled{
		map[string]*neutron.Port{}, map[string]*neutron.SecurityGroup{}, map[string]*RemoteMemory{}, m.Members,
		map[SegmentKey]*SegmentMemory{},
	}
	for i := range m.Ports {
		w.recalled.ports[m.Ports[i].ID] = &m.Ports[i]
	}
	for i := range m.Groups {
		w.recalled.groups[m.Groups[i].ID] = &m.Groups[i]
	}
	for i := range m.Remotes {
		w.recalled.remotes[m.Remotes[i].ID] = &m.Remotes[i]
	}
	for i, s := range m.Segments {
		w.recalled.segments[SegmentKey{s.Network, s.ID}] = &m.Segments[i]
	}
	for _, e := range m.Tunnels {
		w.Tunnels.Up(e)
	}
}

// Confirmed says that the server has told everything: what was only remembered, or doubted since, is dropped. Of forwarding
// entries that are those of segments about which it has spoken; about the others it may have had nothing to say.
func (w *World) Confirmed() {
	w.recalled, w.confirmed = recalled{}, true
	for _, s := range w.Segments.byKey {
		if !s.fdb.received {
			continue
		}
		for e := range s.fdb.stale {
			s.fdb.remove(e.endpoint, e.entry)
			w.markEntry(s, e.endpoint, e.entry)
		}
	}
}

// TakeRecalled takes something out of what an extension recalls from an earlier run. Once the server has told everything it empties the memory, and there
// is nothing to take: nobody keeps up to date what is not in use.
func TakeRecalled[T any](w *World, recalled map[string]T, id string) (m T) {
	if w.confirmed {
		clear(recalled)
	}
	m = recalled[id]
	delete(recalled, id)
	return m
}

// recall gives a segment the stations that were remembered. Without L2 population nobody would ever take them back:
// they are then from a run with it.
func (w *Segments) recall(s *Segment) {
	m := w.recalled.segments[s.Key]
	if m == nil || !w.Config.L2Population {
		return
	}
	for _, e := range m.Stations {
		s.fdb.add(e.Endpoint, e.Entry)
		w.markEntry(s, e.Endpoint, e.Entry)
	}
	s.fdb.known = true
	s.fdb.markStale()
}

func (w *Members) recall(r *remote) {
	m := w.recalled.remotes[r.id]
	if m == nil {
		return
	}
	r.known = true
	if r.addresses {
		r.revision = m.Revision
		w.addPeers(r, m.Peers)
		return
	}
	for _, p := range w.recalled.members {
		if w.byID[p.ID] == nil && slices.Contains(p.Groups, r.id) && !w.outdated(p.ID, p.Revision) {
			// Of other lists that are in use something newer is known: it is not in them.
			groups := slices.DeleteFunc(slices.Clone(p.Groups), func(g string) bool { return g != r.id && w.remotes[g] != nil })
			w.byID[p.ID] = &member{revision: p.Revision, groups: groups, peers: p.Peers}
		}
	}
}
