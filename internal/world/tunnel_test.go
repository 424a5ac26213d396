// SPDX-License-Identifier: Apache-2.0

package world_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// In a region of thousands of hosts each agent hears of thousands of endpoints. With l2population forwarding entries say to which of them a tunnel
// is needed, and the others take no room.
func TestEndpointsOfOtherNetworksAreNotKept(t *testing.T) {
	for _, l2population := range []bool{true, false} {
		two := fake.TwoNetworks(l2population)
		w := world.New(two.Config())
		two.Fill(w)
		wanted := len(w.Tunnels.WantedEndpoints())
		many := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.4")}
		for i := range 200 {
			many = append(many, netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}))
		}
		w.Tunnels.Sync("vxlan", many, w.Now())
		w.Tunnels.Up(world.Endpoint{Type: "vxlan", IP: netip.MustParseAddr("10.2.0.1")})
		if !w.Tunnels.Listed("vxlan") {
			t.Errorf("l2population %t: the list was told and is missing", l2population)
		}
		kept, want, tunnels := len(w.Memory().Tunnels), 204, 204
		if l2population {
			want, tunnels = 0, wanted
		}
		if kept != want || len(w.Tunnels.WantedEndpoints()) != tunnels {
			t.Errorf("l2population %t: %d endpoints are kept, want %d; %d tunnels, want %d", l2population, kept, want, len(w.Tunnels.WantedEndpoints()), tunnels)
		}
		gone := world.Endpoint{Type: "vxlan", IP: netip.MustParseAddr("10.0.0.2")}
		if w.Tunnels.Gone(gone); w.Tunnels.Wanted(gone) {
			t.Errorf("l2population %t: a tunnel to an endpoint that was taken back", l2population)
		}
	}
}

// What all hosts are sent about a port does not stand for the list of all ports of its network.
func TestAMessageAboutAPortIsNotTheList(t *testing.T) {
	two := fake.TwoNetworks(true)
	w := world.New(two.Config())
	seven := 7
	entries := &neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"n1": {NetworkType: "vxlan", SegmentationID: &seven, Ports: map[netip.Addr][]neutron.FDBEntry{
		netip.MustParseAddr("10.0.0.8"): {{IP: netip.IPv4Unspecified()}},
	}}}}
	two.Wire(w)
	segment := func() *world.Segment { return w.Segments.Get(world.SegmentKey{Network: "n1", ID: 7}) }
	if w.Tunnels.FDBBroadcast(entries); segment().FDBReceived() || len(w.Tunnels.FloodTo(segment())) != 1 {
		t.Errorf("received %t, broadcasts go to %v", segment().FDBReceived(), w.Tunnels.FloodTo(segment()))
	}
	if w.Tunnels.FDBAdd(entries); !segment().FDBReceived() {
		t.Error("the list was sent")
	}
	if w.Tunnels.FDBBroadcast(entries); !segment().FDBReceived() {
		t.Error("the message made the list forgotten")
	}
}

// A list of all entries that the server has read before all hosts were told of a port that went does not bring it back. The port does when it comes up again,
// and a list of later does.
func TestAListOfBeforeAPortWent(t *testing.T) {
	two := fake.TwoNetworks(true)
	w := world.New(two.Config())
	seven, mac := 7, neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 9}
	began := time.Unix(1000, 0)
	networks := map[string]neutron.FDBNetwork{"n1": {NetworkType: "vxlan", SegmentationID: &seven, Ports: map[netip.Addr][]neutron.FDBEntry{
		netip.MustParseAddr("10.0.0.8"): {{IP: netip.IPv4Unspecified()}, {MAC: mac, IP: netip.MustParseAddr("192.168.0.9")}},
	}}}
	list := func() { w.Tunnels.FDBAdd(&neutron.FDBAdd{Networks: networks}) }
	gone := func() { w.Tunnels.FDBRemove(&neutron.FDBRemove{Networks: networks}) }
	two.Wire(w)
	for name, tt := range map[string]struct {
		do           func()
		known, flood bool
	}{
		"late":                    {func() { list(); gone(); list() }, false, true},
		"up again":                {func() { list(); gone(); w.Tunnels.FDBBroadcast(&neutron.FDBAdd{Networks: networks}); list() }, true, true},
		"long after":              {func() { list(); gone(); w.Time = began.Add(31 * time.Second); list() }, true, true},
		"messages have been lost": {func() { list(); gone(); w.Resync(); list() }, true, true},
		"gone":                    {func() { list(); gone() }, false, false},
	} {
		w.Time = began
		gone()
		w.Resync()
		tt.do()
		s := w.Segments.Get(world.SegmentKey{Network: "n1", ID: 7})
		_, known := s.Station(mac)
		if flood := len(w.Tunnels.FloodTo(s)) == 1; known != tt.known || flood != tt.flood {
			t.Errorf("%s: known %t, want %t; broadcasts go there %t, want %t", name, known, tt.known, flood, tt.flood)
		}
	}
}
