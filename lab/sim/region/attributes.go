// SPDX-License-Identifier: Apache-2.0

package region

import "encoding/json"

func (n *Network) attributes() fields {
	subnets := []string{}
	for _, s := range n.Subnets {
		subnets = append(subnets, s.ID)
	}
	f := fields{
		"id": n.ID, "name": n.Name, "tenant_id": n.Project, "project_id": n.Project, "description": "", "mtu": n.MTU,
		"admin_state_up": true, "status": active, "shared": n.Shared, "router:external": n.External, "port_security_enabled": n.PortSecurity,
		"subnets": subnets, "availability_zones": []string{}, "availability_zone_hints": []string{}, "tags": []string{},
		"ipv4_address_scope": nil, "ipv6_address_scope": nil, "qos_policy_id": nil, "vlan_transparent": nil,
	}.stamped(n.stamp)
	var segments []fields
	for _, s := range n.Segments {
		one := fields{"provider:network_type": s.NetworkType, "provider:physical_network": nil, "provider:segmentation_id": nil}
		one.optional("provider:physical_network", s.PhysicalNetwork)
		if s.SegmentationID != 0 {
			one["provider:segmentation_id"] = s.SegmentationID
		}
		segments = append(segments, one)
	}
	switch len(segments) {
	case 0: // a network that was put, and is known by its id alone
		return f
	case 1:
	default:
		f["segments"] = segments
		return f
	}
	for k, v := range segments[0] {
		f[k] = v
	}
	return f
}

func (s *Subnet) attributes() fields {
	f := fields{
		"id": s.ID, "name": s.Name, "tenant_id": s.Project, "project_id": s.Project, "network_id": s.NetworkID,
		"cidr": s.CIDR.String(), "ip_version": ipVersion(s.CIDR.Addr()), "enable_dhcp": s.DHCP, "gateway_ip": nil,
		"dns_nameservers": []string{}, "host_routes": []string{}, "allocation_pools": []string{},
	}.stamped(s.stamp)
	if s.Gateway.IsValid() {
		f["gateway_ip"] = s.Gateway.String()
	}
	return f
}

func addressList(list []FixedIP) []fields {
	out := []fields{}
	for _, ip := range list {
		out = append(out, fields{"subnet_id": ip.SubnetID, "ip_address": ip.IP.String()})
	}
	return out
}

func pairList(list []AddressPair) []AddressPair { return append([]AddressPair{}, list...) }

func (p *Port) attributes() fields {
	b := p.active()
	f := fields{
		"id": p.ID, "name": p.Name, "tenant_id": p.Project, "project_id": p.Project, "network_id": p.NetworkID, "description": "",
		"mac_address": p.MAC, "admin_state_up": p.AdminUp, "status": p.Status, "device_id": p.DeviceID, "device_owner": p.DeviceOwner,
		"fixed_ips": addressList(p.FixedIPs), "allowed_address_pairs": pairList(p.Pairs),
		"security_groups": append([]string{}, p.Groups...), "port_security_enabled": p.PortSecurity,
		"binding:host_id": b.Host, "binding:vif_type": b.VIFType, "binding:vnic_type": "normal", "binding:profile": fields{},
		"binding:vif_details": fields{}, "extra_dhcp_opts": []string{}, "tags": []string{},
	}
	if b.details != "" {
		f["binding:vif_details"] = json.RawMessage(b.details)
	}
	return f.stamped(p.stamp)
}

func (r *Rule) attributes() fields {
	f := fields{
		"id": r.ID, "security_group_id": r.GroupID, "tenant_id": r.Project, "project_id": r.Project, "description": r.Description,
		"direction": r.Direction, "ethertype": r.EtherType, "protocol": nil, "port_range_min": r.PortMin, "port_range_max": r.PortMax,
		"remote_ip_prefix": nil, "remote_group_id": nil, "remote_address_group_id": nil,
	}
	f.optional("protocol", r.Protocol)
	f.optional("remote_ip_prefix", r.RemotePrefix)
	f.optional("remote_group_id", r.RemoteGroup)
	f.optional("remote_address_group_id", r.RemoteAddressGroup)
	return f.stamped(r.stamp)
}

func (g *Group) attributes() fields {
	rules := []fields{}
	for _, r := range g.Rules {
		rules = append(rules, r.attributes())
	}
	return fields{
		"id": g.ID, "name": g.Name, "tenant_id": g.Project, "project_id": g.Project, "description": g.Description,
		"stateful": g.Stateful, "security_group_rules": rules,
	}.stamped(g.stamp)
}

func (g *AddressGroup) attributes() fields {
	return fields{
		"id": g.ID, "name": g.Name, "tenant_id": g.Project, "project_id": g.Project, "description": g.Description,
		"addresses": append([]string{}, g.Addresses...),
	}
}

func (a *Agent) attributes() fields {
	const apiTime = "2006-01-02 15:04:05"
	return fields{
		"id": a.ID, "agent_type": a.Type, "binary": a.Binary, "host": a.Host, "topic": a.Topic, "alive": a.Alive(),
		"admin_state_up": true, "availability_zone": nil, "description": nil, "configurations": a.Configurations,
		"created_at": a.Created.Format(apiTime), "started_at": a.Started.Format(apiTime), "heartbeat_timestamp": a.Heartbeat.Format(apiTime),
	}
}
