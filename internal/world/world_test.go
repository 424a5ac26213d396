// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

func TestNamesAreTheContract(t *testing.T) {
	for got, want := range map[string]string{
		IntPatchName("br-ex"):                                                  "int-br-ex",
		PhysPatchName("br-physical-very-long"):                                 "phy-br-ph9a026c",
		TunnelNames(endpoint("vxlan/172.16.100.51"))[0]:                        "vxlan-ac106433",
		TunnelNames(endpoint("gre/10.0.0.1"))[0]:                               "gre-0a000001",
		TunnelNames(endpoint("geneve/2001:db8::1"))[0]:                         "geneve-xsyzhsi4",
		TunnelNames(endpoint("geneve/2001:db8::1"))[1]:                         "geneve-d3wbibj5",
		TunnelNames(endpoint("gre/2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff"))[0]: "gre-geovheflrjh",
		TunnelNames(endpoint("gre/2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff"))[1]: "gre-5x5izjlp6yb",
		TunnelNames(endpoint("vxlan/fd00::2"))[0]:                              "vxlan-jahnh55sd",
	} {
		if len(got) > maxName {
			t.Errorf("%s is too long", got)
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func endpoint(s string) Endpoint {
	kind, ip, _ := strings.Cut(s, "/")
	return Endpoint{kind, netip.MustParseAddr(ip)}
}

func config() Config {
	return Config{
		Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
		Physical: map[string]string{"physnet1": "br-ex"}, TunnelTypes: []string{"vxlan"}, LocalIP: netip.MustParseAddr("10.0.0.1"),
		L2Population: true,
	}
}

// plugged is a world with one port on a bridge.
func plugged(bridge string, ofport *int, iface ovsdb.Interface) *World {
	return pluggedInto(New(config()), bridge, ofport, iface)
}

func pluggedInto(w *World, bridge string, ofport *int, iface ovsdb.Interface) *World {
	iface.UUID, iface.Name, iface.OFPort = "i", "tap1", ofport
	iface.ExternalIDs = map[string]string{"iface-id": "p1", "attached-mac": "fa:16:3e:00:00:01"}
	w.Switch(&ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial,
		Bridges:    []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "b", Name: bridge, Ports: []ovsdb.UUID{"p"}}}},
		Ports:      []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{UUID: "p", Name: "tap1", Interfaces: []ovsdb.UUID{"i"}}}},
		Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &iface}},
	})
	w.Resolve()
	return w
}

func bound(change func(*neutron.Port)) neutron.Port {
	id := 7
	p := neutron.Port{
		ID: "p1", NetworkID: "n1", AdminStateUp: true, DeviceOwner: "compute:nova", Revision: 5,
		Bindings:      neutron.List[neutron.Binding]{{Host: "hv1", Status: "ACTIVE"}},
		BindingLevels: neutron.List[neutron.BindingLevel]{{Host: "hv1", Segment: neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: "vxlan", SegmentationID: &id}}}},
	}
	if change != nil {
		change(&p)
	}
	return p
}

// numbered is a port of a network of a type under a number.
func numbered(networkType string, id *int) []neutron.Port {
	return []neutron.Port{bound(func(p *neutron.Port) {
		*p.BindingLevels[0].Segment.Value = neutron.Segment{NetworkType: networkType, PhysicalNetwork: "physnet1", SegmentationID: id}
	})}
}

