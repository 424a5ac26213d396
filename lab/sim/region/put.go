// SPDX-License-Identifier: Apache-2.0

package region

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// object of any kind on the wire, for reading.
type boxed[T any] struct {
	Name string `json:"versioned_object.name"`
	Data T      `json:"versioned_object.data"`
}

func open[T any](list []boxed[T]) []T {
	var out []T
	for _, b := range list {
		out = append(out, b.Data)
	}
	return out
}

// Put stores an object as messages have it, in place of the one with its id, and tells nobody. What it does not say has no
// value. It is how tests that think in messages say what the server knows: ports of any shape, in networks that nobody
// created, under ids and revisions of their own. A rule joins its group, which is made if there is none. Put panics if the
// data makes no sense.
func (s *Region) Put(kind string, data any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(data)
	if err == nil {
		err = s.put(kind, text)
	}
	if err != nil {
		panic(fmt.Sprintf("%s %s: %v", kind, text, err))
	}
}

func (s *Region) put(kind string, text []byte) error {
	switch kind {
	case "Port":
		return s.putPort(text)
	case "SecurityGroup":
		var o struct {
			ID       string             `json:"id"`
			Revision int                `json:"revision_number"`
			Stateful *bool              `json:"stateful"`
			Rules    []boxed[wiredRule] `json:"rules"`
		}
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		g := &Group{ID: o.ID, Stateful: o.Stateful == nil || *o.Stateful, stamp: stamp{Revision: o.Revision}}
		s.groups[g.ID] = g
		for _, r := range open(o.Rules) {
			s.putRule(r)
		}
	case "SecurityGroupRule":
		var o wiredRule
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		s.putRule(o)
	case "AddressGroup":
		var o struct {
			ID        string `json:"id"`
			Revision  int    `json:"revision_number"`
			Addresses []boxed[struct {
				Address string `json:"address"`
			}] `json:"addresses"`
		}
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		g := &AddressGroup{ID: o.ID, stamp: stamp{Revision: o.Revision}}
		for _, a := range open(o.Addresses) {
			g.Addresses = append(g.Addresses, a.Address)
		}
		s.addresses[g.ID] = g
	case "QosPolicy":
		var o struct {
			ID       string                  `json:"id"`
			Name     string                  `json:"name"`
			Revision int                     `json:"revision_number"`
			Rules    []boxed[map[string]any] `json:"rules"`
		}
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		p := &Policy{ID: o.ID, Name: o.Name, stamp: stamp{Revision: o.Revision}}
		for _, r := range o.Rules {
			p.Rules = append(p.Rules, PolicyRule{Kind: r.Name, Fields: r.Data})
		}
		s.policies[p.ID] = p
	case "Network":
		var o struct {
			ID       string `json:"id"`
			Revision int    `json:"revision_number"`
			Policy   string `json:"qos_policy_id"`
		}
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		n := s.network(o.ID)
		n.Revision, n.Policy = o.Revision, o.Policy
	case "Subnet":
		var o struct {
			ID      string       `json:"id"`
			Network string       `json:"network_id"`
			CIDR    netip.Prefix `json:"cidr"`
			Gateway netip.Addr   `json:"gateway_ip"`
		}
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		s.subnets[o.ID] = &Subnet{ID: o.ID, NetworkID: s.network(o.Network).ID, CIDR: o.CIDR, Gateway: o.Gateway}
		s.taken[o.ID] = map[string]bool{}
	case "Trunk":
		var o struct {
			ID       string           `json:"id"`
			PortID   string           `json:"port_id"`
			Status   string           `json:"status"`
			SubPorts []boxed[SubPort] `json:"sub_ports"`
		}
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		s.trunks[o.ID] = &Trunk{ID: o.ID, PortID: o.PortID, Status: o.Status, SubPorts: open(o.SubPorts)}
	default:
		return fmt.Errorf("no objects of kind %s are stored", kind)
	}
	return nil
}

// network is one that ports are in, which is made when there is none.
func (s *Region) network(id string) *Network {
	if s.networks[id] == nil {
		s.networks[id] = &Network{ID: id, PortSecurity: true}
	}
	return s.networks[id]
}

