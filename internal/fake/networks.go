// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"net/netip"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// TwoNetworks is the configuration of a world that [TwoNetworks.Fill] fills: L2population or not.
type TwoNetworks bool

// Config returns the configuration.
func (l2population TwoNetworks) Config() world.Config {
	return world.Config{
		Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int", Physical: map[string]string{"physnet1": "br-ex"},
		TunnelTypes: []string{"vxlan"}, LocalIP: netip.MustParseAddr("10.0.0.1"), L2Population: bool(l2population),
	}
}

// Fill gives a world two networks with a port each: n1, in tunnels to three endpoints, of which one is up, and n2.
func (l2population TwoNetworks) Fill(w *world.World) {
	l2population.Wire(w)
	for _, ip := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"} {
		endpoint := netip.MustParseAddr(ip)
		w.Tunnels.Up(world.Endpoint{Type: "vxlan", IP: endpoint})
		seven := 7
		w.Tunnels.FDBAdd(&neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"n1": {NetworkType: "vxlan", SegmentationID: &seven, Ports: map[netip.Addr][]neutron.FDBEntry{
			endpoint: {{IP: netip.IPv4Unspecified()}, {MAC: neutron.MAC{2, 1, 1, 1, 1, endpoint.As4()[3]}, IP: netip.MustParseAddr("192.168.0.9")}},
		}}}})
	}
	w.Resolve()
}

// Wire gives a world the networks and ports, and tells nothing of endpoints and what is behind them.
func (TwoNetworks) Wire(w *world.World) {
	number := func(n int) *int { return &n }
	batch := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root", OVSVersion: "3.1.0"}}}}
	row := func(name string, ofport *int, ids map[string]string, failed string) ovsdb.UUID {
		batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: ovsdb.UUID("p" + name), Name: name, Interfaces: []ovsdb.UUID{ovsdb.UUID("i" + name)}}})
		batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{UUID: ovsdb.UUID("i" + name), Name: name, OFPort: ofport, ExternalIDs: ids, Error: failed}})
		return ovsdb.UUID("p" + name)
	}
	vif := func(id, mac string) map[string]string { return map[string]string{"iface-id": id, "attached-mac": mac} }
	up, bad := world.TunnelNames(world.Endpoint{Type: "vxlan", IP: netip.MustParseAddr("10.0.0.2")})[0], world.TunnelNames(world.Endpoint{Type: "vxlan", IP: netip.MustParseAddr("10.0.0.3")})[0]
	batch.Bridges = []ovsdb.Diff[ovsdb.Bridge]{
		{New: &ovsdb.Bridge{UUID: "int", Name: "br-int", DatapathID: "00aa", Ports: []ovsdb.UUID{row("v1", number(1), vif("p1", "fa:16:3e:00:00:01"), ""), row("v2", number(2), vif("p2", "fa:16:3e:00:00:02"), "")}}},
		{New: &ovsdb.Bridge{UUID: "tun", Name: "br-tun", Ports: []ovsdb.UUID{row(up, number(3), nil, ""), row(bad, number(-1), nil, "no route")}}},
	}
	w.Switch(batch)
	w.Resolve()
	level := func(kind, physnet string, id int) neutron.List[neutron.BindingLevel] {
		return neutron.List[neutron.BindingLevel]{{Host: "hv1", Segment: neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: kind, PhysicalNetwork: physnet, SegmentationID: &id}}}}
	}
	bindings := neutron.List[neutron.Binding]{{Host: "hv1", Status: "ACTIVE"}}
	w.Ports(w.Missing(), []neutron.Port{
		{ID: "p1", NetworkID: "n1", AdminStateUp: true, Bindings: bindings, BindingLevels: level("vxlan", "", 7)},
		{ID: "p2", NetworkID: "n2", AdminStateUp: true, Bindings: bindings, BindingLevels: level("vlan", "physnet1", 9)},
	})
	w.Resolve()
}
