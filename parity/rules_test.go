// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
)

// TestRules: two runs that differ in ids, in the numbers of zones, in the order of rules and in the spelling of MACs have the same lines.
func TestRules(t *testing.T) {
	lines := func(port, group, zone, rules string) []string {
		t.Helper()
		n := NewNames()
		n.Text(port, "A")
		n.Bridged(port, "A")
		n.Group(group, "G1")
		var s iptables.State
		var err error
		if s.Rules[0], err = iptables.ParseRules("*filter\n:INPUT ACCEPT [1:2]\n:neutron-openvswi-local - [0:0]\n:neutron-openvswi-i" + port[:10] + " - [0:0]\n" + rules + "COMMIT\n*raw\n:neutron-openvswi-PREROUTING -\n:patchbay-zones -\n" +
			"-A neutron-openvswi-PREROUTING -i qvb" + port[:11] + ` -m comment --comment "Set zone for ` + port + `" -j CT --zone ` + zone + "\n" +
			"-A patchbay-zones -m physdev --physdev-in tap" + port[3:14] + " -j CT --zone " + zone + "\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
		if s.Sets, err = iptables.ParseSets("create " + iptables.SetName(group, 4) + " hash:net family inet hashsize 64 maxelem 65536\nadd " + iptables.SetName(group, 4) + " 10.0.0.1\n"); err != nil {
			t.Fatal(err)
		}
		return n.Rules(&s)
	}
	want := []string{
		"ipset NIPv4-G1 10.0.0.1/32",
		"ipset NIPv4-G1 hash:net inet",
		"iptables filter -A neutron-openvswi-i-A -m mac --mac-source fa:16:3e:00:00:0a -j RETURN",
		"iptables filter -A neutron-openvswi-i-A -p tcp -j RETURN",
		"iptables filter -N neutron-openvswi-local",
		"iptables raw -A neutron-openvswi-PREROUTING -i qvb-A -j CT --zone A",
		"iptables raw -A patchbay-zones -m physdev --physdev-in note-A -j CT --zone A",
	}
	const first, second = "5e0b7a10-33c2-4f5e-9d1a-000000000001", "911d92f9-da9c-41f6-a519-123456789abc"
	for _, have := range [][]string{
		lines(first, second, "4097", "-A neutron-openvswi-i5e0b7a10-3 -p tcp -j RETURN\n-A neutron-openvswi-i5e0b7a10-3 -m mac --mac-source FA:16:3E:00:00:0A -j RETURN\n"),
		lines(second, first, "4111", "-A neutron-openvswi-i911d92f9-d -m mac --mac-source fa:16:3e:00:00:0a -j RETURN\n-A neutron-openvswi-i911d92f9-d -p tcp -j RETURN\n"),
	} {
		if diff := cmp.Diff(want, have); diff != "" {
			t.Error(diff)
		}
	}
}
