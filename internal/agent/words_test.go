// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
)

// TestWordsForPeople: what the views call ports, segments and rules.
func TestWordsForPeople(t *testing.T) {
	for _, c := range []struct{ owner, iface, want string }{
		{"compute:nova", "tap1", ""}, {"compute:nova", "tpi-1", "trunk parent"}, {"trunk:subport", "x", "sub-port"}, {"", "spi-1", "sub-port"},
		{"network:router_interface", "qr-1", "router interface"}, {"network:router_interface_distributed", "qr-1", "router interface"},
		{"network:ha_router_replicated_interface", "qr-1", "router interface"}, {"network:router_centralized_snat", "sg-1", "SNAT"},
		{"network:router_gateway", "qg-1", "router gateway"}, {"network:floatingip_agent_gateway", "fg-1", "floating IP gateway"}, {"network:dhcp", "tap2", "DHCP"},
	} {
		if got := roleOf(c.owner, c.iface); got != c.want {
			t.Errorf("%s on %s is %q, want %q", c.owner, c.iface, got, c.want)
		}
	}
	for _, c := range []struct {
		s    world.Segment
		want string
	}{
		{world.Segment{Key: world.SegmentKey{ID: 1234}, Type: "vlan", Physnet: "physnet1"}, "vlan 1234 on physnet1"},
		{world.Segment{Key: world.SegmentKey{ID: 0}, Type: "vxlan"}, "vxlan 0"},
		{world.Segment{Key: world.SegmentKey{ID: -1}, Type: "flat", Physnet: "p"}, "flat on p"},
		{world.Segment{Key: world.SegmentKey{ID: -1}, Type: "local"}, "local"},
	} {
		if got := segmentText(&c.s); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	prefix, err := neutron.ParsePrefix("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]int{"g": 3, "a": 5}
	for _, c := range []struct {
		r       neutron.SecurityGroupRule
		text    string
		members int
	}{
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4"}, "allow everything from anywhere (IPv4)", 0},
		{neutron.SecurityGroupRule{Direction: "egress", EtherType: "IPv6", Protocol: "udp"}, "allow udp to anywhere (IPv6)", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortRangeMin: new(22), PortRangeMax: new(22), RemoteIPPrefix: &prefix}, "allow tcp/22 from 10.0.0.0/8", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortRangeMin: new(22), PortRangeMax: new(23), RemoteGroupID: "g"}, "allow tcp/22-23 from members of group g (IPv4)", 3},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortRangeMin: new(22)}, "allow tcp from anywhere (IPv4)", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", RemoteAddressGroupID: "a"}, "allow everything from address group a (IPv4)", 5},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", RemoteAddressGroupID: "a", RemoteGroupID: "g"}, "allow everything from members of group g (IPv4)", 3},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "icmp", PortRangeMin: new(8), PortRangeMax: new(0)}, "allow icmp type 8 code 0 from anywhere (IPv4)", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv6", Protocol: "58", PortRangeMin: new(8)}, "allow 58 type 8 from anywhere (IPv6)", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "1", PortRangeMin: new(8)}, "allow 1 type 8 from anywhere (IPv4)", 0},
	} {
		if got := ruleDocument(&c.r, members); got.Text != c.text || got.Members != c.members {
			t.Errorf("%q with %d members, want %q with %d", got.Text, got.Members, c.text, c.members)
		}
	}
}

