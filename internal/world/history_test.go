// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// TestAnyOrderOfMessagesGivesTheSameFilters plays random histories of groups, rules, members and ports, each message delivered
// late or early, and compares what follows with a world that heard only the end.
func TestAnyOrderOfMessagesGivesTheSameFilters(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &server{groups: map[string][]neutron.SecurityGroupRule{}, members: map[string]neutron.Member{}, addresses: map[string]neutron.AddressGroup{}}
		groups := []string{"g1", "g2", "g3"}
		for _, g := range groups {
			s.groups[g] = nil
		}
		w := filtering(2)
		ports := map[int]neutron.Port{}
		revision := int64(0)
		var mail []func() // pushes on their way
		some := func() (out []string) {
			for _, g := range groups {
				if r.IntN(2) == 0 {
					out = append(out, g)
				}
			}
			return out
		}
		for range 40 {
			revision++
			rev := revision
			switch r.IntN(6) {
			case 0:
				n := 1 + r.IntN(2)
				p := grouped(n, rev, some()...)
				ports[n], s.members[p.ID] = p, *p.Member()
				mail = append(mail, func() { w.learn(&p) })
			case 1:
				id := fmt.Sprint("m", r.IntN(4))
				m := member1(id, fmt.Sprint("10.1.0.", 1+r.IntN(3)), rev, some()...)
				s.members[id] = m
				mail = append(mail, func() {
					send(t, w, neutron.KindPort, neutron.Updated, wirePort(id, int(rev), m.FixedIPs[0].IP.String(), m.SecurityGroupIDs...))
				})
			case 2:
				g := groups[r.IntN(3)]
				n := rule(fmt.Sprint("r", rev), g, []string{"tcp", "", "icmp"}[r.IntN(3)]+" remote="+groups[r.IntN(3)])
				s.groups[g] = append(s.groups[g], n)
				mail = append(mail, func() {
					send(t, w, neutron.KindSecurityGroupRule, neutron.Updated, map[string]any{
						"id": n.ID, "security_group_id": g, "direction": n.Direction, "ethertype": n.EtherType, "protocol": n.Protocol, "remote_group_id": n.RemoteGroupID,
					})
				})
			case 3:
				g := groups[r.IntN(3)]
				if len(s.groups[g]) > 0 {
					gone := s.groups[g][0].ID
					s.groups[g] = slices.Clone(s.groups[g][1:])
					mail = append(mail, func() {
						send(t, w, neutron.KindSecurityGroupRule, neutron.Deleted, map[string]any{"id": gone})
					})
				}
			case 4:
				w.Resolve()
				for _, item := range w.MissingItems() {
					if r.IntN(4) == 0 {
						continue // no answer
					}
					w.Members.KeepRevisions(true)
					// The server looks now, the answer comes later.
					late := *s
					late.groups, late.members = map[string][]neutron.SecurityGroupRule{}, map[string]neutron.Member{}
					for k, v := range s.groups {
						late.groups[k] = slices.Clone(v)
					}
					for k, v := range s.members {
						late.members[k] = v
					}
					mail = append(mail, func() { late.answer(w, item) })
				}
			default:
				r.Shuffle(len(mail), func(i, j int) { mail[i], mail[j] = mail[j], mail[i] })
				n := r.IntN(len(mail) + 1)
				for _, deliver := range mail[:n] {
					deliver()
				}
				mail = mail[n:]
				w.Resolve()
			}
		}
		for _, deliver := range mail {
			deliver()
		}
		s.answers(w)
		fresh := filtering(2)
		for n, p := range ports {
			fresh.Ports([]string{fmt.Sprint("p", n)}, []neutron.Port{p})
		}
		s.answers(fresh)
		if got, want := portrait(w), portrait(fresh); got != want {
			t.Fatalf("seed %d:\n%s\nwant\n%s", seed, got, want)
		}
	}
}

// portrait is everything that compiles.
func portrait(w *World) string {
	var b strings.Builder
	for _, id := range w.PortIDs() {
		p := w.Port(id)
		fmt.Fprintf(&b, "%s %s %s %v\n", id, p.Wiring.State, p.Wiring.Reason, p.Groups)
		for _, g := range p.Groups {
			for _, r := range w.Groups.Rules(g) {
				fmt.Fprintf(&b, "  %s %s %d %d %s\n", r.ID, r.Direction, r.IPVersion, r.Protocol, r.Remote)
			}
		}
	}
	for i := range 255 {
		p := Peer{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 32)}
		for _, c := range w.Members.PeerConjunctions(segment7, p) {
			fmt.Fprintf(&b, "%s %v %b %d\n", p.Prefix, c, w.Groups.Offsets(c), w.Members.ConjunctionID(c))
		}
	}
	fmt.Fprintf(&b, "%d groups, %d remotes, %d peers\n", len(w.groups), len(w.remotes), len(w.Members.peers))
	return b.String()
}
