// SPDX-License-Identifier: Apache-2.0

package world

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// KnownGroup is a security group that ports here have, for people to look at. Its rules are not to be changed.
type KnownGroup struct {
	ID, Name string
	Known    bool // the server has told its rules
	Ports    []string
	Rules    []*neutron.SecurityGroupRule
	// Members counts the addresses of the groups and address groups that the rules refer to.
	Members map[string]int
}

// IDs returns the security groups that ports here have, sorted.
func (w *Groups) IDs() []string { return slices.Sorted(maps.Keys(w.groups)) }

// KnownGroup looks at a security group. The copy shares nothing that changes later.
func (w *Groups) KnownGroup(id string) (KnownGroup, bool) {
	g := w.groups[id]
	if g == nil {
		return KnownGroup{}, false
	}
	out := KnownGroup{ID: id, Name: g.name, Known: g.known, Ports: slices.Sorted(maps.Keys(g.ports)), Members: map[string]int{}}
	for _, rule := range slices.Sorted(maps.Keys(g.rules)) {
		out.Rules = append(out.Rules, g.rules[rule].rule)
	}
	for c := range g.conjunctions {
		out.Members[c.Remote] = len(w.remotes[c.Remote].peers)
	}
	return out, true
}

// Remembered counts the ports whose details come from an earlier run, since the server has not spoken about them.
func (w *World) Remembered() int {
	n := 0
	for id, p := range w.ports {
		if d := w.recalled.ports[id]; d != nil && p.Details == d {
			n++
		}
	}
	return n
}

// Unspoken counts what the server has not told yet: ports, and what filters need.
func (w *filters) Unspoken() (ports, items int) {
	for _, p := range w.ports {
		if p.VIF != nil && !p.Answered {
			ports++
		}
	}
	for _, g := range w.groups {
		if !g.spoken() {
			items++
		}
	}
	for _, r := range w.remotes {
		if !r.spoken() {
			items++
		}
	}
	return ports, items
}

// PortIDs lists the segment's ports on this host, sorted.
func (s *Segment) PortIDs() []string { return slices.Sorted(maps.Keys(s.ports)) }

// StationCount is how many addresses on other hosts are known.
func (s *Segment) StationCount() int { return len(s.fdb.at) }

// Endpoints lists the addresses of the hosts on which the server said that the segment is, sorted.
func (s *Segment) Endpoints() []netip.Addr { return s.fdb.endpoints() }

// Concerned lists the objects of the last push that have to do with this host; the others were dropped. The slice is good
// until the next push.
func (w *common) Concerned() []string { return w.concerned }

// Passed returns whether an object of the last push was a port with which this host has nothing to do. What [Stranger] tells is all that is
// remembered of it.
func (w *World) Passed() bool { return w.Members.strangers.kept }
