// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// Port is a Neutron port as an L2 agent sees it.
type Port struct {
	ID                  string             `json:"id"`
	Name                string             `json:"name"`
	NetworkID           string             `json:"network_id"`
	ProjectID           string             `json:"project_id"`
	MAC                 MAC                `json:"mac_address"`
	AdminStateUp        bool               `json:"admin_state_up"`
	Status              string             `json:"status"`
	DeviceID            string             `json:"device_id"`
	DeviceOwner         string             `json:"device_owner"`
	Revision            int64              `json:"revision_number"`
	FixedIPs            List[FixedIP]      `json:"fixed_ips"`
	AllowedAddressPairs List[AddressPair]  `json:"allowed_address_pairs"`
	SecurityGroupIDs    []string           `json:"security_group_ids"`
	Security            Maybe[Security]    `json:"security"`
	QosPolicyID         string             `json:"qos_policy_id"`
	QosNetworkPolicyID  string             `json:"qos_network_policy_id"`
	Bindings            List[Binding]      `json:"bindings"`
	BindingLevels       List[BindingLevel] `json:"binding_levels"`
	Hints               Maybe[Hints]       `json:"hints"`
	Guest
}

// Guest is what DHCP tells the guest of a port besides its addresses.
type Guest struct {
	DHCPOptions List[DHCPOption] `json:"dhcp_options"`
	DNS         Maybe[PortDNS]   `json:"dns"`
}

// DHCPOption is one of extra_dhcp_opts of a port. The name is dnsmasq's name or number of an option.
type DHCPOption struct {
	Name      string `json:"opt_name"`
	Value     string `json:"opt_value"`
	IPVersion int    `json:"ip_version"`
}

// PortDNS is the name that a user gave to a port.
type PortDNS struct {
	Name string `json:"dns_name"`
}

// Log is a log of what security groups let pass and drop. All but Enabled stays as it was created.
type Log struct {
	ID           string `json:"id"`
	ProjectID    string `json:"project_id"`
	ResourceType string `json:"resource_type"`
	ResourceID   string `json:"resource_id"` // of a group; empty: all groups
	TargetID     string `json:"target_id"`   // of a port; empty: all ports
	Event        string `json:"event"`
	Enabled      bool   `json:"enabled"`
	Revision     int64  `json:"revision_number"`
}

// LocalIPAssociation says that a port answers for a local IP address, to ports of its network on the same host.
type LocalIPAssociation struct {
	LocalIPID   string         `json:"local_ip_id"`
	FixedPortID string         `json:"fixed_port_id"`
	FixedIP     string         `json:"fixed_ip"`
	LocalIP     Maybe[LocalIP] `json:"local_ip"`
}

// LocalIP is an address that several ports can have, each for its own host.
type LocalIP struct {
	Address string `json:"local_ip_address"`
	Mode    string `json:"ip_mode"`
}

// Member is a port as far as it matters to others: which groups it is in, under which addresses.
type Member struct {
	ID                  string            `json:"id"`
	MAC                 MAC               `json:"mac_address"`
	Revision            int64             `json:"revision_number"`
	FixedIPs            List[FixedIP]     `json:"fixed_ips"`
	AllowedAddressPairs List[AddressPair] `json:"allowed_address_pairs"`
	SecurityGroupIDs    []string          `json:"security_group_ids"`
}

// Member is the port as others see it.
func (p *Port) Member() *Member {
	return &Member{p.ID, p.MAC, p.Revision, p.FixedIPs, p.AllowedAddressPairs, p.SecurityGroupIDs}
}

// FixedIP is one address of a port.
type FixedIP struct {
	SubnetID string     `json:"subnet_id"`
	IP       netip.Addr `json:"ip_address"`
}

// AddressPair is one allowed address pair of a port.
type AddressPair struct {
	MAC MAC    `json:"mac_address"`
	IP  Prefix `json:"ip_address"`
}

// Security says whether port security is on.
type Security struct {
	PortSecurityEnabled bool `json:"port_security_enabled"`
}

