// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// groupOf makes a host with ten filtered ports on two networks, whose rule refers to a group of so many members elsewhere.
func groupOf(t failer, members int) *cloud {
	c := newCloud(filterConfig())
	one, two := 42, 43
	c.networks = map[string]neutron.Segment{"N1": {NetworkType: "vxlan", SegmentationID: &one}, "N2": {NetworkType: "vxlan", SegmentationID: &two}}
	c.groups["web"] = &neutron.SecurityGroup{ID: "web", Rules: neutron.List[neutron.SecurityGroupRule]{
		{ID: "r1", SecurityGroupID: "web", Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", RemoteGroupID: "m"},
		{ID: "r2", SecurityGroupID: "web", Direction: "egress", EtherType: "IPv4", Protocol: "tcp", RemoteGroupID: "m"},
	}}
	for i := range 10 {
		id := fmt.Sprintf("local%d", i)
		p := &neutron.Port{ID: id, MAC: neutron.MAC{2, 0, 0, 0, 0, byte(i)}, DeviceOwner: "compute:nova", SecurityGroupIDs: []string{"web"}}
		c.bind(p, []string{"N1", "N2"}[i%2])
		c.ports[id] = p
		c.plugInto("tap"+id, 10+i, map[string]string{"iface-id": id, "attached-mac": p.MAC.String()})
	}
	for i := range members {
		id := fmt.Sprintf("member%d", i)
		c.ports[id] = &neutron.Port{
			ID: id, MAC: neutron.MAC{4, 0, 0, 0, byte(i >> 8), byte(i)}, SecurityGroupIDs: []string{"m"},
			FixedIPs: neutron.List[neutron.FixedIP]{{IP: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}},
		}
	}
	c.converge(t)
	return c
}

// change pushes another address of a member, and compiles what follows.
func (c *cloud) change(t failer, n int) []world.Object {
	data := fmt.Sprintf(`{"id":"member0","mac_address":"04:00:00:00:00:00","revision_number":%d,"security_group_ids":["m"],"fixed_ips":[%s]}`,
		n, object(fmt.Sprintf(`{"ip_address":"10.2.0.%d"}`, n%200)))
	push := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: []neutron.Primitive{{Name: "Port", Data: []byte(data)}}}
	if err := c.w.Push(push, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	changed := c.w.Resolve()
	c.compile(t, changed)
	return changed
}

// A member that changes its address costs that address on each network, and nothing else, whatever the size of the group.
func TestMemberChangeCostsOneMember(t *testing.T) {
	for _, members := range []int{1, 1000} {
		c := groupOf(t, members)
		changed := c.change(t, 1)
		for _, o := range changed {
			if _, ok := o.(world.PeerObject); !ok {
				t.Errorf("%d members: %s is compiled again", members, o)
			}
		}
		if len(changed) != 4 { // the old and the new address on two networks
			t.Errorf("%d members: %d objects are compiled again: %v", members, len(changed), changed)
		}
		flows := 0
		for _, o := range changed {
			flows += len(c.host.flows[o])
		}
		if flows != 8 { // two networks, two directions, two states
			t.Errorf("%d members: %d flows", members, flows)
		}
	}
}

func BenchmarkMemberChange(b *testing.B) {
	for _, members := range []int{10, 100, 1000, 10000} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			c := groupOf(b, members)
			n := 0
			for b.Loop() {
				n++
				c.change(b, n)
			}
		})
	}
}

// BenchmarkGroup compiles a host with a group of so many members from nothing.
func BenchmarkGroup(b *testing.B) {
	for _, members := range []int{1000, 10000} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			c := groupOf(b, members)
			b.ReportAllocs()
			for b.Loop() {
				c.compile(b, c.w.Everything())
			}
		})
	}
}
