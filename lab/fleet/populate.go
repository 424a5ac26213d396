// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/patchbay-sdn/patchbay/lab/sim"
	"github.com/patchbay-sdn/patchbay/lab/sim/region"
)

// release is that of the server.
const release = 29

// populate makes projects, hosts and ports, and an external network, as regions have.
func (f *Fleet) populate(ctx context.Context) error {
	name, admin := "common", "admin"
	group, err := f.server.CreateGroup(ctx, region.GroupSpec{Name: &name, Project: &admin})
	if err != nil {
		return err
	}
	f.common = group.ID
	outside, yes := "external", true
	if _, err := f.server.CreateNetwork(ctx, sim.NetworkSpec{
		Name: &outside, Project: &admin, External: &yes, Segment: sim.Segment{NetworkType: vlan, PhysicalNetwork: physnet, SegmentationID: 4094},
	}); err != nil {
		return err
	}
	var p *project
	for n := range f.cfg.Agents {
		if n%f.cfg.Span == 0 {
			if p, err = f.newProject(ctx, n/f.cfg.Span); err != nil {
				return err
			}
		}
		h := newHost(n, p, f.cfg.Network)
		f.hosts, p.hosts = append(f.hosts, h), append(p.hosts, h)
		f.server.AddAgent(h.name, h.ip)
		for range f.cfg.Ports {
			v, err := f.create(ctx, h, p.free())
			if err != nil {
				return err
			}
			// As before a restart of all agents. Were they all new, each would be told to all hosts, and most of a start would be that.
			if err := f.server.SetStatus(ctx, v.id, "ACTIVE"); err != nil {
				return err
			}
			h.number(v)
			h.plug(v)
			h.vms = append(h.vms, v)
		}
	}
	return nil
}

func (f *Fleet) newProject(ctx context.Context, n int) (*project, error) {
	p := &project{name: fmt.Sprintf("project-%d", n), used: map[netip.Addr]bool{}}
	net, err := f.server.CreateNetwork(ctx, sim.NetworkSpec{Name: &p.name, Project: &p.name, Segment: f.segment(n)})
	if err != nil {
		return nil, err
	}
	off := false
	p.cidr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 0}), 24)
	if _, err := f.server.CreateSubnet(ctx, region.SubnetSpec{Project: p.name, NetworkID: net.ID, CIDR: p.cidr, DHCP: &off}); err != nil {
		return nil, err
	}
	group, err := f.server.CreateGroup(ctx, region.GroupSpec{Name: &p.name, Project: &p.name})
	if err != nil {
		return nil, err
	}
	p.network, p.group = net.ID, group.ID
	// Who has the group may talk to who has it.
	_, err = f.server.CreateRule(ctx, region.RuleSpec{GroupID: group.ID, Direction: "ingress", EtherType: "IPv4", RemoteGroup: group.ID})
	return p, err
}

// segment is that of the n-th network.
func (f *Fleet) segment(n int) sim.Segment {
	if f.cfg.Network == vxlan {
		return sim.Segment{NetworkType: vxlan, SegmentationID: n + 1}
	}
	return sim.Segment{NetworkType: vlan, PhysicalNetwork: physnet, SegmentationID: 1 + n%4093}
}

// free is an address of the project that nothing has.
func (p *project) free() netip.Addr {
	for range 250 {
		p.next = p.next%250 + 1
		b := p.cidr.Addr().As4()
		b[3] = byte(1 + p.next)
		if ip := netip.AddrFrom4(b); !p.used[ip] {
			p.used[ip] = true
			return ip
		}
	}
	return netip.Addr{} // the server refuses it
}

// create makes a port with an address, bound to a host.
func (f *Fleet) create(ctx context.Context, h *host, ip netip.Addr) (*vm, error) {
	owner, groups, addresses := "compute:nova", []string{h.of.group, f.common}, []region.FixedIP{{IP: ip}}
	p, err := f.server.CreatePort(ctx, sim.PortSpec{
		Project: &h.of.name, NetworkID: &h.of.network, Host: &h.name, Groups: &groups, DeviceOwner: &owner, FixedIPs: &addresses,
	})
	if err != nil {
		return nil, err
	}
	return &vm{id: p.ID, mac: p.MAC, ip: p.FixedIPs[0].IP}, nil
}
