// SPDX-License-Identifier: Apache-2.0

package floor

import (
	"net/netip"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// TestAdvertisementsAreChecked: the flows are those of the agent, in which what a port says of its addresses goes on to the check of its MAC, as its other packets do.
func TestAdvertisementsAreChecked(t *testing.T) {
	p := &port{number: 7, mac: neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}, details: &neutron.Port{}}
	p.details.FixedIPs = []neutron.FixedIP{{IP: netip.MustParseAddr("192.0.2.1")}, {IP: netip.MustParseAddr("2001:db8::1")}}
	claims := 0
	for _, e := range genuine(p) {
		f, err := e.Flow()
		if err != nil {
			t.Fatal(err)
		}
		if f.Table != 24 {
			continue
		}
		claims++
		if want := entry(24, 2, 25, f.Match); !e.SameActions(want) {
			t.Errorf("%s: want goto_table:25", e)
		}
	}
	if claims != 3 { // with the link-local address
		t.Errorf("%d addresses are claimed, want 3", claims)
	}
}