// Binding ties a port to a host. While a VM moves between hosts its port has two.
type Binding struct {
	Host     string       `json:"host"`
	Status   string       `json:"status"` // ACTIVE or INACTIVE
	VIFType  string       `json:"vif_type"`
	VNICType string       `json:"vnic_type"`
	Profile  EmbeddedJSON `json:"profile"`
}

// BindingLevel is the segment that a mechanism driver chose for a port on a host.
type BindingLevel struct {
	Host    string         `json:"host"`
	Level   int            `json:"level"`
	Segment Maybe[Segment] `json:"segment"`
}

// Segment is a piece of a network: what carries it, and under which number.
type Segment struct {
	NetworkType     string `json:"network_type"` // flat, vlan, vxlan, gre, geneve or local
	PhysicalNetwork string `json:"physical_network"`
	SegmentationID  *int   `json:"segmentation_id"` // nil for flat and local
}

// Hints are per-port wishes for the backend (Neutron 23 and later).
type Hints struct {
	Hints EmbeddedJSON `json:"hints"`
}

// TXSteering is the hint about which of its queues a port of a userspace datapath sends over, thread or hash; empty: there is none.
func (p *Port) TXSteering() string {
	if p.Hints.Value == nil {
		return ""
	}
	var hint struct {
		OtherConfig map[string]any `json:"other_config"`
	}
	if json.Unmarshal(p.Hints.Value.Hints["openvswitch"], &hint) != nil {
		return "" // as of a server that has hints of another kind
	}
	if v, _ := hint.OtherConfig["tx-steering"].(string); v == "hash" || v == "thread" {
		return v
	}
	return ""
}

// SegmentOn returns the segment that the server chose for the port on a host: that of the last level of this host, whatever the order of the
// levels. Where no level names the host it is that of the last one; nil if there is none.
func (p *Port) SegmentOn(host string) *Segment {
	var found *BindingLevel
	for i := range p.BindingLevels {
		if l := &p.BindingLevels[i]; l.Host == host && (found == nil || l.Level >= found.Level) {
			found = l
		}
	}
	if n := len(p.BindingLevels); found == nil && n > 0 {
		found = &p.BindingLevels[n-1]
	}
	if found == nil {
		return nil
	}
	return found.Segment.Value
}

// PortSecurityEnabled says whether the port's traffic is checked; it is unless the server says otherwise.
func (p *Port) PortSecurityEnabled() bool {
	return p.Security.Value == nil || p.Security.Value.PortSecurityEnabled
}

// Network is a Neutron network as an L2 agent sees it.
type Network struct {
	ID           string        `json:"id"`
	Name         string        `json:"name"`
	AdminStateUp bool          `json:"admin_state_up"`
	MTU          int           `json:"mtu"`
	QosPolicyID  string        `json:"qos_policy_id"`
	Revision     int64         `json:"revision_number"`
	Segments     List[Segment] `json:"segments"`
	DNSDomain    string        `json:"dns_domain"`
}

// Subnet is a Neutron subnet as an L2 agent sees it.
type Subnet struct {
	ID          string            `json:"id"`
	NetworkID   string            `json:"network_id"`
	IPVersion   int               `json:"ip_version"`
	CIDR        Prefix            `json:"cidr"`
	Gateway     netip.Addr        `json:"gateway_ip"` // zero when there is none
	EnableDHCP  bool              `json:"enable_dhcp"`
	Nameservers List[Nameserver]  `json:"dns_nameservers"`
	HostRoutes  List[SubnetRoute] `json:"host_routes"`
	Revision    int64             `json:"revision_number"`
	SegmentID   string            `json:"segment_id"`
	RAMode      string            `json:"ipv6_ra_mode"` // slaac, dhcpv6-stateful, dhcpv6-stateless or ""
	AddressMode string            `json:"ipv6_address_mode"`
}

// Nameserver is a DNS server of a subnet. Its address is text: Neutron lets it be a name.
type Nameserver struct {
	Address string `json:"address"`
	Order   int    `json:"order"`
}

// SubnetRoute is a route that DHCP hands out.
type SubnetRoute struct {
	Destination Prefix     `json:"destination"`
	NextHop     netip.Addr `json:"nexthop"`
}

