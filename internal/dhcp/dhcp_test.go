// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/json"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

func newDHCP(cfg Config) *DHCP {
	return New(cfg)(world.New(world.Config{IntegrationBridge: "br-int"})).(*DHCP)
}

// TestSnapshot: what the server said is known after a restart, without a server, and is asked for again.
func TestSnapshot(t *testing.T) {
	before := newDHCP(Config{})
	n := before.use("n")
	n.known, n.listed, n.network = true, true, neutron.Network{ID: "n", MTU: 1450, DNSDomain: "example.org."}
	s := subnet4()
	s.SegmentID, s.AddressMode = "seg", ""
	n.subnets["s4"] = s
	n.ports["p"] = true
	data, err := json.Marshal(before.Save())
	if err != nil {
		t.Fatal(err)
	}
	after := newDHCP(Config{})
	if err := after.Load(data); err != nil {
		t.Fatal(err)
	}
	got := after.use("n")
	if !got.known || !got.listed || got.network.MTU != 1450 || got.network.DNSDomain != "example.org." {
		t.Errorf("%+v", got)
	}
	if a, b := mustJSON(t, got.subnets["s4"]), mustJSON(t, s); a != b {
		t.Errorf("subnet %s, want %s", a, b)
	}
	if len(after.Missing()) != 2 {
		t.Errorf("asked for: %v, want the network and its subnets", after.Missing())
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func subnetOf(t *testing.T, id string, revision int64, dhcp bool) neutron.Primitive {
	t.Helper()
	return neutron.Primitive{Name: "Subnet", Data: []byte(mustJSON(t, map[string]any{
		"id": id, "network_id": "n", "ip_version": 4, "cidr": "10.5.0.0/24", "enable_dhcp": dhcp, "revision_number": revision,
	}))}
}

// TestPushesAndAnswersCross: a push that comes while the server is asked is not undone by an older answer, and a subnet that is gone goes.
func TestPushesAndAnswersCross(t *testing.T) {
	d := newDHCP(Config{})
	n := d.use("n")
	push := func(event neutron.Event, o neutron.Primitive) {
		t.Helper()
		if err := d.OnPush(&neutron.Push{Kind: neutron.KindSubnet, Event: event, Objects: []neutron.Primitive{o}}); err != nil {
			t.Fatal(err)
		}
	}
	pulled := func(found ...neutron.Primitive) {
		t.Helper()
		if err := d.OnPulled(neutron.KindSubnet, []string{"n"}, found); err != nil {
			t.Fatal(err)
		}
	}
	asked := func() bool { return d.missing[extension.Item{Kind: neutron.KindSubnet, ID: "n", By: "network_id"}] }
	push(neutron.Updated, subnetOf(t, "s", 5, true))
	pulled(subnetOf(t, "s", 4, false))
	if !n.subnets["s"].EnableDHCP || !n.listed || !asked() {
		t.Errorf("after an older answer: %+v, listed %v, asked %v", n.subnets, n.listed, asked())
	}
	pulled(subnetOf(t, "s", 5, true), subnetOf(t, "gone", 1, true))
	if len(n.subnets) != 2 || asked() {
		t.Errorf("after the answer that counts: %+v, asked %v", n.subnets, asked())
	}
	push(neutron.Deleted, subnetOf(t, "gone", 1, true))
	if len(n.subnets) != 1 {
		t.Errorf("after a deletion: %+v", n.subnets)
	}
	d.Resync()
	pulled()
	if len(n.subnets) != 0 || asked() {
		t.Errorf("after an answer without it: %+v", n.subnets)
	}
}

// TestUnknownSubnet: a subnet that a port names and that was never told is asked for, once.
func TestUnknownSubnet(t *testing.T) {
	d := newDHCP(Config{})
	n := d.use("n")
	n.known, n.listed = true, true
	clear(d.missing)
	port := &neutron.Port{NetworkID: "n", FixedIPs: neutron.List[neutron.FixedIP]{{SubnetID: "new"}}}
	if d.seek(n, port); len(d.missing) != 1 {
		t.Errorf("asked for: %v, want the subnets", d.Missing())
	}
	if err := d.OnPulled(neutron.KindSubnet, []string{"n"}, nil); err != nil {
		t.Fatal(err)
	}
	if d.seek(n, port); len(d.missing) != 0 {
		t.Errorf("asked for: %v, though the server does not know it", d.Missing())
	}
}

// TestMetersAreShared: no two extensions give out the same id, and an id that is written down on a port is another's.
func TestMetersAreShared(t *testing.T) {
	d := newDHCP(Config{})
	d.w.MaxMeters["br-int"] = 3
	other := world.MeterUse{Extension: "qos", For: "a"}
	taken := d.w.MeterIDs.Choose(other, 3, func(uint32) bool { return false })
	for _, id := range []string{"p", "q", "r"} {
		d.meters.Number(id)
	}
	if d.meters.ID("p") == 0 || d.meters.ID("q") == 0 || d.meters.ID("p") == d.meters.ID("q") || d.meters.ID("p") == taken || d.meters.ID("q") == taken || d.meters.ID("r") != 0 {
		t.Errorf("meters %v beside %d of 3", d.meters, taken)
	}
	d.meters.Release("p")
	if d.meters.Number("r"); d.meters.ID("r") == 0 {
		t.Error("the meter of a port that is gone is not given out again")
	}
	d.w.MaxMeters["br-int"] = 0
	if d.meters.Number("r"); d.meters.ID("r") != 0 {
		t.Error("a switch without meters has one")
	}
}
