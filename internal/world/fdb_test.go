// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net/netip"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// TestWithdrawnEntriesEnd: entries that were taken back are not kept for ever.
func TestWithdrawnEntriesEnd(t *testing.T) {
	f, at := newFDB(), time.Unix(1000, 0)
	for n := range byte(100) {
		f.withdraw(netip.MustParseAddr("10.0.0.8"), neutron.FDBEntry{MAC: neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, n}, IP: netip.MustParseAddr("192.168.0.9")}, at)
		at = at.Add(time.Second)
	}
	// They are looked through every lateList at most, and then those of the last one stay.
	if n := len(f.withdrawn); n > 2*int(lateList/time.Second)+2 {
		t.Errorf("%d of 100 are kept", n)
	}
}