func (s *Region) putPort(text []byte) error {
	var o struct {
		ID       string   `json:"id"`
		Network  string   `json:"network_id"`
		MAC      string   `json:"mac_address"`
		AdminUp  bool     `json:"admin_state_up"`
		Status   string   `json:"status"`
		Owner    string   `json:"device_owner"`
		Revision int      `json:"revision_number"`
		Policy   string   `json:"qos_policy_id"`
		Groups   []string `json:"security_group_ids"`
		Security *boxed[struct {
			Enabled bool `json:"port_security_enabled"`
		}] `json:"security"`
		FixedIPs []boxed[struct {
			SubnetID string     `json:"subnet_id"`
			IP       netip.Addr `json:"ip_address"`
		}] `json:"fixed_ips"`
		Pairs    []boxed[AddressPair] `json:"allowed_address_pairs"`
		Bindings []boxed[struct {
			Host   string `json:"host"`
			Status string `json:"status"`
		}] `json:"bindings"`
		Levels []boxed[struct {
			Host    string `json:"host"`
			Segment boxed[struct {
				Type     string `json:"network_type"`
				Physical string `json:"physical_network"`
				ID       int    `json:"segmentation_id"`
			}] `json:"segment"`
		}] `json:"binding_levels"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	p := &Port{
		ID: o.ID, NetworkID: s.network(o.Network).ID, MAC: o.MAC, AdminUp: o.AdminUp, Status: o.Status, DeviceOwner: o.Owner, Policy: o.Policy,
		Pairs: open(o.Pairs), PortSecurity: o.Security == nil || o.Security.Data.Enabled, blocks: map[string]bool{},
		stamp: stamp{Revision: o.Revision},
	}
	for _, ip := range open(o.FixedIPs) {
		p.FixedIPs = append(p.FixedIPs, FixedIP(ip))
	}
	for _, b := range open(o.Bindings) {
		one := &Binding{Host: b.Host, Status: b.Status, VIFType: unbound}
		for _, l := range open(o.Levels) {
			if seg := l.Segment.Data; l.Host == "" || l.Host == b.Host {
				one.VIFType, one.Segment = bound, &Segment{ID: o.Network, NetworkType: seg.Type, PhysicalNetwork: seg.Physical, SegmentationID: seg.ID}
			}
		}
		p.Bindings = append(p.Bindings, one)
	}
	if old := s.ports[p.ID]; old != nil {
		s.setGroups(old, nil)
		delete(s.onNetwork[old.NetworkID], p.ID)
	}
	s.ports[p.ID] = p
	index(s.onNetwork, p.NetworkID)[p.ID] = p
	s.setGroups(p, slices.Clone(o.Groups))
	return nil
}

type wiredRule struct {
	ID        string `json:"id"`
	Group     string `json:"security_group_id"`
	Direction string `json:"direction"`
	EtherType string `json:"ethertype"`
	Protocol  string `json:"protocol"`
	Min       *int   `json:"port_range_min"`
	Max       *int   `json:"port_range_max"`
	Prefix    string `json:"remote_ip_prefix"`
	Remote    string `json:"remote_group_id"`
	Addresses string `json:"remote_address_group_id"`
}

func (s *Region) putRule(o wiredRule) {
	if old := s.rules[o.ID]; old != nil {
		s.dropRule(old)
	}
	g := s.groups[o.Group]
	if g == nil {
		g = &Group{ID: o.Group, Stateful: true}
		s.groups[g.ID] = g
	}
	s.addRule(g, &Rule{
		ID: o.ID, Direction: o.Direction, EtherType: o.EtherType, Protocol: o.Protocol, PortMin: o.Min, PortMax: o.Max,
		RemotePrefix: o.Prefix, RemoteGroup: o.Remote, RemoteAddressGroup: o.Addresses,
	})
}

// PutTunnel stores a tunnel endpoint of a host, PutRouter the address of its distributed routers.
func (s *Region) PutTunnel(kind, ip, host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tunnels[kind] == nil {
		s.tunnels[kind] = map[string]string{}
	}
	s.tunnels[kind][ip] = host
}

// PutRouter is described at PutTunnel.
func (s *Region) PutRouter(host, mac string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routers[host] = mac
}
