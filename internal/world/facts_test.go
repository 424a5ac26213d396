// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// TestProtocolNames: IANA's numbers, by the names that Neutron's API takes.
func TestProtocolNames(t *testing.T) {
	want := map[string]int{
		"hopopt": 0, "ip": 0, "icmp": 1, "igmp": 2, "ipip": 4, "tcp": 6, "egp": 8, "udp": 17, "dccp": 33, "ipv6-encap": 41, "ipv6-route": 43,
		"ipv6-frag": 44, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58, "ipv6-icmp": 58, "ipv6-nonxt": 59, "ipv6-opts": 60,
		"ospf": 89, "vrrp": 112, "pgm": 113, "sctp": 132, "udplite": 136,
	}
	if d := cmp.Diff(want, protocols()); d != "" {
		t.Error(d)
	}
	for _, c := range []struct {
		text    string
		version uint8
		want    int
		ok      bool
	}{
		{"", 4, AnyProtocol, true}, {"255", 4, 255, true}, {"256", 4, 0, false}, {"0", 4, 0, true}, {"icmp", 4, 1, true}, {"icmp", 6, 58, true},
		{"tcp", 6, 6, true}, {"icmpv6", 4, 58, true}, {"nosuch", 4, 0, false}, {"-1", 4, 0, false},
	} {
		if n, ok := protocolNumber(c.text, c.version); n != c.want || ok != c.ok {
			t.Errorf("%q under IPv%d: %d, %v", c.text, c.version, n, ok)
		}
	}
}

func TestNumbersOfSegments(t *testing.T) {
	for id, want := range map[int]bool{-1: false, 0: false, 1: true, 2: true, 4093: true, 4094: true, 4095: false, 4096: false} {
		if got := IsVLAN(id); got != want {
			t.Errorf("IsVLAN(%d) = %v", id, got)
		}
	}
	for _, c := range []struct {
		kind    string
		largest int
	}{{"vlan", 4094}, {"vxlan", 16777215}, {"geneve", 16777215}, {"gre", 4294967295}} {
		for id, want := range map[int]bool{0: false, 1: true, c.largest: true, c.largest + 1: false} {
			if got := outOfRange(&neutron.Segment{NetworkType: c.kind, SegmentationID: &id}); (got == "") != want {
				t.Errorf("%s %d: %q", c.kind, id, got)
			}
		}
	}
}

// TestTextOfKeys: what is written can be read back, and nothing else can.
func TestTextOfKeys(t *testing.T) {
	for _, key := range []SegmentKey{{"n1", none}, {"n1", 7}, {"n1", 0}} {
		if got, ok := ParseSegmentKey(key.String()); !ok || got != key {
			t.Errorf("%s is read as %v, %v", key, got, ok)
		}
	}
	for _, bad := range []string{"n1", "n1/x", "n1/"} {
		if got, ok := ParseSegmentKey(bad); ok {
			t.Errorf("%s is read as %v", bad, got)
		}
	}
	for bridge, want := range map[string]string{"br-12345678": "int-br-12345678", "br-123456789": "int-br-128f5b7a"} {
		if got := IntPatchName(bridge); len(got) != 15 || got[:9] != want[:9] || len(bridge) == 11 && got != want {
			t.Errorf("%s: %s", bridge, got)
		}
	}
}

