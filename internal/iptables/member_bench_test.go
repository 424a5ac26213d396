// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// BenchmarkMember is one member more or less of a group of 10,000, to which rules of 500 ports refer.
func BenchmarkMember(b *testing.B) {
	f := New(Config{})
	for i := range 500 {
		f.Set(Port{
			ID: fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i), FixedIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})},
			Rules: []world.Rule{{Direction: world.Ingress, IPVersion: 4, Remote: "g"}, {Direction: world.Egress, IPVersion: 4}, {Direction: world.Egress, IPVersion: 6}},
		})
	}
	members := make([]netip.Prefix, 10_001)
	for i := range members {
		members[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)
	}
	f.SetMembers("g", members)
	f.Done(f.Next(State{Rules: [2]Ruleset{{}, {}}}, true), nil)
	n := len(members)
	for b.Loop() {
		n ^= 1 // 10,000 or 10,001
		f.SetMembers("g", members[:n])
		c, ok := f.NextMembers()
		if !ok || c.Sets == "" {
			b.Fatalf("%+v, %v", c.Sets, ok)
		}
		f.Done(c, nil)
	}
}
