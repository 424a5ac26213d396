// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// ErrNotFound is returned for objects that do not exist, ErrInUse for those that others need.
var (
	ErrNotFound = errors.New("there is no such object")
	ErrInUse    = errors.New("it is in use")
)

func notFound(what, id string) error { return fmt.Errorf("%s %s: %w", what, id, ErrNotFound) }

// NetworkSpec are the attributes of a network to be created or changed; what is nil is left to the server, or as it is.
type NetworkSpec struct {
	Name         *string   `json:"name"`
	Project      *string   `json:"tenant_id"`
	MTU          *int      `json:"mtu"`
	External     *bool     `json:"router:external"`
	Shared       *bool     `json:"shared"`
	PortSecurity *bool     `json:"port_security_enabled"`
	Segments     []Segment `json:"segments"`
	Segment                // of a network with one
}

// CreateNetwork makes a network, vxlan unless it says otherwise, and with the first one of a project the default group.
func (s *Region) CreateNetwork(ctx context.Context, spec NetworkSpec) (n *Network, err error) {
	err = s.do(ctx, func() error {
		n = &Network{
			ID: s.newID(), Name: value(spec.Name), Project: value(spec.Project), PortSecurity: spec.PortSecurity == nil || *spec.PortSecurity,
			External: value(spec.External), Shared: value(spec.Shared), stamp: born(),
		}
		n.Revision = 1
		list := spec.Segments
		if len(list) == 0 {
			list = []Segment{spec.Segment}
		}
		for _, seg := range list {
			seg.ID = s.newID()
			if seg.NetworkType == "" {
				seg.NetworkType = "vxlan"
			}
			if seg.SegmentationID == 0 && (seg.tunnelled() || seg.NetworkType == "vlan") {
				// From the end of the range that the lab gives to the real server, so that chosen ones are not met.
				s.segments[seg.NetworkType]++
				seg.SegmentationID = 1001 - s.segments[seg.NetworkType]
				if seg.NetworkType == "vlan" {
					seg.SegmentationID = 300 - s.segments[seg.NetworkType]
				}
			}
			n.Segments = append(n.Segments, &seg)
		}
		n.MTU = mtu(n.Segments)
		if spec.MTU != nil {
			n.MTU = *spec.MTU
		}
		s.networks[n.ID] = n
		s.defaultGroup(n.Project)
		s.pushed("Network", n.ID)
		return nil
	})
	return n, err
}

// mtu leaves room for what the segments' tunnels add.
func mtu(list []*Segment) int {
	least := 1500
	for _, s := range list {
		switch s.NetworkType {
		case "vxlan", "geneve":
			least = min(least, 1450)
		case "gre":
			least = min(least, 1458)
		}
	}
	return least
}

// UpdateNetwork changes a network.
func (s *Region) UpdateNetwork(ctx context.Context, id string, spec NetworkSpec) error {
	return s.do(ctx, func() error {
		n := s.networks[id]
		if n == nil {
			return notFound("network", id)
		}
		set(&n.Name, spec.Name)
		set(&n.MTU, spec.MTU)
		set(&n.External, spec.External)
		set(&n.Shared, spec.Shared)
		set(&n.PortSecurity, spec.PortSecurity)
		if spec.SegmentationID != 0 {
			n.Segments[0].SegmentationID = spec.SegmentationID
		}
		n.touch()
		for _, p := range s.onNetwork[id] {
			p.wire = nil // it shows the segment
		}
		s.pushed("Network", n.ID)
		return nil
	})
}

// DeleteNetwork deletes a network without ports, and its subnets.
func (s *Region) DeleteNetwork(ctx context.Context, id string) error {
	return s.do(ctx, func() error {
		n := s.networks[id]
		switch {
		case n == nil:
			return notFound("network", id)
		case len(s.onNetwork[id]) > 0:
			return fmt.Errorf("network %s: %w", id, ErrInUse)
		}
		for _, sub := range n.Subnets {
			delete(s.subnets, sub.ID)
			delete(s.taken, sub.ID)
			s.pushed("Subnet", sub.ID)
		}
		delete(s.networks, id)
		delete(s.onNetwork, id)
		s.pushed("Network", id)
		return nil
	})
}

// SubnetSpec are the attributes of a subnet.
type SubnetSpec struct {
	Name      string       `json:"name"`
	Project   string       `json:"tenant_id"`
	NetworkID string       `json:"network_id"`
	CIDR      netip.Prefix `json:"cidr"`
	DHCP      *bool        `json:"enable_dhcp"`
}

// CreateSubnet gives a network a range of addresses; the first is the gateway's.
func (s *Region) CreateSubnet(ctx context.Context, spec SubnetSpec) (sub *Subnet, err error) {
	err = s.do(ctx, func() error {
		n := s.networks[spec.NetworkID]
		if n == nil {
			return notFound("network", spec.NetworkID)
		}
		cidr := spec.CIDR.Masked()
		sub = &Subnet{
			ID: s.newID(), Name: spec.Name, Project: spec.Project, NetworkID: n.ID, CIDR: cidr, Gateway: cidr.Addr().Next(),
			DHCP: spec.DHCP == nil || *spec.DHCP, stamp: born(),
		}
		sub.next = sub.Gateway
		n.Subnets = append(n.Subnets, sub)
		n.touch()
		s.subnets[sub.ID] = sub
		s.taken[sub.ID] = map[string]bool{sub.Gateway.String(): true}
		s.pushed("Subnet", sub.ID)
		return nil
	})
	return sub, err
}

// free finds an address of the subnet that nobody has.
func (s *Region) free(sub *Subnet) (netip.Addr, error) {
	for range 2 { // from where the last search ended, and once more from the beginning
		for ip := sub.next.Next(); sub.CIDR.Contains(ip); ip = ip.Next() {
			if last := ip.Next(); !sub.CIDR.Contains(last) && ip.Is4() {
				break // broadcast
			}
			if !s.taken[sub.ID][ip.String()] {
				sub.next = ip
				return ip, nil
			}
		}
		sub.next = sub.CIDR.Addr()
	}
	return netip.Addr{}, fmt.Errorf("subnet %s has no free address", sub.ID)
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