// TestConjunctionsDiffer: each field makes another conjunction, and so another id.
func TestConjunctionsDiffer(t *testing.T) {
	base := Conjunction{Group: "g", Remote: "r", Direction: Ingress, IPVersion: 4}
	seen := map[uint32]bool{}
	for _, c := range []Conjunction{
		base, {"h", "r", Ingress, 4}, {"g", "s", Ingress, 4}, {"g", "r", Egress, 4}, {"g", "r", Ingress, 6}, {"gr", "", Ingress, 4}, {"", "gr", Ingress, 4},
	} {
		for attempt := range uint32(3) {
			id := c.hash(attempt)
			if id%idBlock != 0 || id == 0 || id >= 1<<31 || seen[id] {
				t.Errorf("%+v at attempt %d: %d", c, attempt, id)
			}
			seen[id] = true
		}
	}
	// The numbers themselves: they are on switches, and an upgrade must find them.
	if got := base.hash(0); got != 2056627344 {
		t.Errorf("the id of %+v became %d", base, got)
	}
	ids := newConjunctionIDs()
	if moved := ids.take(base); moved != nil || ids.of[base] != base.hash(0) || ids.owner[base.hash(0)] != base {
		t.Errorf("moved %v, %+v", moved, ids)
	}
	if moved := ids.take(base); moved != nil || len(ids.of) != 1 {
		t.Errorf("a second time: moved %v, %+v", moved, ids)
	}
	// Another that comes to the same id: neither keeps it.
	other := Conjunction{Group: "x", Remote: "y", Direction: Egress, IPVersion: 6}
	ids = newConjunctionIDs()
	ids.owner[other.hash(0)], ids.of[base] = base, other.hash(0)
	if moved := ids.take(other); !slices.Equal(moved, []Conjunction{base}) {
		t.Errorf("moved %v", moved)
	}
	if ids.of[other] != other.hash(1) || ids.of[base] != base.hash(0) || !ids.spoilt[other.hash(0)] || ids.owner[other.hash(0)] != (Conjunction{}) {
		t.Errorf("%+v", ids)
	}
	ids.release(other)
	ids.release(other)
	if len(ids.of) != 1 || len(ids.owner) != 1 {
		t.Errorf("%+v", ids)
	}
}

// TestAvoidedIDs: each of those found, whatever came before it.
func TestAvoidedIDs(t *testing.T) {
	w := New(config())
	w.Members.Avoid([]uint32{1, 17, 18, 33})
	if len(w.Members.ids.spoilt) != 2 || !w.Members.ids.spoilt[16] || !w.Members.ids.spoilt[32] {
		t.Errorf("%v", w.Members.ids.spoilt)
	}
}

// stations is a world with a segment, and entries as the server sends them.
func stations(t *testing.T) (*World, func(endpoint string, mac byte, ip string) *neutron.FDBAdd) {
	t.Helper()
	one := 1
	w := plugged("br-int", &one, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	id := 7
	return w, func(endpoint string, mac byte, ip string) *neutron.FDBAdd {
		return &neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"n1": {NetworkType: "vxlan", SegmentationID: &id, Ports: map[netip.Addr][]neutron.FDBEntry{
			netip.MustParseAddr(endpoint): {{MAC: neutron.MAC{mac}, IP: netip.MustParseAddr(ip)}},
		}}}}
	}
}

