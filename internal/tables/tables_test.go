// SPDX-License-Identifier: Apache-2.0

package tables

import "testing"

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		bridge string
		table  uint8
		name   string
	}{
		{"br-int", 60, "TRANSIENT"}, {"br-int", 82, "RULES_INGRESS"}, {"br-tun", 20, "UCAST_TO_TUN"},
		{"br-ex", 2, "LOCAL_VLAN_TRANSLATION"}, {"br-int", 200, ""},
	} {
		k := KindOf(tc.bridge)
		if got := k.Name(tc.table); got != tc.name {
			t.Errorf("%s table %d is %q, not %q", tc.bridge, tc.table, got, tc.name)
		}
		if tc.name == "" {
			continue
		}
		if n, ok := k.Number(tc.name); !ok || n != tc.table {
			t.Errorf("%s %s is %d, not %d", tc.bridge, tc.name, n, tc.table)
		}
	}
	for _, k := range []Kind{Physical, Integration, Tunnel} {
		if got, ok := ParseKind(k.String()); !ok || got != k {
			t.Errorf("%v", k)
		}
	}
	if _, ok := ParseKind("nothing"); ok {
		t.Error("a kind of nothing")
	}
}
