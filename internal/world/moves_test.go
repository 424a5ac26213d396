// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// TestWhichInterfaceIsThePort: the one that the switch has made, then the one with the lowest name, whatever came first.
func TestWhichInterfaceIsThePort(t *testing.T) {
	type row struct {
		name   string
		ofport int // 0: none yet
	}
	for _, c := range []struct {
		rows []row
		want string
	}{
		{[]row{{"tapB", 1}, {"tapA", 0}}, "tapB"}, {[]row{{"tapA", 0}, {"tapB", 1}}, "tapB"}, {[]row{{"tapA", 2}, {"tapB", 1}}, "tapA"},
		{[]row{{"tapB", 0}, {"tapA", 0}}, "tapA"}, {[]row{{"tapA", -1}, {"tapB", 3}}, "tapB"}, {[]row{{"tapC", 1}, {"tapB", 1}, {"tapA", 0}}, "tapB"},
	} {
		for range 10 { // the order of a map is chance
			w := New(config())
			b := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}
			br := &ovsdb.Bridge{UUID: "b", Name: "br-int"}
			for _, r := range c.rows {
				i := &ovsdb.Interface{UUID: ovsdb.UUID("i" + r.name), Name: r.name, ExternalIDs: map[string]string{"iface-id": "p1", "attached-mac": "fa:16:3e:00:00:01"}}
				if r.ofport != 0 {
					i.OFPort = &r.ofport
				}
				br.Ports = append(br.Ports, ovsdb.UUID("p"+r.name))
				b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: ovsdb.UUID("p" + r.name), Name: r.name, Interfaces: []ovsdb.UUID{i.UUID}}})
				b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: i})
			}
			b.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{New: br}}
			w.Switch(b)
			w.Resolve()
			if got := w.Port("p1").VIF; got.Name != c.want || got.OFPort > 10 {
				t.Fatalf("%v: %+v, want %s", c.rows, got, c.want)
			}
		}
	}
}

// TestMigrationEnds: a port whose binding here was made inactive has moved; it comes back when it is bound here again.
func TestMigrationEnds(t *testing.T) {
	one := 1
	revision := int64(10)
	bindings := func(list ...string) neutron.Port { // host and status
		return bound(func(p *neutron.Port) {
			revision++
			p.Revision, p.Bindings = revision, nil
			for i := 0; i < len(list); i += 2 {
				p.Bindings = append(p.Bindings, neutron.Binding{Host: list[i], Status: list[i+1]})
			}
		})
	}
	w := plugged("br-int", &one, ovsdb.Interface{})
	step := func(name string, p neutron.Port, want State) {
		t.Helper()
		w.Ports([]string{"p1"}, []neutron.Port{p})
		w.Resolve()
		if got := w.Port("p1").Wiring; got.State != want {
			t.Errorf("%s: %s (%s), want %s", name, got.State, got.Reason, want)
		}
	}
	step("target of a migration", bindings("hv2", "ACTIVE", "hv1", "INACTIVE"), Dead) // it was never here
	step("bound here", bindings("hv1", "ACTIVE"), Wired)
	step("gone without a trace", bindings("hv2", "ACTIVE"), Dead)
	step("bound here again", bindings("hv1", "ACTIVE"), Wired)
	step("gone, another host's is inactive", bindings("hv2", "ACTIVE", "hv3", "INACTIVE"), Dead)
	step("bound here again", bindings("hv1", "ACTIVE"), Wired)
	step("moved", bindings("hv2", "ACTIVE", "hv1", "INACTIVE"), Moved)
	step("still moved", bindings("hv2", "ACTIVE"), Moved)
	step("no binding counts", bindings("hv1", "INACTIVE"), Dead)
	step("back", bindings("hv1", "ACTIVE"), Wired)
	if len(w.Segments.Get(segment7).ports) != 1 {
		t.Error("the segment has lost its port")
	}
	step("moved again", bindings("hv2", "ACTIVE", "hv1", "INACTIVE"), Moved)
	if w.Segments.Get(segment7) != nil {
		t.Error("the segment of a port that has moved is kept")
	}
}

