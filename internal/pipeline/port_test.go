// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// A server that leaves out an address must not stop the agent; what it does say counts.
func TestSendersWithoutAddresses(t *testing.T) {
	mac := neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}
	p := &world.Port{VIF: &world.VIF{MAC: mac}, Details: &neutron.Port{
		FixedIPs:            neutron.List[neutron.FixedIP]{{SubnetID: "s"}},
		AllowedAddressPairs: neutron.List[neutron.AddressPair]{{MAC: neutron.MAC{2}}},
	}}
	macs, ips := Senders(p)
	if len(macs) != 2 || len(ips) != 2 { // the link-local address of each MAC
		t.Errorf("%v, %v", macs, ips)
	}
	for _, ip := range ips {
		if !ip.IsValid() {
			t.Errorf("%v is no prefix", ip)
		}
	}
}
