// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// What Neutron's API does not let through, and the edges of what it does: a rule that cannot be expressed allows nothing.
func TestMatches(t *testing.T) {
	n := func(i int) *int { return &i }
	for _, tc := range []struct {
		name string
		rule world.Rule
		want string
	}{
		{"port 0 on", world.Rule{IPVersion: 4, Protocol: 6, Min: n(0), Max: n(3)}, "tcp,tp_dst=0x0/0xfffc"},
		{"last port", world.Rule{IPVersion: 6, Protocol: 17, Min: n(65535), Max: n(65535)}, "udp6,tp_dst=65535"},
		{"beyond the last port", world.Rule{IPVersion: 4, Protocol: 6, Min: n(65535), Max: n(65536)}, ""},
		{"below the first port", world.Rule{IPVersion: 4, Protocol: 6, Min: n(-1), Max: n(1)}, ""},
		{"backwards", world.Rule{IPVersion: 4, Protocol: 6, Min: n(2), Max: n(1)}, ""},
		{"one end", world.Rule{IPVersion: 4, Protocol: 132, Min: n(0x8000)}, "sctp,tp_dst=0x8000/0x8000"},
		{"other end", world.Rule{IPVersion: 4, Protocol: 132, Max: n(1)}, "sctp,tp_dst=1"},
		{"ports of a protocol that has none", world.Rule{IPVersion: 4, Protocol: 47, Min: n(1), Max: n(2)}, "ip,nw_proto=47"},
		{"last type and code", world.Rule{IPVersion: 4, Protocol: 1, Min: n(255), Max: n(255)}, "icmp,icmp_type=255,icmp_code=255"},
		{"beyond the last type", world.Rule{IPVersion: 4, Protocol: 1, Min: n(256)}, ""},
		{"beyond the last code", world.Rule{IPVersion: 6, Protocol: 58, Min: n(1), Max: n(256)}, ""},
		{"below the first type", world.Rule{IPVersion: 6, Protocol: 58, Min: n(-1)}, ""},
		{"protocol 0", world.Rule{IPVersion: 6, Protocol: 0}, "ipv6,nw_proto=0"},
		{"prefix", world.Rule{IPVersion: 6, Direction: world.Egress, Protocol: world.AnyProtocol, Prefix: netip.MustParsePrefix("fd00::/8")}, "ipv6,ipv6_dst=fd00::/8"},
		{"prefix of the other version", world.Rule{IPVersion: 6, Protocol: world.AnyProtocol, Prefix: netip.MustParsePrefix("10.0.0.0/8")}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, m := range matches(of.Match{}, &tc.rule) {
				got = append(got, m.String())
			}
			if have := strings.Join(got, " "); have != tc.want {
				t.Errorf("%q, want %q", have, tc.want)
			}
		})
	}
}
