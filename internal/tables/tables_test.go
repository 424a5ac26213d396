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
	for _, k := range []Kind{Physical, Integration, Tunnel, Integration21} {
		if got, ok := ParseKind(k.String()); !ok || got != k {
			t.Errorf("%v", k)
		}
	}
	only59 := func(t uint8) bool { return t == 59 }
	if k := Integration.Refine(only59); k != Integration21 || k.Name(59) != "PACKET_RATE_LIMIT" || k.Name(58) != "" || k.Name(60) != "TRANSIENT" {
		t.Errorf("%v", k)
	}
	if n, _ := Integration21.Number("packet_rate_limit"); n != 59 {
		t.Errorf("table %d", n)
	}
	if k := Tunnel.Refine(only59); k != Tunnel {
		t.Errorf("%v", k)
	}
	if _, ok := ParseKind("nothing"); ok {
		t.Error("a kind of nothing")
	}
}
