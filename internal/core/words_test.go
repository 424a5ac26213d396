// SPDX-License-Identifier: Apache-2.0

package core

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
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
}

// TestPortDocument: each field from where it belongs.
func TestPortDocument(t *testing.T) {
	mac, other := neutron.MAC{2, 0, 0, 0, 0, 1}, neutron.MAC{2, 0, 0, 0, 0, 2}
	c := PortCopy{
		port: world.Port{ID: "p", Wiring: world.Wiring{State: world.Wired, Reason: "bound", VLAN: 7}, Groups: []string{"g"}},
		vif:  world.VIF{Name: "tap", OFPort: 5, MAC: mac}, confirmed: report.AdminDown, applied: true, notes: []string{"a\tb"}, filter: true, flows: 3,
	}
	got := c.Document()
	if d := cmp.Diff(inspect.Port{
		ID: "p", State: "wired", Reason: "bound", Interface: "tap", OFPort: 5, VLAN: 7, Filtered: true, Groups: []string{"g"}, Reported: "admin down",
		Applied: true, Flows: 3, MAC: "02:00:00:00:00:01", Notes: []string{inspect.Printable("a\tb")},
	}, got); d != "" {
		t.Error(d)
	}
	for s, want := range map[report.Status]string{report.Unknown: "", report.Up: "up", report.Down: "down", report.AdminDown: "admin down"} {
		c.confirmed = s
		if got := c.Document().Reported; got != want {
			t.Errorf("%d: %q, want %q", s, got, want)
		}
	}
	c.vif.MAC = neutron.MAC{}
	if got := c.Document().MAC; got != "" {
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
	got = c.Document()
	if got.Role != "DHCP" || got.Name != "web" || got.Owner != "network:dhcp" || got.Device != "d" || got.Status != "ACTIVE" || got.Revision != 9 ||
		got.Network != "n" || got.MAC != other.String() || !slices.Equal(got.Addresses, []string{"10.0.0.1"}) || got.Secured != c.port.Details.PortSecurityEnabled() {
		t.Errorf("%+v", got)
	}
	if len(got.Pairs) != 2 || got.Pairs[0].MAC != other.String() || got.Pairs[1].MAC != mac.String() || got.Pairs[0].IP[:8] != "10.0.0.9" {
		t.Errorf("pairs %+v", got.Pairs)
	}
	c.port.Wiring.Segment, c.segment = world.SegmentKey{Network: "m", ID: 3}, world.Segment{Key: world.SegmentKey{Network: "m", ID: 3}, Type: "vxlan"}
	if got = c.Document(); got.Network != "m" || got.Segment != "vxlan 3" {
		t.Errorf("%+v", got)
	}
}
