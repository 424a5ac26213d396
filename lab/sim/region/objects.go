// SPDX-License-Identifier: Apache-2.0

package region

import (
	"encoding/json"
	"net/netip"
)

// fields is the data of an object. What has no value is left out, as the real server does, except where it sends a null.
type fields map[string]any

func (f fields) optional(name, value string) {
	if value != "" {
		f[name] = value
	}
}

func (f fields) stamped(s stamp) fields {
	f["revision_number"] = s.Revision
	f["created_at"], f["updated_at"] = s.Created.Format(timestamp), s.Updated.Format(timestamp)
	return f
}

// primitive is a versioned object on the wire.
type primitive struct {
	Name      string   `json:"versioned_object.name"`
	Namespace string   `json:"versioned_object.namespace"`
	Version   string   `json:"versioned_object.version"`
	Data      fields   `json:"versioned_object.data"`
	Changes   []string `json:"versioned_object.changes,omitempty"`
}

// part is an object inside another.
func part(name, version string, data fields) primitive {
	return primitive{Name: name, Namespace: "versionedobjects", Version: version, Data: data}
}

// whole is an object by itself. It has every field that any release knows; its version is given when it is told.
func whole(kind string, data fields) primitive { return part(kind, "", data) }

// gone is what a push says about a deleted object: its id, and of a port also what its class sets by itself.
func gone(kind, id string) primitive {
	p := whole(kind, fields{"id": id})
	p.Changes = []string{"id"}
	if kind == "Port" {
		for _, name := range []string{"qos_network_policy_id", "qos_policy_id", "security_group_ids"} {
			p.Data[name] = nil
			p.Changes = append(p.Changes, name)
		}
	}
	return p
}

func encode(p primitive) json.RawMessage {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and maps of them
	}
	return text
}

func (n *Network) segment(s *Segment) primitive {
	f := fields{
		"id": s.ID, "network_id": n.ID, "network_type": s.NetworkType, "segment_index": 0, "is_dynamic": false, "hosts": []string{},
	}
	for i := range n.Segments {
		if n.Segments[i] == s {
			f["segment_index"] = i
		}
	}
	f.optional("physical_network", s.PhysicalNetwork)
	if s.SegmentationID != 0 {
		f["segmentation_id"] = s.SegmentationID
	}
	return part("NetworkSegment", "1.0", f.stamped(stamp{Created: n.Created, Updated: n.Created}))
}

func (n *Network) object() primitive {
	segments := []primitive{}
	for _, s := range n.Segments {
		segments = append(segments, n.segment(s))
	}
	f := fields{
		"id": n.ID, "name": n.Name, "project_id": n.Project, "description": "", "dns_domain": nil, "mtu": n.MTU,
		"admin_state_up": true, "status": active, "shared": n.Shared, "qos_policy_id": nil, "segments": segments, "qinq": false, "pvlan": nil,
		"security": part("NetworkPortSecurity", "1.0", fields{"id": n.ID, "port_security_enabled": n.PortSecurity}),
	}
	f.optional("qos_policy_id", n.Policy)
	return whole("Network", f.stamped(n.stamp))
}

func (s *Subnet) object() primitive {
	f := fields{
		"id": s.ID, "name": s.Name, "project_id": s.Project, "network_id": s.NetworkID, "description": "", "cidr": s.CIDR.String(),
		"ip_version": ipVersion(s.CIDR.Addr()), "enable_dhcp": s.DHCP, "dns_publish_fixed_ip": false, "shared": false, "external": false,
		"dns_nameservers": []string{}, "host_routes": []string{}, "service_types": []string{}, "allocation_pools": []string{},
	}
	if s.Gateway.IsValid() {
		f["gateway_ip"] = s.Gateway.String()
	}
	return whole("Subnet", f.stamped(s.stamp))
}