func TestDecisions(t *testing.T) {
	one, failed := 1, -1
	for _, c := range []struct {
		name   string
		bridge string
		ofport *int
		answer []neutron.Port // nil: not asked; empty: unknown
		state  State
		reason string
	}{
		{"on a trunk bridge", "tbr-1", &one, nil, Elsewhere, "not the integration bridge"},
		{"no number yet", "br-int", nil, []neutron.Port{bound(nil)}, Waiting, "has not made the interface"},
		{"number -1", "br-int", &failed, []neutron.Port{bound(nil)}, Failed, "no such device"},
		{"not told yet", "br-int", &one, nil, Waiting, "not answered"},
		{"unknown", "br-int", &one, []neutron.Port{}, Dead, "does not know it"},
		{"unbound", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) { p.BindingLevels = nil })}, Dead, "not bound to a segment"},
		{"no segment", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) { p.BindingLevels[0].Segment.Value = nil })}, Dead, "not bound to a segment"},
		{"no active binding", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) { p.Bindings[0].Status = "INACTIVE" })}, Dead, "no active binding"},
		{"another host's VM", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) { p.Bindings[0].Host = "hv2" })}, Dead, "bound to host hv2"},
		{"another host's VM on its way", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) {
			p.Bindings[0].Host = "hv2"
			p.Bindings[0].Profile = neutron.EmbeddedJSON{"migrating_to": []byte(`"hv1"`)}
		})}, Wired, "bound to this host"},
		{"router bound elsewhere", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) {
			p.Bindings[0].Host, p.DeviceOwner = "hv2", "network:router_interface"
		})}, Wired, ""},
		{"switched off", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) { p.AdminStateUp = false })}, Down, "admin down"},
		{"tunnel type not here", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) { p.BindingLevels[0].Segment.Value.NetworkType = "gre" })}, Dead, "tunnel_types"},
		{"no bridge for it", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) {
			p.BindingLevels[0].Segment.Value.NetworkType, p.BindingLevels[0].Segment.Value.PhysicalNetwork = "vlan", "other"
		})}, Dead, "bridge_mappings has no bridge for its physical network other"},
		{"wired", "br-int", &one, []neutron.Port{bound(nil)}, Wired, ""},
		{"another host's segment after ours", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) {
			p.BindingLevels = append(p.BindingLevels, neutron.BindingLevel{Host: "hv2", Segment: neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: "gre"}}})
		})}, Wired, ""},
		{"levels of this host in any order", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) {
			p.BindingLevels[0].Level = 1
			p.BindingLevels = append(p.BindingLevels, neutron.BindingLevel{Host: "hv1", Segment: neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: "gre"}}})
		})}, Wired, ""},
		{"only another host's segment", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) { p.BindingLevels[0].Host = "hv2" })}, Wired, ""},
		{"no segment on this host", "br-int", &one, []neutron.Port{bound(func(p *neutron.Port) {
			p.BindingLevels = append(p.BindingLevels, neutron.BindingLevel{Host: "hv1", Level: 1})
		})}, Dead, "not bound to a segment"},
		// Cut to 12 bits, 4096 + 7 is VLAN 7: another network's.
		{"VLAN too large", "br-int", &one, numbered("vlan", new(4096+7)), Dead, "segmentation id 4103 of its network is not among those of type vlan, 1 to 4094"},
		{"VLAN 4095", "br-int", &one, numbered("vlan", new(4095)), Dead, "segmentation id 4095"},
		{"VLAN 0", "br-int", &one, numbered("vlan", new(0)), Dead, "segmentation id 0"},
		{"VLAN below 0", "br-int", &one, numbered("vlan", new(-1)), Dead, "segmentation id -1"},
		{"VLAN without number", "br-int", &one, numbered("vlan", nil), Dead, "has no segmentation id"},
		{"VLAN 4094", "br-int", &one, numbered("vlan", new(4094)), Wired, ""},
		{"VXLAN too large", "br-int", &one, numbered("vxlan", new(1<<24)), Dead, "segmentation id 16777216"},
		{"VXLAN 0", "br-int", &one, numbered("vxlan", new(0)), Dead, "segmentation id 0"},
		{"VXLAN the largest", "br-int", &one, numbered("vxlan", new(1<<24-1)), Wired, ""},
		{"flat has none", "br-int", &one, numbered("flat", nil), Wired, ""},
	} {
		w := plugged(c.bridge, c.ofport, ovsdb.Interface{Error: map[bool]string{true: "no such device"}[c.ofport == &failed]})
		if c.answer != nil {
			w.Ports([]string{"p1"}, c.answer)
		}
		w.Resolve()
		got := w.Port("p1").Wiring
		if got.State != c.state || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, got.State, got.Reason, c.state, c.reason)
		}
	}
}

func TestALatePushDoesNotBringADeletedPortBack(t *testing.T) {
	one := 1
	w := plugged("br-int", &one, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	now := time.Unix(1000, 0)
	gone := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Deleted, Objects: []neutron.Primitive{{Name: "Port", Data: []byte(`{"id":"p1"}`)}}}
	if err := w.Push(gone, now); err != nil {
		t.Fatal(err)
	}
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)}) // an answer that was on its way
	w.Resolve()
	if got := w.Port("p1").Wiring; got.State != Dead || !strings.Contains(got.Reason, "deleted") {
		t.Errorf("%s (%s)", got.State, got.Reason)
	}
	w.Expire(now.Add(tombstoneLife + time.Second))
	if len(w.deleted.at) != 0 {
		t.Error("the tombstone is kept for ever")
	}
}