// TestStationThatMoves: the last announcement counts, also when an older one is taken back or repeated, and an endpoint is
// wanted for as long as something is behind it.
func TestStationThatMoves(t *testing.T) {
	w, entry := stations(t)
	remove := func(endpoint string, mac byte, ip string) {
		w.Tunnels.FDBRemove(&neutron.FDBRemove{Networks: entry(endpoint, mac, ip).Networks})
	}
	s := w.Segments.Get(segment7)
	at := func() string {
		found, ok := s.Station(neutron.MAC{2})
		if !ok {
			return ""
		}
		return found.Endpoint.String()
	}
	w.Tunnels.FDBAdd(entry("10.0.0.2", 2, "192.168.0.2"))
	if got := names(w.Resolve()); got != "tunnel vxlan/10.0.0.2; station n1/7|02:00:00:00:00:00" || at() != "vxlan/10.0.0.2" || !s.FDBReceived() {
		t.Errorf("%s, at %s", got, at())
	}
	w.Tunnels.FDBAdd(entry("10.0.0.3", 2, "192.168.0.2"))
	if at() != "vxlan/10.0.0.3" || len(s.Endpoints()) != 2 {
		t.Errorf("at %s, endpoints %v", at(), s.Endpoints())
	}
	w.Tunnels.FDBAdd(entry("10.0.0.2", 2, "192.168.0.3")) // said again there, with another address
	found, _ := s.Station(neutron.MAC{2})
	if at() != "vxlan/10.0.0.2" || len(found.IPs) != 2 || s.StationCount() != 1 || len(s.fdb.at[neutron.MAC{2}]) != 2 {
		t.Errorf("%+v", found)
	}
	w.Tunnels.FDBAdd(entry("10.0.0.2", 2, "192.168.0.3")) // nothing new
	if found, _ := s.Station(neutron.MAC{2}); len(found.IPs) != 2 || s.fdb.uses[netip.MustParseAddr("10.0.0.2")] != 1 {
		t.Errorf("%+v, %v", found, s.fdb.uses)
	}
	remove("10.0.0.2", 2, "192.168.0.2")
	if at() != "vxlan/10.0.0.2" {
		t.Errorf("at %s, although an address is left", at())
	}
	remove("10.0.0.2", 2, "192.168.0.3")
	if at() != "vxlan/10.0.0.3" || !slices.Equal(s.Endpoints(), []netip.Addr{netip.MustParseAddr("10.0.0.3")}) {
		t.Errorf("at %s, endpoints %v", at(), s.Endpoints())
	}
	remove("10.0.0.9", 2, "192.168.0.2") // never said
	remove("10.0.0.3", 9, "192.168.0.2")
	if at() != "vxlan/10.0.0.3" || len(s.fdb.uses) != 1 {
		t.Errorf("at %s, %v", at(), s.fdb.uses)
	}
	w.Resolve()
	remove("10.0.0.3", 2, "192.168.0.2")
	if got := names(w.Resolve()); at() != "" || len(s.Endpoints()) != 0 || s.StationCount() != 0 || got != "tunnel vxlan/10.0.0.3; station n1/7|02:00:00:00:00:00" {
		t.Errorf("%s, at %s, endpoints %v", got, at(), s.Endpoints())
	}
}

// TestBroadcasts: to the endpoints that the server names, once each; before it has named any, to all of the type.
func TestBroadcasts(t *testing.T) {
	w, entry := stations(t)
	s := w.Segments.Get(segment7)
	if w.Tunnels.HasTunnels(s) || w.Tunnels.FloodTo(s) != nil {
		t.Errorf("flood to %v", w.Tunnels.FloodTo(s))
	}
	w.Tunnels.FDBAdd(entry("10.0.0.1", 2, "192.168.0.2")) // ourselves
	if s.FDBReceived() || len(s.Endpoints()) != 0 || w.HasChanges() {
		t.Error("our own endpoint counts")
	}
	flood := func(endpoint string) *neutron.FDBAdd {
		a := entry(endpoint, 0, "0.0.0.0")
		return a
	}
	w.Tunnels.FDBAdd(flood("10.0.0.3"))
	w.Tunnels.FDBAdd(flood("10.0.0.2"))
	w.Tunnels.FDBAdd(flood("10.0.0.2"))
	if got := names(w.Resolve()); got != "segment n1/7; tunnel vxlan/10.0.0.2; tunnel vxlan/10.0.0.3" {
		t.Error(got)
	}
	want := []Endpoint{endpoint("vxlan/10.0.0.2"), endpoint("vxlan/10.0.0.3")}
	if !w.Tunnels.HasTunnels(s) || !slices.Equal(w.Tunnels.FloodTo(s), want) || !slices.Equal(w.Tunnels.WantedEndpoints(), want) {
		t.Errorf("flood to %v, wanted %v", w.Tunnels.FloodTo(s), w.Tunnels.WantedEndpoints())
	}
	for e, want := range map[string]bool{"vxlan/10.0.0.2": true, "gre/10.0.0.2": false, "vxlan/10.0.0.4": false} {
		if w.Tunnels.Wanted(endpoint(e)) != want {
			t.Errorf("%s wanted: %v", e, !want)
		}
	}
	for range 2 {
		w.Tunnels.FDBRemove(&neutron.FDBRemove{Networks: flood("10.0.0.2").Networks})
	}
	if !w.Tunnels.HasTunnels(s) || !slices.Equal(w.Tunnels.FloodTo(s), want[1:]) || !slices.Equal(s.Endpoints(), []netip.Addr{want[1].IP}) {
		t.Errorf("flood to %v", w.Tunnels.FloodTo(s))
	}
	// Another segment, or one that no tunnel carries, is not meant.
	other := entry("10.0.0.5", 2, "192.168.0.2")
	eight := 8
	n := other.Networks["n1"]
	n.SegmentationID = &eight
	other.Networks["n1"] = n
	w.Resolve()
	w.Tunnels.FDBAdd(other)
	if w.HasChanges() {
		t.Error("an entry of another segment counts")
	}
	w.Config.L2Population = false
	w.Tunnels.FDBAdd(entry("10.0.0.5", 2, "192.168.0.2"))
	if w.HasChanges() {
		t.Error("an entry counts without L2 population")
	}
}