// TestPortDocument: each field from where it belongs.
func TestPortDocument(t *testing.T) {
	mac, other := neutron.MAC{2, 0, 0, 0, 0, 1}, neutron.MAC{2, 0, 0, 0, 0, 2}
	c := portCopy{
		port: world.Port{ID: "p", Wiring: world.Wiring{State: world.Wired, Reason: "bound", VLAN: 7}, Groups: []string{"g"}},
		vif:  world.VIF{Name: "tap", OFPort: 5, MAC: mac}, confirmed: report.AdminDown, settled: true, notes: []string{"a\tb"}, filter: true, flows: 3,
	}
	got := c.document()
	if d := cmp.Diff(inspect.Port{
		ID: "p", State: "wired", Reason: "bound", Interface: "tap", OFPort: 5, VLAN: 7, Filtered: true, Groups: []string{"g"}, Reported: "admin down",
		Applied: true, Flows: 3, MAC: "02:00:00:00:00:01", Notes: []string{inspect.Printable("a\tb")},
	}, got); d != "" {
		t.Error(d)
	}
	for s, want := range map[report.Status]string{report.Unknown: "", report.Up: "up", report.Down: "down", report.AdminDown: "admin down"} {
		c.confirmed = s
		if got := c.document().Reported; got != want {
			t.Errorf("%d: %q, want %q", s, got, want)
		}
	}
	c.vif.MAC = neutron.MAC{}
	if got := c.document().MAC; got != "" {
		t.Errorf("address %q of an interface without one", got)
	}
	c.vif.MAC = mac
	c.port.Details = &neutron.Port{
		NetworkID: "n", Name: "web", DeviceOwner: "network:dhcp", DeviceID: "d", Status: "ACTIVE", Revision: 9, MAC: other,
		FixedIPs: neutron.List[neutron.FixedIP]{{IP: netip.MustParseAddr("10.0.0.1")}, {}},
		AllowedAddressPairs: neutron.List[neutron.AddressPair]{
			{}, {IP: neutron.Prefix{Prefix: netip.MustParsePrefix("10.0.0.9/32")}}, {MAC: mac, IP: neutron.Prefix{Prefix: netip.MustParsePrefix("10.0.1.0/24")}},
		},
	}
	got = c.document()
	if got.Role != "DHCP" || got.Name != "web" || got.Owner != "network:dhcp" || got.Device != "d" || got.Status != "ACTIVE" || got.Revision != 9 ||
		got.Network != "n" || got.MAC != other.String() || !slices.Equal(got.Addresses, []string{"10.0.0.1"}) || got.Secured != c.port.Details.PortSecurityEnabled() {
		t.Errorf("%+v", got)
	}
	if len(got.Pairs) != 2 || got.Pairs[0].MAC != other.String() || got.Pairs[1].MAC != mac.String() || got.Pairs[0].IP[:8] != "10.0.0.9" {
		t.Errorf("pairs %+v", got.Pairs)
	}
	c.port.Wiring.Segment, c.segment = world.SegmentKey{Network: "m", ID: 3}, world.Segment{Key: world.SegmentKey{Network: "m", ID: 3}, Type: "vxlan"}
	if got = c.document(); got.Network != "m" || got.Segment != "vxlan 3" {
		t.Errorf("%+v", got)
	}
}

// TestHypervisors: who is said to have a bridge's bandwidth.
func TestHypervisors(t *testing.T) {
	o := load(t, `
[ovs]
bridge_mappings = p1:br-1,p2:br-2
resource_provider_hypervisors = br-2:named
resource_provider_default_hypervisor = default
resource_provider_bandwidths = br-1:1000:,br-2::2000
resource_provider_packet_processing_without_direction = :500
resource_provider_inventory_defaults = allocation_ratio:1.5,min_unit:2
`)
	c := configurations(o, "machine")
	if c.RPHypervisors["br-1"] != "default" || c.RPHypervisors["br-2"] != "named" || c.BridgeMappings["p2"] != "br-2" {
		t.Errorf("%v, %v", c.RPHypervisors, c.BridgeMappings)
	}
	if b := c.RPBandwidths; *b["br-1"].Egress != 1000 || b["br-1"].Ingress != nil || *b["br-2"].Ingress != 2000 || b["br-2"].Egress != nil {
		t.Errorf("%+v", b)
	}
	if i := c.RPInventoryDefaults; *i.MinUnit != 2 || float64(*i.AllocationRatio) != 1.5 || i.MaxUnit != nil {
		t.Errorf("%+v", i)
	}
	for _, any := range c.RPPacketsWithoutDirection {
		if *any["any"] != 500 {
			t.Errorf("%+v", any)
		}
	}
	if len(c.RPPacketsWithoutDirection) != 1 || c.TunnelingIP != nil {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string][2]string{ // with the objects of 21, and of 26
		"": {"", "machine"}, "[ml2]\ntunnelled_network_rp_name =\n": {"", ""},
		"[ovs]\nresource_provider_hypervisors = rp_tunnelled:named\n":        {"named", "named"},
		"[ovs]\nresource_provider_bandwidths = rp_tunnelled:1000:1000\n":     {"machine", "machine"},
		"[ovs]\nresource_provider_default_hypervisor = default\n":            {"", "default"},
		"[ml2]\ntunnelled_network_rp_name = tun\n[ovs]\nlocal_ip = 10.0.0.1": {"", ""},
	} {
		c := configurations(load(t, text), "machine")
		for i, release := range []int{21, 26} {
			_, v, err := neutron.Negotiate(t.Context(), neutron.NewServer(sim.New(sim.Config{Release: release}).Join("hv1", nil), "hv1"))
			if got := c.For(v).RPHypervisors["rp_tunnelled"]; err != nil || got != want[i] {
				t.Errorf("%q for release %d: %q, want %q, %v", text, release, got, want[i], err)
			}
		}
		if name := c.ImpliedRP; name != "" && c.RPHypervisors[name] == "" {
			t.Errorf("%q: the options' own value has changed: %v", text, c.RPHypervisors)
		}
	}
	if c := configurations(load(t, "[ovs]\nbridge_mappings = p1:br-1\n"), "machine"); c.RPHypervisors["br-1"] != "machine" || c.TunnelTypes == nil || c.Extensions == nil {
		t.Errorf("%+v", c)
	}
}