func TestOlderRevisionsAreIgnored(t *testing.T) {
	one := 1
	w := plugged("br-int", &one, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Ports([]string{"p1"}, []neutron.Port{bound(func(p *neutron.Port) { p.Revision, p.AdminStateUp = 4, false })})
	w.Resolve()
	if got := w.Port("p1").Wiring; got.State != Wired {
		t.Errorf("%s (%s)", got.State, got.Reason)
	}
}

func TestConfirmationsCostNothing(t *testing.T) {
	one := 1
	for _, c := range []struct {
		name    string
		change  func(*neutron.Port)
		settled bool
	}{
		{"up, as we said", func(p *neutron.Port) { p.Status = "ACTIVE" }, false},
		{"taken down", func(p *neutron.Port) { p.Status = "DOWN" }, true},
		{"up, and in a group", func(p *neutron.Port) { p.Status, p.SecurityGroupIDs = "ACTIVE", []string{"g"} }, true},
		{"up, and bound elsewhere", func(p *neutron.Port) { p.Status, p.Bindings[0].Host = "ACTIVE", "hv2" }, true},
	} {
		w := plugged("br-int", &one, ovsdb.Interface{})
		w.Ports(w.Missing(), []neutron.Port{bound(nil)})
		w.Resolve()
		later := bound(func(p *neutron.Port) { p.Revision++; c.change(p) })
		w.learn(&later)
		if got := w.Resolve(); len(got) > 0 != c.settled {
			t.Errorf("%s: settled %v", c.name, got)
		}
		if got := w.Port("p1").Details; got.Status != later.Status || got.Revision != later.Revision {
			t.Errorf("%s: not taken down: %+v", c.name, got)
		}
	}
}

func TestForeignPortsCostNoMemory(t *testing.T) {
	one := 1
	w := plugged("br-int", &one, ovsdb.Interface{})
	push := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: []neutron.Primitive{{Name: "Port", Data: []byte(`{"id":"other","mac_address":"x"}`)}}}
	if err := w.Push(push, time.Now()); err != nil || len(w.ports) != 1 || len(w.Resolve()) != 0 {
		t.Errorf("%v, %d ports", err, len(w.ports))
	}
}

func TestLocalVLANsAreReadBack(t *testing.T) {
	dead := DeadVLAN
	for _, c := range []struct {
		tag   int
		other *ovsdb.Port // on the same number
		want  uint16
	}{
		{77, nil, 77},
		{DeadVLAN, nil, 78}, // off: as it is written down
		{DeadVLAN, &ovsdb.Port{UUID: "q", Tag: &dead, OtherConfig: map[string]string{"net_uuid": "n1", "segmentation_id": "7", "tag": "78"}}, 78},
		{DeadVLAN, &ovsdb.Port{UUID: "q", Tag: new(78), OtherConfig: map[string]string{"net_uuid": "n2"}}, 1}, // it has been given to another network
	} {
		w := New(config())
		one := 1
		batch := &ovsdb.Batch{
			Seq: 1, Kind: ovsdb.Initial,
			Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "b", Name: "br-int", Ports: []ovsdb.UUID{"p", "q"}}}},
			Ports: []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{
				UUID: "p", Name: "tap1", Interfaces: []ovsdb.UUID{"i"}, Tag: &c.tag,
				OtherConfig: map[string]string{"net_uuid": "n1", "segmentation_id": "7", "tag": "78"},
			}}},
			Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{
				UUID: "i", Name: "tap1", OFPort: &one, ExternalIDs: map[string]string{"iface-id": "p1", "attached-mac": "fa:16:3e:00:00:01"},
			}}},
		}
		if c.other != nil {
			batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: c.other})
		}
		w.Switch(batch)
		w.Resolve()
		w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
		w.Resolve()
		if got := w.Port("p1").Wiring; got.VLAN != c.want {
			t.Errorf("tag %d: VLAN %d, want %d", c.tag, got.VLAN, c.want)
		}
	}
}

// A port that has moved from a segment with a number to one without may still have the number in its row.
func TestLocalVLANOfAPortWithAnOldNumber(t *testing.T) {
	for kind, want := range map[string]string{"flat": "n1/None", "local": "n1/None", "vxlan": "n1/7", "": "n1/7"} {
		w := New(config())
		w.Switch(&ovsdb.Batch{
			Seq: 1, Kind: ovsdb.Initial,
			Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "b", Name: "br-int", Ports: []ovsdb.UUID{"p"}}}},
			Ports: []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{
				UUID: "p", Name: "tap1", Tag: new(77), OtherConfig: map[string]string{"net_uuid": "n1", "network_type": kind, "segmentation_id": "7"},
			}}},
		})
		key, _ := ParseSegmentKey(want)
		if n, fresh, _ := w.Segments.vlans.take(key); n != 77 || fresh {
			t.Errorf("%s: %s has VLAN %d, fresh: %v", kind, want, n, fresh)
		}
	}
}