// TestChangedAddresses: the new one is there before the old one goes, for stations that are known.
func TestChangedAddresses(t *testing.T) {
	w, entry := stations(t)
	s := w.Segments.Get(segment7)
	w.Tunnels.FDBAdd(entry("10.0.0.2", 2, "192.168.0.2"))
	w.Resolve()
	change := func(endpoint, network string) *neutron.FDBChange {
		return &neutron.FDBChange{Networks: map[string]map[netip.Addr]neutron.IPChange{network: {netip.MustParseAddr(endpoint): {
			Before: []neutron.FDBEntry{{MAC: neutron.MAC{2}, IP: netip.MustParseAddr("192.168.0.2")}},
			After:  []neutron.FDBEntry{{MAC: neutron.MAC{2}, IP: netip.MustParseAddr("192.168.0.3")}},
		}}}}
	}
	w.Tunnels.FDBChange(change("10.0.0.2", "n2"))
	w.Tunnels.FDBChange(change("10.0.0.1", "n1"))
	if w.HasChanges() {
		t.Error("a change of another network or of ourselves counts")
	}
	w.Tunnels.FDBChange(change("10.0.0.2", "n1"))
	found, ok := s.Station(neutron.MAC{2})
	if got := names(w.Resolve()); !ok || len(found.IPs) != 1 || found.IPs[0] != netip.MustParseAddr("192.168.0.3") || got != "tunnel vxlan/10.0.0.2; station n1/7|02:00:00:00:00:00" {
		t.Errorf("%s, %+v, %v", got, found, ok)
	}
	w.Config.L2Population = false
	w.Tunnels.FDBChange(change("10.0.0.2", "n1"))
	if w.HasChanges() {
		t.Error("a change counts without L2 population")
	}
}

