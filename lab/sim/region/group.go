// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// GroupSpec are the attributes of a security group.
type GroupSpec struct {
	Name        *string `json:"name"`
	Project     *string `json:"tenant_id"`
	Description *string `json:"description"`
	Stateful    *bool   `json:"stateful"`
}

// CreateGroup makes a group that lets everything out and nothing in.
func (s *Region) CreateGroup(ctx context.Context, spec GroupSpec) (g *Group, err error) {
	err = s.do(ctx, func() error {
		s.defaultGroup(value(spec.Project))
		g = s.newGroup(value(spec.Name), value(spec.Project), spec.Stateful == nil || *spec.Stateful)
		set(&g.Description, spec.Description)
		s.pushed("SecurityGroup", g.ID)
		return nil
	})
	return g, err
}

func (s *Region) newGroup(name, project string, stateful bool) *Group {
	g := &Group{ID: s.newID(), Name: name, Project: project, Stateful: stateful, stamp: born()}
	g.Revision = 1
	s.groups[g.ID] = g
	for _, kind := range []string{"IPv4", "IPv6"} {
		s.addRule(g, &Rule{ID: s.newID(), Direction: "egress", EtherType: kind})
	}
	return g
}

func (s *Region) addRule(g *Group, r *Rule) {
	r.GroupID, r.Project, r.stamp = g.ID, g.Project, born()
	g.Rules = append(g.Rules, r)
	s.rules[r.ID] = r
}

// defaultGroup is that of a project: its members may talk to each other.
func (s *Region) defaultGroup(project string) *Group {
	for _, g := range s.groups {
		if g.Default && g.Project == project {
			return g
		}
	}
	g := s.newGroup("default", project, true)
	g.Default, g.Description = true, "Default security group"
	for _, kind := range []string{"IPv4", "IPv6"} {
		s.addRule(g, &Rule{ID: s.newID(), Direction: "ingress", EtherType: kind, RemoteGroup: g.ID, inDefault: true})
	}
	s.pushed("SecurityGroup", g.ID)
	return g
}

// UpdateGroup changes a group.
func (s *Region) UpdateGroup(ctx context.Context, id string, spec GroupSpec) error {
	return s.do(ctx, func() error {
		g := s.groups[id]
		if g == nil {
			return notFound("security group", id)
		}
		set(&g.Name, spec.Name)
		set(&g.Description, spec.Description)
		set(&g.Stateful, spec.Stateful)
		g.touch()
		s.pushed("SecurityGroup", g.ID)
		return nil
	})
}

// DeleteGroup deletes a group that no port has. Its rules go with it, and no message says so; rules that refer to it as
// their remote group go as well.
func (s *Region) DeleteGroup(ctx context.Context, id string) error {
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
		s.pushed("SecurityGroup", id)
		return nil
	})
}

func (s *Region) dropRule(r *Rule) {
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
func (s *Region) CreateRule(ctx context.Context, spec RuleSpec) (r *Rule, err error) {
	err = s.do(ctx, func() error {
		g := s.groups[spec.GroupID]
		if g == nil {
			return notFound("security group", spec.GroupID)
		}
		r, err = spec.rule()
		if err != nil {
			return err
		}
		r.ID = s.newID()
		s.addRule(g, r)
		g.touch()
		s.pushed("SecurityGroupRule", r.ID)
		return nil
	})
	return r, err
}

// rule writes a rule as the real server stores it.
func (spec RuleSpec) rule() (*Rule, error) {
	r := &Rule{
		Direction: spec.Direction, EtherType: spec.EtherType, PortMin: spec.PortMin, PortMax: spec.PortMax,
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
func (s *Region) DeleteRule(ctx context.Context, id string) error {
	return s.do(ctx, func() error {
		r := s.rules[id]
		if r == nil {
			return notFound("security group rule", id)
		}
		s.dropRule(r)
		s.pushed("SecurityGroupRule", id)
		return nil
	})
}

// CreateAddressGroup makes an address group.
func (s *Region) CreateAddressGroup(ctx context.Context, name, project string, addresses ...string) (g *AddressGroup, err error) {
	err = s.do(ctx, func() error {
		g = &AddressGroup{ID: s.newID(), Name: name, Project: project, stamp: born()}
		s.addresses[g.ID] = g
		return s.readdressGroup(g, addresses)
	})
	return g, err
}

// SetAddressGroup gives an address group other addresses.
func (s *Region) SetAddressGroup(ctx context.Context, id string, change func(now []string) []string) error {
	return s.do(ctx, func() error {
		g := s.addresses[id]
		if g == nil {
			return notFound("address group", id)
		}
		g.touch()
		return s.readdressGroup(g, change(g.Addresses))
	})
}

func (s *Region) readdressGroup(g *AddressGroup, addresses []string) error {
	list := []string{}
	for _, text := range addresses {
		p, err := asPrefix(text)
		if err != nil {
			return err
		}
		list = append(list, p.String())
	}
	g.Addresses = list
	s.pushed("AddressGroup", g.ID)
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
func (s *Region) DeleteAddressGroup(ctx context.Context, id string) error {
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
		s.pushed("AddressGroup", id)
		return nil
	})
}
