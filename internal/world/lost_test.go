// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net/netip"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
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

// A port of which nothing is known any more can be asked about before Resolve: other events of the same batch do.
func TestADeletedPortIsAskedAbout(t *testing.T) {
	for name, lose := range map[string]func(w *World){
		"deleted by a push": func(w *World) {
			send(t, w, neutron.KindPort, neutron.Deleted, map[string]any{"id": "p1"})
		},
		"not in the answer": func(w *World) {
			w.Resync()
			w.Ports([]string{"p1"}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := wired(t)
			vlan := w.Port("p1").Wiring.VLAN
			lose(w)
			p := w.Port("p1")
			if w.Filtered(p) || w.Trusted(p) || p.Wiring.State != Dead {
				t.Errorf("before Resolve it is %s, filtered %v, trusted %v", p.Wiring.State, w.Filtered(p), w.Trusted(p))
			}
			if w.Allows(vlan, Connection{Src: netip.MustParseAddr("10.9.9.9"), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: 6, DstPort: 80}) {
				t.Error("connections to a port that is gone are allowed")
			}
			if !w.Allows(vlan, Connection{Src: netip.MustParseAddr("10.9.9.9"), Dst: netip.MustParseAddr("10.0.0.2"), Protocol: 6, DstPort: 80}) {
				t.Error("its neighbour's connections are not allowed")
			}
			s.answers(w)
			if p.Wiring.State != Dead || w.Port("p2").Wiring.State != Wired || len(w.Segments.Get(segment7).PortIDs()) != 1 {
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

// A list of endpoints that left the server before one of them was taken back does not bring it back; a later one does.
func TestAnEndpointThatWasTakenBackStaysAway(t *testing.T) {
	w := New(Config{LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan"}})
	ip := netip.MustParseAddr("10.0.0.2")
	e := Endpoint{"vxlan", ip}
	asked := w.Now()
	w.Tunnels.Gone(e)
	w.Tunnels.Sync("vxlan", []netip.Addr{ip}, asked)
	if got := w.Tunnels.WantedEndpoints(); len(got) != 0 {
		t.Errorf("%v has come back with an answer to a question from before", got)
	}
	w.Tunnels.Sync("vxlan", []netip.Addr{ip}, w.Now())
	if got := w.Tunnels.WantedEndpoints(); len(got) != 1 || len(w.Tunnels.withdrawn) != 0 {
		t.Errorf("wants %v after the server has named it again, and remembers %v", got, w.Tunnels.withdrawn)
	}
	for _, kind := range []string{"vxlan", "gre"} {
		w.Tunnels.Gone(Endpoint{kind, ip})
	}
	if w.Tunnels.Sync("vxlan", nil, w.Now()); len(w.Tunnels.withdrawn) != 1 { // a list says nothing of another type
		t.Errorf("remembers %v", w.Tunnels.withdrawn)
	}
	w.Tunnels.Gone(e)
	w.Tunnels.Up(e)
	w.Tunnels.Sync("vxlan", []netip.Addr{ip}, asked)
	if got := w.Tunnels.WantedEndpoints(); len(got) != 1 {
		t.Errorf("wants %v after it was announced again", got)
	}
}

// oneStation is a world with one port in a network with L2 population, behind which it knows one station.
func oneStation(t *testing.T) (w *World, endpoint netip.Addr, e neutron.FDBEntry) {
	t.Helper()
	number, id := 1, 7
	w = plugged("br-int", &number, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	endpoint, e = netip.MustParseAddr("10.0.0.2"), neutron.FDBEntry{MAC: neutron.MAC{2}, IP: netip.MustParseAddr("192.168.0.2")}
	w.Tunnels.FDBAdd(&neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"n1": {
		NetworkType: "vxlan", SegmentationID: &id, Ports: map[netip.Addr][]neutron.FDBEntry{endpoint: {{IP: netip.IPv4Unspecified()}, e}},
	}}})
	w.Resolve()
	if s := w.Segments.All(); len(s) != 1 || s[0].StationCount() != 1 || len(w.Tunnels.WantedEndpoints()) != 1 {
		t.Fatalf("knows %+v", s)
	}
	return w, endpoint, e
}

// A host that has another address is announced there, and nobody takes back what was behind the old one.
func TestNothingIsBehindAnEndpointThatWasTakenBack(t *testing.T) {
	w, endpoint, _ := oneStation(t)
	w.Tunnels.Gone(Endpoint{"gre", endpoint})
	if got := w.Tunnels.WantedEndpoints(); len(got) != 1 {
		t.Errorf("wants %v after the endpoint of another type went", got)
	}
	w.Tunnels.Gone(Endpoint{"vxlan", endpoint})
	if s := w.Segments.All()[0]; s.StationCount() != 0 || len(w.Tunnels.WantedEndpoints()) != 0 {
		t.Errorf("%d stations, wants %v", s.StationCount(), w.Tunnels.WantedEndpoints())
	}
	if len(w.Resolve()) < 3 {
		t.Error("the segment, the station and the tunnel are not worked out again")
	}
}

// The server tells that a port has another address whether it was announced or not.
func TestAnotherAddressOfAPortThatWasNeverAnnounced(t *testing.T) {
	w, endpoint, e := oneStation(t)
	other := neutron.FDBEntry{MAC: neutron.MAC{3}, IP: netip.MustParseAddr("192.168.0.3")}
	next := neutron.FDBEntry{MAC: e.MAC, IP: netip.MustParseAddr("192.168.0.4")}
	w.Tunnels.FDBChange(&neutron.FDBChange{Networks: map[string]map[netip.Addr]neutron.IPChange{"n1": {
		endpoint: {Before: []neutron.FDBEntry{e}, After: []neutron.FDBEntry{next, other}},
	}}})
	s := w.Segments.All()[0]
	if at, ok := s.Station(e.MAC); !ok || len(at.IPs) != 1 || at.IPs[0] != next.IP || s.StationCount() != 1 {
		t.Errorf("%d stations, %+v", s.StationCount(), at)
	}
}

// A port that has to wait again, because it comes under filters, takes its segment and what was known about it along.
func TestASegmentBeginsAgain(t *testing.T) {
	number := 1
	w := plugged("br-int", &number, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	if got := w.Segments.TakeBegun(); len(got) != 1 || len(w.Segments.TakeBegun()) != 0 {
		t.Errorf("begun %v", got)
	}
}