func TestChangedSegmentationIsAskedFor(t *testing.T) {
	one := 1
	w := plugged("br-int", &one, ovsdb.Interface{})
	w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	w.Resolve()
	push := func(id int) *neutron.Push {
		data := []byte(`{"id":"n1","segments":[{"versioned_object.data":{"network_type":"vxlan","segmentation_id":` + map[int]string{7: "7", 8: "8"}[id] + `}}]}`)
		return &neutron.Push{Kind: neutron.KindNetwork, Event: neutron.Updated, Objects: []neutron.Primitive{{Name: "Network", Data: data}}}
	}
	if err := w.Push(push(7), time.Now()); err != nil || len(w.Missing()) != 0 {
		t.Errorf("a network that was only renamed made us ask: %v", err)
	}
	if err := w.Push(push(8), time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := w.Missing(); len(got) != 1 || w.Port("p1").Wiring.State != Wired {
		t.Errorf("asks for %v, port %s", got, w.Port("p1").Wiring.State)
	}
	eight := 8
	w.Ports(w.Missing(), []neutron.Port{bound(func(p *neutron.Port) { p.BindingLevels[0].Segment.Value.SegmentationID = &eight })})
	if got := names(w.Resolve()); got != "port p1; segment n1/7; segment n1/8" {
		t.Errorf("touched %s", got)
	}
	if s := w.Segments.Get(SegmentKey{"n1", 8}); len(w.Segments.All()) != 1 || s == nil || !slices.Equal(s.PortIDs(), []string{"p1"}) || s.VLAN != 2 || w.Port("p1").Wiring.VLAN != 2 {
		t.Errorf("%+v, segments %+v", w.Port("p1").Wiring, w.Segments.All())
	}
	// Down and dead, in the same segment and in none.
	down := bound(func(p *neutron.Port) {
		p.BindingLevels[0].Segment.Value.SegmentationID, p.AdminStateUp, p.Revision = &eight, false, 6
	})
	w.learn(&down)
	if w.Resolve(); len(w.Segments.All()) != 1 || !slices.Equal(w.Segments.All()[0].PortIDs(), []string{"p1"}) {
		t.Errorf("switched off: segments %+v", w.Segments.All())
	}
	gone := bound(func(p *neutron.Port) { p.Bindings[0].Host, p.Revision = "hv2", 7 })
	w.learn(&gone)
	if w.Resolve(); len(w.Segments.All()) != 0 {
		t.Errorf("bound elsewhere: segments %+v", w.Segments.All())
	}
}

func TestVLANsRunOut(t *testing.T) {
	v := newVLANs()
	for i := range maxVLAN {
		if _, _, ok := v.take(SegmentKey{"n", i}); !ok {
			t.Fatalf("no VLAN for segment %d", i)
		}
	}
	if _, _, ok := v.take(SegmentKey{"n", maxVLAN}); ok {
		t.Error("more VLANs than there are")
	}
	v.release(SegmentKey{"n", 100})
	if n, _, ok := v.take(SegmentKey{"m", 1}); !ok || n != 101 {
		t.Errorf("got %d, %v, want the one that was given back", n, ok)
	}
}

// A tunnel keeps the name that an agent of any release gave it; of two the one that works counts.
func TestTunnelKeepsItsName(t *testing.T) {
	const newer, older = "vxlan-xsyzhsi4u", "vxlan-d3wbibj5t"
	works, fails := 7, -1
	for _, c := range []struct {
		what      string
		have      map[string]*int
		since25   bool
		want      string
		andOnIPv4 string
	}{
		{"none, server before 25", nil, false, older, "vxlan-ac106433"},
		{"none, server since 25", nil, true, newer, "vxlan-ac106433"},
		{"one of before 25", map[string]*int{older: &works}, true, older, ""},
		{"one of before 25 that has no number yet", map[string]*int{older: nil}, true, older, ""},
		{"one of since 25", map[string]*int{newer: &works}, false, newer, ""},
		{"two, of which the switch refused the newer", map[string]*int{newer: &fails, older: &works}, true, older, ""},
		{"two, of which the switch refused the older", map[string]*int{newer: &works, older: &fails}, false, newer, ""},
	} {
		cfg := config()
		cfg.LocalIP, cfg.L2Population = netip.MustParseAddr("2001:db8::2"), false
		w := New(cfg)
		w.NewerTunnelNames = c.since25
		w.Tunnels.Up(endpoint("vxlan/2001:db8::1"))
		w.Resolve()
		b := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}
		for name, ofport := range c.have {
			b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{UUID: ovsdb.UUID("i-" + name), Name: name, OFPort: ofport}})
		}
		w.Switch(b)
		if got := w.TunnelName(endpoint("vxlan/2001:db8::1")); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if got := w.TunnelName(endpoint("vxlan/172.16.100.51")); c.andOnIPv4 != "" && got != c.andOnIPv4 {
			t.Errorf("%s: %s, want %s", c.what, got, c.andOnIPv4)
		}
		if marked := w.Resolve(); c.have[c.want] != nil && !slices.Contains(marked, Object(TunnelObject(endpoint("vxlan/2001:db8::1")))) {
			t.Errorf("%s: the tunnel is not looked at again: %v", c.what, marked)
		}
	}
}
