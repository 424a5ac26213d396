// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net/netip"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

func TestAllows(t *testing.T) {
	s := someServer()
	s.groups["g"] = append(s.groups["g"],
		rule("r4", "g", "tcp ports=22-23 prefix=10.8.0.0/16"), rule("r5", "g", "icmp type=8"), rule("r6", "g", "egress tcp ports=443-443"),
		rule("r7", "g", "addresses=list sctp"), rule("r8", "g", "IPv6 tcp"), rule("r9", "g", "prefix=10.6.0.0/16"))
	s.addresses["list"] = neutron.AddressGroup{ID: "list", Addresses: neutron.List[neutron.Address]{
		{Prefix: neutron.Prefix{Prefix: netip.MustParsePrefix("10.7.0.0/24")}},
	}}
	w := wiredWorld(s)
	p := w.Port("p1")
	if !w.Filtered(p) {
		t.Fatalf("not filtered: %+v", p.Wiring)
	}
	const own = "10.0.0.1"
	for _, c := range []struct {
		name     string
		src, dst string
		protocol uint8
		port     uint16
		kind     uint8
		want     bool
	}{
		{"any source", "10.3.0.1", own, 17, 5, 0, true},
		{"no rule for the protocol", "10.3.0.1", own, 47, 0, 0, false},
		{"a member", "10.1.0.1", own, 6, 80, 0, true},
		{"a member at another port", "10.1.0.1", own, 6, 81, 0, false},
		{"no member", "10.1.0.9", own, 6, 80, 0, false},
		{"the first port of a range", "10.8.1.1", own, 6, 22, 0, true},
		{"the last", "10.8.1.1", own, 6, 23, 0, true},
		{"the one after", "10.8.1.1", own, 6, 24, 0, false},
		{"the one before", "10.8.1.1", own, 6, 21, 0, false},
		{"outside of the prefix", "10.9.1.1", own, 6, 22, 0, false},
		{"type of ICMP", "10.9.1.1", own, 1, 0, 8, true},
		{"another type", "10.9.1.1", own, 1, 0, 13, false},
		{"out", own, "10.9.1.1", 6, 443, 0, true},
		{"out, by a rule for in", own, "10.1.0.1", 6, 80, 0, false},
		{"in, by a rule for out", "10.9.1.1", own, 6, 443, 0, false},
		{"in an address group", "10.7.0.200", own, 132, 9, 0, true},
		{"not in an address group", "10.7.1.200", own, 132, 9, 0, false},
		{"any protocol", "10.6.0.1", own, 47, 0, 0, true},
		{"nobody's", "10.1.0.1", "10.1.0.2", 17, 5, 0, false},
	} {
		conn := Connection{
			Src: netip.MustParseAddr(c.src), Dst: netip.MustParseAddr(c.dst), Protocol: c.protocol, DstPort: c.port, ICMPType: c.kind,
		}
		if got := w.Allows(p.Wiring.VLAN, conn); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if w.Allows(p.Wiring.VLAN+1, conn) {
			t.Errorf("%s: in another VLAN too", c.name)
		}
	}
}
