// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// PortSpec are the attributes of a port to be created or changed; what is nil is left to the server, or as it is.
type PortSpec struct {
	ID           *string        `json:"-"`
	Name         *string        `json:"name"`
	Project      *string        `json:"tenant_id"`
	NetworkID    *string        `json:"network_id"`
	MAC          *string        `json:"mac_address"`
	AdminUp      *bool          `json:"admin_state_up"`
	DeviceID     *string        `json:"device_id"`
	DeviceOwner  *string        `json:"device_owner"`
	Host         *string        `json:"binding:host_id"`
	FixedIPs     *[]FixedIP     `json:"fixed_ips"`
	Pairs        *[]AddressPair `json:"allowed_address_pairs"`
	Groups       *[]string      `json:"security_groups"`
	Policy       *string        `json:"qos_policy_id"`
	PortSecurity *bool          `json:"port_security_enabled"`
}

// CreatePort makes a port and, if it names a host, binds it.
func (s *Region) CreatePort(ctx context.Context, spec PortSpec) (*Port, error) {
	list, err := s.CreatePorts(ctx, spec)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// CreatePorts makes many ports at once: all, or, when one cannot be made, those before it.
func (s *Region) CreatePorts(ctx context.Context, specs ...PortSpec) (list []*Port, err error) {
	err = s.do(ctx, func() error {
		for _, spec := range specs {
			p, err := s.newPort(spec)
			if err != nil {
				return err
			}
			s.hold(p)
			s.holdAddresses(p)
			s.pushed("Port", p.ID)
			if s.bind(p, p.active()) {
				s.touched(p)
				s.pushed("Port", p.ID)
			}
			list = append(list, p.copy())
		}
		return nil
	})
	return list, err
}

func (s *Region) newPort(spec PortSpec) (*Port, error) {
	n := s.networks[value(spec.NetworkID)]
	if n == nil {
		return nil, notFound("network", value(spec.NetworkID))
	}
	p := &Port{
		ID: s.newID(), Name: value(spec.Name), Project: value(spec.Project), NetworkID: n.ID, AdminUp: true, Status: down,
		DeviceID: value(spec.DeviceID), DeviceOwner: value(spec.DeviceOwner), PortSecurity: n.PortSecurity, stamp: born(),
		Bindings: []*Binding{{Host: value(spec.Host), Status: active, VIFType: unbound}}, blocks: map[string]bool{},
	}
	p.Revision = 1
	p.MAC = fmt.Sprintf("fa:16:3e:%s:%s:%s", p.ID[0:2], p.ID[2:4], p.ID[4:6])
	set(&p.ID, spec.ID)
	set(&p.Policy, spec.Policy)
	set(&p.MAC, spec.MAC)
	p.MAC = strings.ToLower(p.MAC)
	set(&p.AdminUp, spec.AdminUp)
	set(&p.PortSecurity, spec.PortSecurity)
	if trusted := strings.HasPrefix(p.DeviceOwner, "network:"); trusted {
		p.PortSecurity = false
	} else if spec.Groups == nil && p.PortSecurity {
		p.Groups = []string{s.defaultGroup(p.Project).ID}
	}
	if err := s.setAddresses(p, n, spec); err != nil {
		return nil, err
	}
	if spec.Groups != nil {
		p.Groups = slices.Sorted(slices.Values(*spec.Groups))
	}
	if err := s.known(p.Groups); err != nil {
		return nil, err
	}
	s.setPairs(p, spec.Pairs)
	s.ports[p.ID] = p
	index(s.onNetwork, n.ID)[p.ID] = p
	for _, g := range p.Groups {
		index(s.members, g)[p.ID] = p
	}
	return p, nil
}

// copy is what callers get: the model goes on changing.
func (p *Port) copy() *Port {
	c := *p
	c.wire, c.Bindings = nil, nil
	for _, b := range p.Bindings {
		one := *b
		c.Bindings = append(c.Bindings, &one)
	}
	return &c
}

func index(of map[string]map[string]*Port, key string) map[string]*Port {
	if of[key] == nil {
		of[key] = map[string]*Port{}
	}
	return of[key]
}

func (s *Region) known(groups []string) error {
	for _, g := range groups {
		if s.groups[g] == nil {
			return notFound("security group", g)
		}
	}
	return nil
}

// setAddresses gives the port the addresses that it asks for, or, when it asks for none, one of each IP version.
func (s *Region) setAddresses(p *Port, n *Network, spec PortSpec) error {
	list := value(spec.FixedIPs)
	if spec.FixedIPs == nil {
		for _, sub := range n.Subnets {
			version := ipVersion(sub.CIDR.Addr())
			if !slices.ContainsFunc(list, func(ip FixedIP) bool { return ipVersion(s.subnets[ip.SubnetID].CIDR.Addr()) == version }) {
				list = append(list, FixedIP{SubnetID: sub.ID})
			}
		}
	}
	list = slices.Clone(list)
	for i := range list {
		ip := &list[i]
		for _, sub := range n.Subnets {
			if ip.SubnetID == "" && ip.IP.IsValid() && sub.CIDR.Contains(ip.IP) {
				ip.SubnetID = sub.ID
			}
		}
		sub := s.subnets[ip.SubnetID]
		if sub == nil || sub.NetworkID != n.ID {
			return fmt.Errorf("address %s of a port: %w", ip.IP, notFound("subnet", ip.SubnetID))
		}
		if !ip.IP.IsValid() {
			var err error
			if ip.IP, err = s.free(sub); err != nil {
				return err
			}
		}
		s.taken[sub.ID][ip.IP.String()] = true
	}
	for _, old := range p.FixedIPs {
		if !slices.Contains(list, old) {
			delete(s.taken[old.SubnetID], old.IP.String())
		}
	}
	p.FixedIPs = list
	return nil
}

func (s *Region) setPairs(p *Port, pairs *[]AddressPair) {
	if pairs == nil {
		return
	}
	p.Pairs = slices.Clone(*pairs)
	for i := range p.Pairs {
		if p.Pairs[i].MAC == "" {
			p.Pairs[i].MAC = p.MAC
		}
		p.Pairs[i].MAC = strings.ToLower(p.Pairs[i].MAC)
	}
}

// touched counts a change of a port.
func (s *Region) touched(p *Port) {
	p.touch()
	p.wire = nil
}

// UpdatePort changes a port.
func (s *Region) UpdatePort(ctx context.Context, id string, spec PortSpec) (updated *Port, err error) {
	err = s.do(ctx, func() error {
		p := s.ports[id]
		if p == nil {
			return notFound("port", id)
		}
		if spec.Groups != nil {
			if err := s.known(*spec.Groups); err != nil {
				return err
			}
		}
		n, b := s.networks[p.NetworkID], p.active()
		before, status := slices.Clone(p.FixedIPs), p.Status
		old := *b
		set(&p.Name, spec.Name)
		set(&p.DeviceID, spec.DeviceID)
		set(&p.DeviceOwner, spec.DeviceOwner)
		set(&p.AdminUp, spec.AdminUp)
		set(&p.PortSecurity, spec.PortSecurity)
		set(&p.MAC, spec.MAC)
		set(&p.Policy, spec.Policy)
		if spec.FixedIPs != nil {
			if err := s.setAddresses(p, n, spec); err != nil {
				return err
			}
		}
		s.setPairs(p, spec.Pairs)
		if spec.Groups != nil {
			s.setGroups(p, slices.Sorted(slices.Values(*spec.Groups)))
		}
		if spec.Host != nil && *spec.Host != b.Host {
			b.Host, b.VIFType, b.Segment, b.details = *spec.Host, unbound, nil, ""
			p.Status = down
			s.hold(p)
		}
		if !slices.Equal(before, p.FixedIPs) {
			s.holdAddresses(p)
		}
		s.touched(p)
		s.readdress(p, b, before)
		if b.Host != old.Host && status == active {
			s.withdraw(p, &old)
		}
		s.pushed("Port", p.ID)
		if s.bind(p, b) {
			s.touched(p)
			s.pushed("Port", p.ID)
		}
		updated = p.copy()
		return nil
	})
	return updated, err
}

func (s *Region) setGroups(p *Port, groups []string) {
	for _, g := range p.Groups {
		delete(s.members[g], p.ID)
	}
	p.Groups = groups
	for _, g := range groups {
		index(s.members, g)[p.ID] = p
	}
}

// DeletePort deletes a port.
func (s *Region) DeletePort(ctx context.Context, id string) error {
	return s.do(ctx, func() error {
		p := s.ports[id]
		if p == nil {
			return notFound("port", id)
		}
		s.setGroups(p, nil)
		delete(s.ports, id)
		delete(s.onNetwork[p.NetworkID], id)
		for _, ip := range p.FixedIPs {
			delete(s.taken[ip.SubnetID], ip.IP.String())
		}
		s.pushed("Port", id)
		for _, b := range p.Bindings {
			s.withdraw(p, b)
		}
		return nil
	})
}

// Status is the status of a port; empty when there is none of that id.
func (s *Region) Status(id string) string {
	return about(s, id, func(p *Port) string { return p.Status })
}

// Host is the host that a port is bound to, Owner its device_owner, NetworkOf its network, SubnetOf the first subnet of that;
// empty when there is no such port.
func (s *Region) Host(id string) string { return about(s, id, (*Port).Host) }

// Owner is described at Host.
func (s *Region) Owner(id string) string {
	return about(s, id, func(p *Port) string { return p.DeviceOwner })
}

// NetworkOf is described at Host.
func (s *Region) NetworkOf(id string) string {
	return about(s, id, func(p *Port) string { return p.NetworkID })
}

// SubnetOf is described at Host.
func (s *Region) SubnetOf(id string) string {
	return about(s, id, func(p *Port) string { return s.networks[p.NetworkID].Subnets[0].ID })
}

func about(s *Region, id string, what func(*Port) string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.ports[id]; p != nil {
		return what(p)
	}
	return ""
}

// GroupsOf are the security groups of a port.
func (s *Region) GroupsOf(id string) (groups []string) {
	about(s, id, func(p *Port) string { groups = slices.Clone(p.Groups); return "" })
	return groups
}

// Agent tells whether an agent has reported from the host, and when last.
func (s *Region) Agent(host string) (a Agent, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.agents[host]; found != nil {
		return *found, true
	}
	return Agent{}, false
}

// SetStatus gives a port a status that no agent has reported, as an operator would who begins anew. The news goes out.
func (s *Region) SetStatus(ctx context.Context, id, status string) error {
	return s.do(ctx, func() error {
		p := s.ports[id]
		if p == nil {
			return notFound("port", id)
		}
		s.setStatus(p, status)
		return nil
	})
}