func ipVersion(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

func (r *Rule) object() primitive {
	f := fields{
		"id": r.ID, "security_group_id": r.GroupID, "project_id": r.Project, "description": r.Description,
		"direction": r.Direction, "ethertype": r.EtherType, "normalized_cidr": nil, "belongs_to_default_sg": r.inDefault,
	}
	f.optional("protocol", r.Protocol)
	f.optional("remote_group_id", r.RemoteGroup)
	f.optional("remote_address_group_id", r.RemoteAddressGroup)
	if r.PortMin != nil {
		f["port_range_min"] = *r.PortMin
	}
	if r.PortMax != nil {
		f["port_range_max"] = *r.PortMax
	}
	if r.RemotePrefix != "" {
		f["remote_ip_prefix"], f["normalized_cidr"] = r.RemotePrefix, r.RemotePrefix
		if p, err := netip.ParsePrefix(r.RemotePrefix); err == nil {
			f["normalized_cidr"] = p.Masked().String()
		}
	}
	return whole("SecurityGroupRule", f.stamped(r.stamp))
}

func (g *Group) object() primitive {
	rules := []primitive{}
	for _, r := range g.Rules {
		rules = append(rules, r.object())
	}
	return whole("SecurityGroup", fields{
		"id": g.ID, "name": g.Name, "project_id": g.Project, "description": g.Description, "is_default": g.Default,
		"stateful": g.Stateful, "shared": false, "rules": rules,
	}.stamped(g.stamp))
}

func (g *AddressGroup) object() primitive {
	addresses := []primitive{}
	for _, a := range g.Addresses {
		addresses = append(addresses, part("AddressAssociation", "1.0", fields{"address": a, "address_group_id": g.ID}))
	}
	return whole("AddressGroup", fields{
		"id": g.ID, "name": g.Name, "project_id": g.Project, "description": g.Description, "shared": false, "addresses": addresses,
	}.stamped(g.stamp))
}

func (p *Port) object(n *Network) primitive {
	ips, pairs, bindings, levels := []primitive{}, []primitive{}, []primitive{}, []primitive{}
	for _, ip := range p.FixedIPs {
		ips = append(ips, part("IPAllocation", "1.0", fields{
			"ip_address": ip.IP.String(), "network_id": p.NetworkID, "port_id": p.ID, "subnet_id": ip.SubnetID,
		}))
	}
	for _, a := range p.Pairs {
		pairs = append(pairs, part("AllowedAddressPair", "1.0", fields{"ip_address": a.IP, "mac_address": a.MAC, "port_id": p.ID}))
	}
	for _, b := range p.Bindings {
		f := fields{
			"host": b.Host, "port_id": p.ID, "profile": "{}", "status": b.Status, "vif_type": b.VIFType, "vnic_type": "normal",
			"vif_details": nil,
		}
		f.optional("vif_details", b.details)
		bindings = append(bindings, part("PortBinding", "1.0", f))
		if b.Segment != nil {
			levels = append(levels, part("PortBindingLevel", "1.1", fields{
				"driver": "openvswitch", "host": b.Host, "level": 0, "port_id": p.ID, "segment_id": b.Segment.ID, "segment": n.segment(b.Segment),
			}))
		}
	}
	groups := p.Groups
	if groups == nil {
		groups = []string{}
	}
	f := fields{
		"id": p.ID, "name": p.Name, "project_id": p.Project, "network_id": p.NetworkID, "description": "", "mac_address": p.MAC,
		"admin_state_up": p.AdminUp, "status": p.Status, "device_id": p.DeviceID, "device_owner": p.DeviceOwner,
		"fixed_ips": ips, "allowed_address_pairs": pairs, "security_group_ids": groups, "bindings": bindings, "binding_levels": levels,
		"distributed_bindings": []string{}, "dhcp_options": []string{}, "dns": nil, "data_plane_status": nil,
		"qos_policy_id": nil, "qos_network_policy_id": nil, "hints": nil, "hardware_offload_type": nil, "trusted": nil,
		"pvlan_type": nil, "pvlan_community": nil,
		"security": part("PortSecurity", "1.0", fields{"id": p.ID, "port_security_enabled": p.PortSecurity}),
	}
	if p.MAC == "" {
		delete(f, "mac_address")
	}
	f.optional("qos_policy_id", p.Policy)
	f.optional("qos_network_policy_id", n.Policy)
	return whole("Port", f.stamped(p.stamp))
}

// told encodes the port in a version, once for every change: ten thousand of them may be asked for at a time.
func (s *Region) told(p *Port, version string) (json.RawMessage, error) {
	if text := p.wire[version]; text != nil {
		return text, nil
	}
	text, err := s.inVersion(p.object(s.networks[p.NetworkID]), "Port", version)
	if err == nil && p.wire == nil {
		p.wire = map[string]json.RawMessage{}
	}
	if err == nil {
		p.wire[version] = text
	}
	return text, err
}

// object is what there is under a kind and an id; nil when there is nothing.
func (s *Region) object(kind, id string) *primitive {
	var p primitive
	switch kind {
	case "Port":
		if o := s.ports[id]; o != nil {
			p = o.object(s.networks[o.NetworkID])
		}
	case "Network":
		p = objectOf(s.networks, id)
	case "Subnet":
		p = objectOf(s.subnets, id)
	case "SecurityGroup":
		p = objectOf(s.groups, id)
	case "SecurityGroupRule":
		p = objectOf(s.rules, id)
	case "AddressGroup":
		p = objectOf(s.addresses, id)
	}
	if p.Name == "" {
		return nil
	}
	return &p
}

func objectOf[T interface {
	comparable
	object() primitive
}](in map[string]T, id string) (p primitive) {
	if o, ok := in[id]; ok {
		p = o.object()
	}
	return p
}