// TestNumbersThatOthersUse: a patch or a tunnel with another number has everything compiled again that sends to it.
func TestNumbersThatOthersUse(t *testing.T) {
	one := 1
	w := plugged("br-int", &one, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	id := 7
	w.Tunnels.FDBAdd(&neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"n1": {NetworkType: "vxlan", SegmentationID: &id, Ports: map[netip.Addr][]neutron.FDBEntry{
		netip.MustParseAddr("10.0.0.2"): {{IP: netip.IPv4Unspecified()}, {MAC: neutron.MAC{2}, IP: netip.MustParseAddr("192.168.0.2")}},
	}}}})
	w.Resolve()
	seq := uint64(1)
	number := func(name string, n int) string {
		seq++
		d := ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{UUID: ovsdb.UUID(name), Name: name, OFPort: &n}}
		if old := w.View.InterfaceByName(name); old != nil {
			d.Old = old
		}
		w.Switch(&ovsdb.Batch{Seq: seq, Kind: ovsdb.Update, Interfaces: []ovsdb.Diff[ovsdb.Interface]{d}})
		return names(w.Resolve())
	}
	for n := 5; n < 7; n++ {
		for name, want := range map[string]string{
			"patch-tun": "bridge br-int; bridge br-tun", "patch-int": "bridge br-int; bridge br-tun", "int-br-ex": "bridge br-ex; bridge br-int",
			"phy-br-ex": "bridge br-ex; bridge br-int", "vxlan-0a000002": "segment n1/7; tunnel vxlan/10.0.0.2; station n1/7|02:00:00:00:00:00", "other": "",
		} {
			if got := number(name, n); got != want {
				t.Errorf("%s became %d: %q, want %q", name, n, got, want)
			}
			if got := number(name, n); got != "" {
				t.Errorf("%s is still %d: %q", name, n, got)
			}
		}
	}
	w.Config.EgressDirect = true
	for name, want := range map[string]string{"patch-tun": "bridge br-int; bridge br-tun; port p1", "int-br-ex": "bridge br-ex; bridge br-int; port p1", "phy-br-ex": "bridge br-ex; bridge br-int"} {
		if got := number(name, 9); got != want {
			t.Errorf("%s with direct egress: %q, want %q", name, got, want)
		}
	}
	// A segment of the physical network, too.
	w.Ports([]string{"p1"}, []neutron.Port{bound(func(p *neutron.Port) {
		p.Revision, p.BindingLevels[0].Segment.Value.NetworkType, p.BindingLevels[0].Segment.Value.PhysicalNetwork = 9, "vlan", "physnet1"
	})})
	if got := names(w.Resolve()); got != "port p1" {
		t.Logf("the segment keeps its key: %s", got)
	}
	w2 := plugged("br-int", &one, ovsdb.Interface{})
	w2.Ports([]string{"p1"}, []neutron.Port{bound(func(p *neutron.Port) {
		p.BindingLevels[0].Segment.Value.NetworkType, p.BindingLevels[0].Segment.Value.PhysicalNetwork = "vlan", "physnet1"
	})})
	if got := names(w2.Resolve()); got != "port p1; segment n1/7" {
		t.Errorf("a new segment: %s", got)
	}
	w = w2
	if got := number("int-br-ex", 5); got != "bridge br-ex; bridge br-int; segment n1/7" {
		t.Errorf("%q", got)
	}
}

