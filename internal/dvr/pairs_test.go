// SPDX-License-Identifier: Apache-2.0

package dvr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Routed packets reach the MAC of an address pair, below the MACs that ports have themselves, and a pair of a whole network has none.
func TestAddressPairsAreRoutedTo(t *testing.T) {
	pair := func(mac neutron.MAC, ip string) neutron.AddressPair {
		p, err := neutron.ParsePrefix(ip)
		if err != nil {
			t.Fatal(err)
		}
		return neutron.AddressPair{MAC: mac, IP: p}
	}
	virtual, wide, other := macOf("vip"), macOf("net"), macOf("six")
	c := newCloud(t)
	c.start("gw4", "vm1", "vm2", "sn4")
	c.macs("hv1", "me", "hv2", "you")
	c.pairs = map[string][]neutron.AddressPair{
		"vm1": {pair(virtual, "10.0.0.100"), pair(virtual, "10.0.0.101"), pair(macOf("vm2"), "10.0.0.102"), pair(wide, "10.0.0.0/24"), pair(other, "fd00::100"), pair(macOf("vm1"), "10.0.0.103")},
		"sn4": {pair(macOf("snp"), "10.0.0.104")},
	}
	c.answer("gw4", "tunnel", ownerGateway, "s4", "10.0.0.1")
	c.answer("vm1", "tunnel", "compute:nova", "s4", "10.0.0.11")
	c.answer("vm2", "tunnel", "compute:nova", "s4", "10.0.0.12")
	c.answer("sn4", "tunnel", ownerSNAT, "s4", "10.0.0.5")
	has := func(table string, priority int, mac neutron.MAC) int {
		return strings.Count(c.dump(), fmt.Sprintf("br-int table=%s,priority=%d,dl_vlan=TUNNEL,dl_dst=%s,", table, priority, mac))
	}
	for _, table := range []string{"1", "60"} {
		for _, want := range []struct {
			what     string
			priority int
			mac      neutron.MAC
			flows    int
		}{
			{"its own MAC", 20, macOf("vm1"), 1}, {"a pair of its own MAC", 19, macOf("vm1"), 0}, {"a pair", 19, virtual, 1}, {"a pair, as its own", 20, virtual, 0},
			{"another port", 20, macOf("vm2"), 1}, {"a pair with the MAC of another port", 19, macOf("vm2"), 1}, {"a pair of a network", 19, wide, 0},
			{"a pair of the other IP version", 19, other, 0}, {"a pair of a SNAT port", 19, macOf("snp"), 0},
		} {
			if got := has(table, want.priority, want.mac); got != want.flows {
				t.Errorf("table %s, %s: %d flows, want %d", table, want.what, got, want.flows)
			}
		}
	}
	c.pairs = nil
	c.answer("vm1", "tunnel", "compute:nova", "s4", "10.0.0.11")
	if n := has("1", 19, virtual) + has("60", 19, virtual); n != 0 {
		t.Errorf("%d flows of a pair that is gone", n)
	}
}
