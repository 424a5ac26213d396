// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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
	PortSecurity *bool     `json:"port_security_enabled"`
	Segments     []Segment `json:"segments"`
	Segment                // of a network with one
}

// CreateNetwork makes a network, vxlan unless it says otherwise, and with the first one of a project the default group.
func (s *Server) CreateNetwork(ctx context.Context, spec NetworkSpec) (n *Network, err error) {
	err = s.do(ctx, func() error {
		n = &Network{
			ID: newID(), Name: value(spec.Name), Project: value(spec.Project), PortSecurity: spec.PortSecurity == nil || *spec.PortSecurity,
			stamp: born(),
		}
		n.Revision = 1
		list := spec.Segments
		if len(list) == 0 {
			list = []Segment{spec.Segment}
		}
		for _, seg := range list {
			seg.ID = newID()
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
		s.pushed("Network", n.object())
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
func (s *Server) UpdateNetwork(ctx context.Context, id string, spec NetworkSpec) error {
	return s.do(ctx, func() error {
		n := s.networks[id]
		if n == nil {
			return notFound("network", id)
		}
		set(&n.Name, spec.Name)
		set(&n.MTU, spec.MTU)
		set(&n.PortSecurity, spec.PortSecurity)
		if spec.SegmentationID != 0 {
			n.Segments[0].SegmentationID = spec.SegmentationID
		}
		n.touch()
		for _, p := range s.onNetwork[id] {
			p.wire = nil // it shows the segment
		}
		s.pushed("Network", n.object())
		return nil
	})
}

// DeleteNetwork deletes a network without ports, and its subnets.
func (s *Server) DeleteNetwork(ctx context.Context, id string) error {
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
			s.deleted("Subnet", sub.ID)
		}
		delete(s.networks, id)
		delete(s.onNetwork, id)
		s.deleted("Network", id)
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
func (s *Server) CreateSubnet(ctx context.Context, spec SubnetSpec) (sub *Subnet, err error) {
	err = s.do(ctx, func() error {
		n := s.networks[spec.NetworkID]
		if n == nil {
			return notFound("network", spec.NetworkID)
		}
		cidr := spec.CIDR.Masked()
		sub = &Subnet{
			ID: newID(), Name: spec.Name, Project: spec.Project, NetworkID: n.ID, CIDR: cidr, Gateway: cidr.Addr().Next(),
			DHCP: spec.DHCP == nil || *spec.DHCP, stamp: born(),
		}
		sub.next = sub.Gateway
		n.Subnets = append(n.Subnets, sub)
		n.touch()
		s.subnets[sub.ID] = sub
		s.taken[sub.ID] = map[string]bool{sub.Gateway.String(): true}
		s.pushed("Subnet", sub.object())
		return nil
	})
	return sub, err
}

// free finds an address of the subnet that nobody has.
func (s *Server) free(sub *Subnet) (netip.Addr, error) {
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

// GroupSpec are the attributes of a security group.
type GroupSpec struct {
	Name        *string `json:"name"`
	Project     *string `json:"tenant_id"`
	Description *string `json:"description"`
	Stateful    *bool   `json:"stateful"`
}

// CreateGroup makes a group that lets everything out and nothing in.
func (s *Server) CreateGroup(ctx context.Context, spec GroupSpec) (g *Group, err error) {
	err = s.do(ctx, func() error {
		s.defaultGroup(value(spec.Project))
		g = s.newGroup(value(spec.Name), value(spec.Project), spec.Stateful == nil || *spec.Stateful)
		set(&g.Description, spec.Description)
		s.pushed("SecurityGroup", g.object())
		return nil
	})
	return g, err
}

func (s *Server) newGroup(name, project string, stateful bool) *Group {
	g := &Group{ID: newID(), Name: name, Project: project, Stateful: stateful, stamp: born()}
	g.Revision = 1
	s.groups[g.ID] = g
	for _, kind := range []string{"IPv4", "IPv6"} {
		s.addRule(g, &Rule{ID: newID(), Direction: "egress", EtherType: kind})
	}
	return g
}

func (s *Server) addRule(g *Group, r *Rule) {
	r.GroupID, r.Project, r.stamp = g.ID, g.Project, born()
	g.Rules = append(g.Rules, r)
	s.rules[r.ID] = r
}

// defaultGroup is that of a project: its members may talk to each other.
func (s *Server) defaultGroup(project string) *Group {
	for _, g := range s.groups {
		if g.Default && g.Project == project {
			return g
		}
	}
	g := s.newGroup("default", project, true)
	g.Default, g.Description = true, "Default security group"
	for _, kind := range []string{"IPv4", "IPv6"} {
		s.addRule(g, &Rule{ID: newID(), Direction: "ingress", EtherType: kind, RemoteGroup: g.ID})
	}
	s.pushed("SecurityGroup", g.object())
	return g
}

// UpdateGroup changes a group.
func (s *Server) UpdateGroup(ctx context.Context, id string, spec GroupSpec) error {
	return s.do(ctx, func() error {
		g := s.groups[id]
		if g == nil {
			return notFound("security group", id)
		}
		set(&g.Name, spec.Name)
		set(&g.Description, spec.Description)
		set(&g.Stateful, spec.Stateful)
		g.touch()
		s.pushed("SecurityGroup", g.object())
		return nil
	})
}

// DeleteGroup deletes a group that no port has. Its rules go with it, and no message says so; rules that refer to it as
// their remote group go as well.
func (s *Server) DeleteGroup(ctx context.Context, id string) error {
	return s.do(ctx, func() error {
		g := s.groups[id]
		switch {
		case g == nil:
			return notFound("security group", id)
		case len(s.members[id]) > 0:
			return fmt.Errorf("security group %s: %w", id, ErrInUse)
		}
		for _, r := range g.Rules {
			delete(s.rules, r.ID)
		}
		for _, r := range values(s.rules) {
			if r.RemoteGroup == id {
				s.dropRule(r)
			}
		}
		delete(s.groups, id)
		delete(s.members, id)
		s.deleted("SecurityGroup", id)
		return nil
	})
}

func (s *Server) dropRule(r *Rule) {
	delete(s.rules, r.ID)
	if g := s.groups[r.GroupID]; g != nil {
		g.Rules = slices.DeleteFunc(g.Rules, func(o *Rule) bool { return o == r })
		g.touch()
	}
}

// RuleSpec are the attributes of a rule. Protocol may be a number or a name.
type RuleSpec struct {
	GroupID            string `json:"security_group_id"`
	Direction          string `json:"direction"`
	EtherType          string `json:"ethertype"`
	Protocol           any    `json:"protocol"`
	PortMin            *int   `json:"port_range_min"`
	PortMax            *int   `json:"port_range_max"`
	RemotePrefix       string `json:"remote_ip_prefix"`
	RemoteGroup        string `json:"remote_group_id"`
	RemoteAddressGroup string `json:"remote_address_group_id"`
	Description        string `json:"description"`
}

// CreateRule adds a rule to a group.
func (s *Server) CreateRule(ctx context.Context, spec RuleSpec) (r *Rule, err error) {
	err = s.do(ctx, func() error {
		g := s.groups[spec.GroupID]
		if g == nil {
			return notFound("security group", spec.GroupID)
		}
		r, err = spec.rule()
		if err != nil {
			return err
		}
		s.addRule(g, r)
		g.touch()
		s.pushed("SecurityGroupRule", r.object())
		return nil
	})
	return r, err
}

// rule writes a rule as the real server stores it.
func (spec RuleSpec) rule() (*Rule, error) {
	r := &Rule{
		ID: newID(), Direction: spec.Direction, EtherType: spec.EtherType, PortMin: spec.PortMin, PortMax: spec.PortMax,
		RemoteGroup: spec.RemoteGroup, RemoteAddressGroup: spec.RemoteAddressGroup, Description: spec.Description,
	}
	switch p := spec.Protocol.(type) {
	case string:
		r.Protocol = strings.ToLower(p)
	case float64:
		r.Protocol = strconv.Itoa(int(p))
	case int:
		r.Protocol = strconv.Itoa(p)
	}
	switch strings.ToLower(r.EtherType) {
	case "", "ipv4":
		r.EtherType = "IPv4"
	case "ipv6":
		r.EtherType = "IPv6"
		switch r.Protocol {
		case "icmp", "icmpv6":
			r.Protocol = "ipv6-icmp"
		case "1":
			r.Protocol = "58"
		}
	}
	if r.PortMin != nil && r.PortMax != nil && *r.PortMin == 1 && *r.PortMax == 65535 {
		r.PortMin, r.PortMax = nil, nil
	}
	if spec.RemotePrefix != "" {
		p, err := asPrefix(spec.RemotePrefix)
		if err != nil {
			return nil, err
		}
		r.RemotePrefix = p.String()
	}
	return r, nil
}

// DeleteRule removes a rule.
func (s *Server) DeleteRule(ctx context.Context, id string) error {
	return s.do(ctx, func() error {
		r := s.rules[id]
		if r == nil {
			return notFound("security group rule", id)
		}
		s.dropRule(r)
		s.deleted("SecurityGroupRule", id)
		return nil
	})
}

// CreateAddressGroup makes an address group.
func (s *Server) CreateAddressGroup(ctx context.Context, name, project string, addresses ...string) (g *AddressGroup, err error) {
	err = s.do(ctx, func() error {
		g = &AddressGroup{ID: newID(), Name: name, Project: project, stamp: born()}
		s.addresses[g.ID] = g
		return s.readdressGroup(g, addresses)
	})
	return g, err
}

// SetAddressGroup gives an address group other addresses.
func (s *Server) SetAddressGroup(ctx context.Context, id string, change func(now []string) []string) error {
	return s.do(ctx, func() error {
		g := s.addresses[id]
		if g == nil {
			return notFound("address group", id)
		}
		g.touch()
		return s.readdressGroup(g, change(g.Addresses))
	})
}

func (s *Server) readdressGroup(g *AddressGroup, addresses []string) error {
	list := []string{}
	for _, text := range addresses {
		p, err := asPrefix(text)
		if err != nil {
			return err
		}
		list = append(list, p.String())
	}
	g.Addresses = list
	s.pushed("AddressGroup", g.object())
	return nil
}

// asPrefix reads an address or a range.
func asPrefix(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("reading an address: %w", err)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// DeleteAddressGroup deletes an address group that no rule refers to.
func (s *Server) DeleteAddressGroup(ctx context.Context, id string) error {
	return s.do(ctx, func() error {
		if s.addresses[id] == nil {
			return notFound("address group", id)
		}
		for _, r := range s.rules {
			if r.RemoteAddressGroup == id {
				return fmt.Errorf("address group %s: %w", id, ErrInUse)
			}
		}
		delete(s.addresses, id)
		s.deleted("AddressGroup", id)
		return nil
	})
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