// TestUnplugged: what a port leaves is worked out at once, and its VLAN is free.
func TestUnplugged(t *testing.T) {
	one := 1
	w := plugged("br-int", &one, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	old := w.View.InterfaceByName("tap1")
	w.Switch(&ovsdb.Batch{Seq: 2, Kind: ovsdb.Update, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: old}}})
	if got := names(w.Resolve()); got != "port p1; segment n1/7" || w.Port("p1") != nil || len(w.Segments.byKey)+len(w.Segments.vlans.of)+len(w.Segments.vlans.used)+len(w.vifs.rows)+len(w.vifs.of) != 0 {
		t.Errorf("%s; %v", got, w.Segments.vlans)
	}
	// Plugged in again in one batch with being plugged out, it keeps its VLAN.
	w = plugged("br-int", &one, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	old = w.View.InterfaceByName("tap1")
	again := *old
	again.UUID, again.OFPort = "again", new(4)
	port := *w.View.PortOf(old.UUID)
	before := port
	port.Interfaces = []ovsdb.UUID{"again"}
	w.Switch(&ovsdb.Batch{
		Seq: 2, Kind: ovsdb.Update, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: old}, {New: &again}}, Ports: []ovsdb.Diff[ovsdb.Port]{{Old: &before, New: &port}},
	})
	if got := names(w.Resolve()); got != "port p1" || w.Port("p1").VIF.OFPort != 4 || w.Port("p1").Wiring.VLAN != 1 || len(w.vifs.of["p1"]) != 1 {
		t.Errorf("%s; %+v", got, w.Port("p1"))
	}
}

// TestKeptVLANs: a number from an earlier run is kept if it is one, and nobody has it.
func TestKeptVLANs(t *testing.T) {
	key, other := SegmentKey{"n", 1}, SegmentKey{"m", 1}
	for n, want := range map[uint16]bool{0: false, 1: true, 4094: true, 4095: false} {
		v := newVLANs()
		v.keep(key, n)
		if got, fresh, ok := v.take(key); !ok || (got == n) != want || fresh == want {
			t.Errorf("%d: %d, %v, %v", n, got, fresh, ok)
		}
	}
	v := newVLANs()
	v.keep(key, 5)
	v.keep(other, 5) // taken
	v.keep(key, 6)   // the first counts
	if n, _, _ := v.take(other); n == 5 {
		t.Error("two segments have one number")
	}
	if n, fresh, _ := v.take(key); n != 5 || fresh || v.used[6] {
		t.Errorf("%d, %v, %v", n, fresh, v.used)
	}
	v.keep(key, 9)
	if v.used[9] || len(v.kept) != 0 {
		t.Error("a number is kept for a segment that has one")
	}
	if n, fresh, ok := v.take(key); n != 5 || fresh || !ok {
		t.Error("asked again, it gets another")
	}
	for tag, want := range map[int]uint16{0: 1, 4094: 4094, -3: 1, 5000: 1, 1<<16 + 5: 1} {
		w := New(config())
		one := 1
		w.Switch(&ovsdb.Batch{
			Seq: 1, Kind: ovsdb.Initial,
			Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "b", Name: "br-int", Ports: []ovsdb.UUID{"p"}}}},
			Ports:   []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{UUID: "p", Name: "tap1", Interfaces: []ovsdb.UUID{"i"}, Tag: &tag, OtherConfig: map[string]string{"net_uuid": "n1", "segmentation_id": "7"}}}},
			Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{
				UUID: "i", Name: "tap1", OFPort: &one, ExternalIDs: map[string]string{"iface-id": "p1", "attached-mac": "fa:16:3e:00:00:01"},
			}}},
		})
		w.Resolve()
		w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
		w.Resolve()
		if got := w.Port("p1").Wiring.VLAN; got != want {
			t.Errorf("tag %d: VLAN %d, want %d", tag, got, want)
		}
	}
}

