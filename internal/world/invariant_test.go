// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// invariants are what everything that reads a world takes for granted: nothing that is referred to is missing. They hold at any time,
// settled or not.
func invariants(w *World) (broken []string) {
	say := func(is bool, format string, args ...any) {
		if is {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	for id, p := range w.ports {
		if p.Wiring.State == Wired || p.Wiring.State == Down {
			s := w.Segments.byKey[p.Wiring.Segment]
			say(p.Details == nil, "%s is %s without details", id, p.Wiring.State)
			say(p.VIF == nil, "%s is %s without an interface", id, p.Wiring.State)
			say(s == nil || !s.ports[id] || s.VLAN != p.Wiring.VLAN, "%s is %s on no segment", id, p.Wiring.State)
		}
		for _, g := range slices.Concat(p.needs, p.placed.groups) {
			say(w.groups[g] == nil, "%s needs group %s, which is not there", id, g)
		}
	}
	for key, s := range w.Segments.byKey {
		for id := range s.ports {
			say(w.ports[id] == nil, "segment %s has port %s, which is not there", key, id)
		}
	}
	for id, g := range w.groups {
		in := map[SegmentKey]int{}
		for _, p := range w.ports {
			if slices.Contains(p.placed.groups, id) {
				in[p.placed.segment]++
			}
		}
		say(!maps.Equal(in, g.segments), "group %s is in force on %v, and ports have it on %v", id, g.segments, in)
		for c := range g.conjunctions {
			say(w.remotes[c.Remote] == nil, "group %s refers to %s, which is not there", id, c.Remote)
		}
	}
	for id, r := range w.remotes {
		for c := range r.conjunctions {
			say(w.groups[c.Group] == nil, "%s is referred to by group %s, which is not there", id, c.Group)
		}
		for p, n := range r.peers {
			say(n < 1 || !slices.Contains(w.Members.peers[p], id), "%s has %s %d times, listed under %v", id, p.Prefix, n, w.Members.peers[p])
		}
	}
	for p, list := range w.Members.peers {
		for _, id := range list {
			say(w.remotes[id] == nil, "%s is of %s, which is not there", p.Prefix, id)
		}
	}
	return broken
}

// ask asks a world everything that the agent and the commands do.
func ask(w *World) {
	for _, id := range w.PortIDs() {
		p := w.Port(id)
		_, _, _ = w.Filtered(p), w.Trusted(p), w.IsShut(p)
	}
	for _, s := range w.Segments.All() {
		for i := range 4 {
			ip := netip.AddrFrom4([4]byte{10, byte(i % 2), 0, byte(i)})
			w.Allows(s.VLAN, Connection{Src: ip, Dst: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Protocol: 6, DstPort: 80})
		}
	}
	for p := range w.Members.peers {
		w.Members.PeerConjunctions(segment7, p)
	}
	for _, id := range w.Groups.IDs() {
		w.Groups.KnownGroup(id)
	}
	w.Complete()
	w.Unspoken()
	w.Exposed()
	w.Objects()
	w.Memory()
}

// Complete returns whether the server has answered about everything that ports here need.
func (w *World) Complete() bool {
	ports, items := w.Unspoken()
	return ports+items == 0
}

// Nothing that happens leaves something referred to that is not there, also before it is settled: events come several at a time.
func TestNothingThatIsReferredToIsMissing(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := filtering(3)
		groups := []string{"g1", "g2", "g3"}
		s := &server{groups: map[string][]neutron.SecurityGroupRule{}, members: map[string]neutron.Member{}, addresses: map[string]neutron.AddressGroup{"a1": {ID: "a1"}}}
		revision, seq := int64(0), uint64(1)
		some := func() []string { return groups[:r.IntN(len(groups)+1)] }
		for step := range 60 {
			revision++
			n := 1 + r.IntN(3)
			id := fmt.Sprint("p", n)
			what := r.IntN(11)
			switch what {
			case 0, 1:
				p := grouped(n, revision, some()...)
				p.AdminStateUp, s.members[id] = r.IntN(4) > 0, *p.Member()
				w.learn(&p)
			case 2:
				send(t, w, neutron.KindPort, neutron.Deleted, map[string]any{"id": id})
			case 3:
				w.Expire(time.Now().Add(time.Hour))
				w.Resync()
			case 4:
				var found []neutron.Port
				if r.IntN(2) == 0 {
					found = append(found, grouped(n, revision, some()...))
				}
				w.Ports([]string{id}, found)
			case 5:
				g := groups[r.IntN(3)]
				s.groups[g] = append(s.groups[g], rule(fmt.Sprint("r", revision), g, []string{"tcp remote=" + groups[r.IntN(3)], "udp addresses=a1", "icmp"}[r.IntN(3)]))
			case 6:
				send(t, w, neutron.KindSecurityGroup, neutron.Deleted, map[string]any{"id": groups[r.IntN(3)]})
			case 7:
				delete(s.groups, groups[r.IntN(3)])
			case 8: // plugged in anew, under another number, or not at all
				seq++
				was := w.View.InterfaceByName(fmt.Sprint("tap", n))
				d := ovsdb.Diff[ovsdb.Interface]{Old: was}
				if number := r.IntN(3); was != nil && number > 0 {
					d.New = &ovsdb.Interface{UUID: was.UUID, Name: was.Name, OFPort: &number, ExternalIDs: was.ExternalIDs}
				}
				if was != nil {
					w.Switch(&ovsdb.Batch{Seq: seq, Interfaces: []ovsdb.Diff[ovsdb.Interface]{d}})
				}
			case 9:
				for _, i := range w.MissingItems() {
					switch r.IntN(4) {
					case 0: // no answer
					case 1:
						w.Unread([]Item{i})
					default:
						s.answer(w, i)
					}
				}
			default:
				w.Resolve()
			}
			if broken := invariants(w); len(broken) > 0 {
				t.Fatalf("seed %d, step %d, event %d: %q", seed, step, what, broken)
			}
			ask(w)
		}
	}
}
