// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net/netip"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// wired is a world with two filtered ports of group g1, which are wired.
func wired(t *testing.T) (*World, *server) {
	t.Helper()
	w := filtering(2)
	s := &server{groups: map[string][]neutron.SecurityGroupRule{"g1": {rule("r1", "g1", "tcp")}}, members: map[string]neutron.Member{}, addresses: map[string]neutron.AddressGroup{}}
	w.Ports([]string{"p1", "p2"}, []neutron.Port{grouped(1, 1, "g1"), grouped(2, 1, "g1")})
	s.answers(w)
	for _, id := range []string{"p1", "p2"} {
		if p := w.Port(id); p.Wiring.State != Wired || !w.Filtered(p) {
			t.Fatalf("%s is %s: %s", id, p.Wiring.State, p.Wiring.Reason)
		}
	}
	return w, s
}

// A port of which nothing is known any more can be asked about before the news are settled: other events of the same batch do.
func TestADeletedPortIsAskedAbout(t *testing.T) {
	for name, lose := range map[string]func(w *World){
		"deleted by a push": func(w *World) {
			send(t, w, neutron.KindPort, neutron.Deleted, map[string]any{"id": "p1"})
		},
		"not in the answer": func(w *World) {
			w.Doubt()
			w.Missing()
			w.Ports([]string{"p1"}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := wired(t)
			vlan := w.Port("p1").Wiring.VLAN
			lose(w)
			p := w.Port("p1")
			if w.Filtered(p) || w.Trusted(p) || p.Wiring.State != Dead {
				t.Errorf("before the news are settled it is %s, filtered %v, trusted %v", p.Wiring.State, w.Filtered(p), w.Trusted(p))
			}
			if w.Allows(vlan, Connection{Src: netip.MustParseAddr("10.9.9.9"), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: 6, DstPort: 80}) {
				t.Error("connections to a port that is gone are allowed")
			}
			if !w.Allows(vlan, Connection{Src: netip.MustParseAddr("10.9.9.9"), Dst: netip.MustParseAddr("10.0.0.2"), Protocol: 6, DstPort: 80}) {
				t.Error("its neighbour's connections are not allowed")
			}
			s.answers(w)
			if p.Wiring.State != Dead || w.Port("p2").Wiring.State != Wired || len(w.Segment(segment7).PortIDs()) != 1 {
				t.Errorf("in the end it is %s, its neighbour %s", p.Wiring.State, w.Port("p2").Wiring.State)
			}
			w.Expire(time.Now().Add(time.Hour))
			w.Ports([]string{"p1"}, []neutron.Port{grouped(1, 5, "g1")})
			if s.answers(w); p.Wiring.State != Wired {
				t.Errorf("when it is back it is %s: %s", p.Wiring.State, p.Wiring.Reason)
			}
		})
	}
}