// TestAnnouncedEndpoints: without L2 population each is wanted and gets the broadcasts; a list of the server takes away what
// was heard before it was asked for.
func TestAnnouncedEndpoints(t *testing.T) {
	cfg := config()
	cfg.L2Population = false
	cfg.TunnelTypes = []string{"vxlan", "gre"}
	one := 1
	w := pluggedInto(New(cfg), "br-int", &one, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	for _, e := range []string{"vxlan/10.0.0.1", "geneve/10.0.0.2", "vxlan/2001:db8::1"} { // our own, of no type here, not reachable
		w.Tunnels.Up(endpoint(e))
	}
	if w.HasChanges() || len(w.Tunnels.WantedEndpoints()) != 0 {
		t.Errorf("wanted %v", w.Tunnels.WantedEndpoints())
	}
	w.Tunnels.Up(endpoint("vxlan/10.0.0.2"))
	if got := names(w.Resolve()); got != "segment n1/7; tunnel vxlan/10.0.0.2" {
		t.Error(got)
	}
	w.Tunnels.Up(endpoint("gre/10.0.0.2"))
	if got := names(w.Resolve()); got != "tunnel gre/10.0.0.2" {
		t.Error(got)
	}
	s := w.Segments.Get(segment7)
	if got := w.Tunnels.FloodTo(s); !slices.Equal(got, []Endpoint{endpoint("vxlan/10.0.0.2")}) || !w.Tunnels.HasTunnels(s) {
		t.Errorf("flood to %v", got)
	}
	if !w.Tunnels.Wanted(endpoint("gre/10.0.0.2")) || w.Tunnels.Wanted(endpoint("gre/10.0.0.3")) {
		t.Error("wrong endpoints are wanted")
	}
	asked := w.Now()
	w.Tunnels.Up(endpoint("vxlan/10.0.0.4")) // after the question
	w.Resolve()
	w.Tunnels.Sync("vxlan", []netip.Addr{netip.MustParseAddr("10.0.0.3")}, asked)
	want := []Endpoint{endpoint("gre/10.0.0.2"), endpoint("vxlan/10.0.0.3"), endpoint("vxlan/10.0.0.4")}
	if got := w.Tunnels.WantedEndpoints(); !slices.Equal(got, want) {
		t.Errorf("wanted %v", got)
	}
	if got := names(w.Resolve()); got != "segment n1/7; tunnel vxlan/10.0.0.2; tunnel vxlan/10.0.0.3" {
		t.Error(got)
	}
	// Heard again after the question, although it was known.
	asked = w.Now()
	w.Tunnels.Up(endpoint("vxlan/10.0.0.4"))
	w.Tunnels.Sync("vxlan", nil, asked)
	if got := w.Tunnels.WantedEndpoints(); !slices.Equal(got, []Endpoint{endpoint("gre/10.0.0.2"), endpoint("vxlan/10.0.0.4")}) {
		t.Errorf("wanted %v", got)
	}
	w.Tunnels.Gone(endpoint("vxlan/10.0.0.4"))
	w.Tunnels.Gone(endpoint("vxlan/10.0.0.4"))
	if w.Tunnels.Wanted(endpoint("vxlan/10.0.0.4")) {
		t.Error("still wanted")
	}
}

// TestTombstones are kept for as long as a push may be late, and no longer.
func TestTombstones(t *testing.T) {
	w := New(config())
	begin := time.Unix(1000, 0)
	w.deleted.add("p", begin)
	w.Expire(begin.Add(15 * time.Minute))
	if len(w.deleted.at) != 1 {
		t.Error("forgotten too early")
	}
	w.Expire(begin.Add(15*time.Minute + 1))
	if len(w.deleted.at) != 0 {
		t.Error("kept for ever")
	}
}

func TestBridgesAndNumbers(t *testing.T) {
	one := 1
	w := plugged("br-int", &one, ovsdb.Interface{})
	if got := w.Bridges(); !slices.Equal(got, []string{"br-ex", "br-int", "br-tun"}) {
		t.Errorf("%v", got)
	}
	if w.OFPort("tap1") != 1 || w.OFPort("nosuch") != 0 {
		t.Errorf("tap1 has %d", w.OFPort("tap1"))
	}
	failed := -1
	if w := plugged("br-int", &failed, ovsdb.Interface{}); w.OFPort("tap1") != 0 {
		t.Errorf("an interface that failed has %d", w.OFPort("tap1"))
	}
	if w := plugged("br-int", nil, ovsdb.Interface{}); w.OFPort("tap1") != 0 {
		t.Errorf("an interface that is not made has %d", w.OFPort("tap1"))
	}
	cfg := config()
	cfg.TunnelTypes = nil
	if got := New(cfg).Bridges(); !slices.Equal(got, []string{"br-ex", "br-int"}) {
		t.Errorf("without tunnels: %v", got)
	}
	cfg.Physical["physnet2"] = "br-ex"
	if got := New(cfg).Bridges(); !slices.Equal(got, []string{"br-ex", "br-int"}) {
		t.Errorf("two networks on a bridge: %v", got)
	}
}