// TestAVLANThatAWaitingPortBears: its segment loses the only port that is known, and stays as long as another port, of which the server has said
// nothing yet, is on it from an earlier run. No other network is given the number.
func TestAVLANThatAWaitingPortBears(t *testing.T) {
	for name, c := range map[string]struct {
		tag   *int
		known bool // the server knows the other port
		stays bool
		want  bool // the segment is there in the end
	}{
		"of the same network": {new(1), true, true, true},
		"deleted meanwhile":   {new(1), false, true, false},
		"on another number":   {new(2), false, false, false},
		"in no network":       {nil, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(config())
			batch := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "b", Name: "br-int", Ports: []ovsdb.UUID{"p1", "p2"}}}}}
			for i, tag := range []*int{new(1), c.tag} {
				id := fmt.Sprint("p", i+1)
				port := &ovsdb.Port{UUID: ovsdb.UUID(id), Name: id, Interfaces: []ovsdb.UUID{ovsdb.UUID("i" + id)}, Tag: tag}
				if tag != nil {
					port.OtherConfig = map[string]string{"net_uuid": "n1", "segmentation_id": "7"}
				}
				batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: port})
				batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
					UUID: ovsdb.UUID("i" + id), Name: id, OFPort: new(i + 1), ExternalIDs: map[string]string{"iface-id": id, "attached-mac": "fa:16:3e:00:00:01"},
				}})
			}
			w.Switch(batch)
			w.Resolve()
			w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
			w.Resolve()
			w.Ports([]string{"p1"}, []neutron.Port{bound(func(p *neutron.Port) { p.NetworkID, p.Revision = "n2", 6 })})
			w.Resolve()
			segment, moved := w.Segments.Get(segment7), w.Port("p1").Wiring
			if (segment != nil) != c.stays || moved.State != Wired || c.stays && moved.VLAN == segment.VLAN {
				t.Errorf("the segment is %+v, and the port that left is %+v", segment, moved)
			}
			w.Ports([]string{"p2"}, map[bool][]neutron.Port{true: {bound(func(p *neutron.Port) { p.ID = "p2" })}}[c.known])
			w.Resolve()
			if got := w.Segments.Get(segment7) != nil; got != c.want {
				t.Errorf("in the end there is a segment: %v, want %v", got, c.want)
			}
		})
	}
}

// TestWhatIsShown of groups, and what the server has not said.
func TestWhatIsShown(t *testing.T) {
	w := filtering(2)
	if ports, items := w.Unspoken(); ports != 2 || items != 0 {
		t.Errorf("%d ports, %d items", ports, items)
	}
	w.Ports([]string{"p1", "p2"}, []neutron.Port{grouped(1, 1, "g"), grouped(2, 1, "g", "h")})
	w.Resolve()
	if ports, items := w.Unspoken(); ports != 0 || items != 2 {
		t.Errorf("%d ports, %d items", ports, items)
	}
	s := &server{groups: map[string][]neutron.SecurityGroupRule{"g": {rule("r2", "g", "remote=h tcp ports=1-2"), rule("r1", "g", "udp")}, "h": nil},
		members: map[string]neutron.Member{"p1": member1("p1", "10.0.0.1", 1, "g"), "p2": member1("p2", "10.0.0.2", 1, "g", "h"), "x": member1("x", "10.0.0.9", 1, "h")}}
	s.answers(w)
	if ports, items := w.Unspoken(); ports != 0 || items != 0 {
		t.Errorf("%d ports, %d items", ports, items)
	}
	g, ok := w.Groups.KnownGroup("g")
	if !ok || !g.Known || !slices.Equal(g.Ports, []string{"p1", "p2"}) || len(g.Rules) != 2 || g.Rules[0].ID != "r1" || g.Members["h"] != 2 {
		t.Errorf("%+v, %v", g, ok)
	}
	if _, ok := w.Groups.KnownGroup("none"); ok || !slices.Equal(w.Groups.IDs(), []string{"g", "h"}) {
		t.Errorf("groups %v", w.Groups.IDs())
	}
	if got := w.Segments.Get(segment7).PortIDs(); fmt.Sprint(got) != "[p1 p2]" || w.Remembered() != 0 {
		t.Errorf("%v, %d remembered", got, w.Remembered())
	}
}
