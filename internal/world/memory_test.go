// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net/netip"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// TestStationsAreForgottenWithoutL2Population: an operator has switched it off, and the memory is from before.
func TestStationsAreForgottenWithoutL2Population(t *testing.T) {
	one, id := 1, 7
	before := plugged("br-int", &one, ovsdb.Interface{})
	before.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
	before.Resolve()
	before.Tunnels.FDBAdd(&neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"n1": {
		NetworkType: "vxlan", SegmentationID: &id, Ports: map[netip.Addr][]neutron.FDBEntry{
			netip.MustParseAddr("10.0.0.2"): {{IP: netip.IPv4Unspecified()}, {MAC: neutron.MAC{2}, IP: netip.MustParseAddr("192.168.0.2")}},
		},
	}}})
	before.Resolve()
	m := before.Memory()
	for l2pop, want := range map[bool]int{true: 1, false: 0} {
		cfg := config()
		cfg.L2Population = l2pop
		w := New(cfg)
		w.Recall(m)
		pluggedInto(w, "br-int", &one, ovsdb.Interface{})
		w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
		w.Resolve()
		if got := w.Segments.All(); len(got) != 1 || got[0].StationCount() != want {
			t.Errorf("with L2 population %v: %d segments, want one with %d stations: %+v", l2pop, len(got), want, got)
		}
	}
}

// TestTakeRecalled: what is taken is gone, and all of it is when the server has told everything.
func TestTakeRecalled(t *testing.T) {
	w, recalled := New(Config{}), map[string]int{"a": 1, "b": 2, "c": 3}
	if got := TakeRecalled(w, recalled, "a"); got != 1 || len(recalled) != 2 {
		t.Errorf("%d, left %v", got, recalled)
	}
	w.Confirmed()
	if got := TakeRecalled(w, recalled, "b"); got != 0 || len(recalled) != 0 {
		t.Errorf("after the server has told everything: %d, left %v", got, recalled)
	}
}