// SecurityGroup is a named set of rules.
type SecurityGroup struct {
	ID       string                  `json:"id"`
	Name     string                  `json:"name"`
	Stateful *bool                   `json:"stateful"` // nil before Neutron 18: stateful
	Rules    List[SecurityGroupRule] `json:"rules"`
	Revision int64                   `json:"revision_number"`
}

// SecurityGroupRule allows one kind of traffic. Absent fields mean any.
type SecurityGroupRule struct {
	ID                   string  `json:"id"`
	SecurityGroupID      string  `json:"security_group_id"`
	Direction            string  `json:"direction"` // ingress or egress, seen from the port
	EtherType            string  `json:"ethertype"` // IPv4 or IPv6
	Protocol             string  `json:"protocol"`  // a name or a number as text
	PortRangeMin         *int    `json:"port_range_min"`
	PortRangeMax         *int    `json:"port_range_max"`
	RemoteIPPrefix       *Prefix `json:"remote_ip_prefix"`
	NormalizedCIDR       *Prefix `json:"normalized_cidr"`
	RemoteGroupID        string  `json:"remote_group_id"`
	RemoteAddressGroupID string  `json:"remote_address_group_id"`
	Revision             int64   `json:"revision_number"`
}

// AddressGroup is a named set of prefixes that rules refer to.
type AddressGroup struct {
	ID        string        `json:"id"`
	Addresses List[Address] `json:"addresses"`
	Revision  int64         `json:"revision_number"`
}

// Address is one prefix of an address group.
type Address struct {
	Prefix Prefix `json:"address"`
}

// QosPolicy is a set of rules that shape or mark a port's traffic. Each rule keeps its own type.
type QosPolicy struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Rules    []QosRule `json:"rules"`
	Revision int64     `json:"revision_number"`
}

// QosRule is one rule of a policy; which fields count depends on Kind.
type QosRule struct {
	Kind         string `json:"-"` // QosBandwidthLimitRule, QosDscpMarkingRule, …
	ID           string `json:"id"`
	Direction    string `json:"direction"`
	MaxKbps      int    `json:"max_kbps"`
	MaxBurstKbps int    `json:"max_burst_kbps"`
	MinKbps      int    `json:"min_kbps"`
	MaxKpps      int    `json:"max_kpps"`
	MaxBurstKpps int    `json:"max_burst_kpps"`
	MinKpps      int    `json:"min_kpps"`
	DSCPMark     *int   `json:"dscp_mark"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *QosRule) UnmarshalJSON(b []byte) error {
	var p Primitive
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	type plain QosRule // without this method
	var v plain
	if len(p.Data) > 0 {
		if err := json.Unmarshal(p.Data, &v); err != nil {
			return fmt.Errorf("decoding %s: %w", p.Name, err)
		}
	}
	*r = QosRule(v)
	r.Kind = p.Name
	return nil
}

// MarshalJSON implements json.Marshaler: what it writes, UnmarshalJSON reads.
func (r QosRule) MarshalJSON() ([]byte, error) {
	type plain QosRule
	data, err := json.Marshal(plain(r))
	if err != nil {
		return nil, err
	}
	return json.Marshal(Primitive{Name: r.Kind, Data: data})
}

// Trunk is a port that carries other ports' traffic under VLAN tags.
type Trunk struct {
	ID           string        `json:"id"`
	PortID       string        `json:"port_id"`
	AdminStateUp bool          `json:"admin_state_up"`
	Status       string        `json:"status"`
	SubPorts     List[SubPort] `json:"sub_ports"`
	Revision     int64         `json:"revision_number"`
}

// SubPort is one passenger of a trunk.
type SubPort struct {
	PortID           string `json:"port_id"`
	TrunkID          string `json:"trunk_id"`
	SegmentationType string `json:"segmentation_type"`
	SegmentationID   int    `json:"segmentation_id"`
}

// IsNetworkOwned says whether a port belongs to Neutron itself (DHCP, router), by its owner's prefix.
func IsNetworkOwned(deviceOwner string) bool { return strings.HasPrefix(deviceOwner, "network:") }

// IsComputeOwned says whether a port belongs to a VM.
func IsComputeOwned(deviceOwner string) bool { return strings.HasPrefix(deviceOwner, "compute:") }
