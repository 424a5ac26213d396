// SPDX-License-Identifier: Apache-2.0

package region

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// Segment is one realisation of a network.
type Segment struct {
	ID              string `json:"-"`
	NetworkType     string `json:"provider:network_type"`
	PhysicalNetwork string `json:"provider:physical_network"`
	SegmentationID  int    `json:"provider:segmentation_id"`
}

// tunnelled tells whether hosts reach each other through tunnels on it.
func (s *Segment) tunnelled() bool {
	return s.NetworkType == "vxlan" || s.NetworkType == "gre" || s.NetworkType == "geneve"
}

// Network is a network with its subnets.
type Network struct {
	ID, Name, Project string
	MTU               int
	PortSecurity      bool
	External, Shared  bool
	Segments          []*Segment
	Subnets           []*Subnet
	Policy            string // of quality of service; empty for none
	stamp
}

// Subnet is a range of addresses of a network.
type Subnet struct {
	ID, Name, Project, NetworkID string
	CIDR                         netip.Prefix
	Gateway                      netip.Addr
	DHCP                         bool
	next                         netip.Addr // where the search for a free address goes on
	stamp
}

// FixedIP is an address of a port.
type FixedIP struct {
	SubnetID string     `json:"subnet_id"`
	IP       netip.Addr `json:"ip_address"`
}

// AddressPair is an address that a port may use beside its own. IP may be a range.
type AddressPair struct {
	MAC string `json:"mac_address"`
	IP  string `json:"ip_address"`
}

// Binding is a port's place on a host.
type Binding struct {
	Host    string
	Status  string // ACTIVE or INACTIVE
	VIFType string // unbound, ovs or binding_failed
	Segment *Segment
	// details is the JSON text of vif_details; empty while unbound.
	details string
}

// Port is a port.
type Port struct {
	ID, Name, Project, NetworkID string
	MAC                          string
	AdminUp                      bool
	Status                       string
	DeviceID, DeviceOwner        string
	FixedIPs                     []FixedIP
	Pairs                        []AddressPair
	Groups                       []string
	PortSecurity                 bool
	Bindings                     []*Binding // one of them ACTIVE
	stamp
	Policy string // of quality of service; empty for none
	// blocks are those who have not yet said that the port is ready: it is not ACTIVE before.
	blocks map[string]bool
	wire   map[string]json.RawMessage // its object by version, until something changes
}

// active is the binding that counts.
func (p *Port) active() *Binding {
	for _, b := range p.Bindings {
		if b.Status == active {
			return b
		}
	}
	return &Binding{Status: active, VIFType: unbound} // never: a port is born with one
}

// Host is the host of the active binding; empty for none.
func (p *Port) Host() string { return p.active().Host }

// Group is a security group.
type Group struct {
	ID, Name, Project, Description string
	Default, Stateful              bool
	Rules                          []*Rule
	stamp
}

// Rule is a rule of a security group.
type Rule struct {
	ID, GroupID, Project, Description string
	Direction, EtherType              string
	Protocol                          string
	PortMin, PortMax                  *int
	RemotePrefix                      string
	RemoteGroup, RemoteAddressGroup   string
	inDefault                         bool // the rule of a default group
	stamp
}

// AddressGroup is a named set of address ranges.
type AddressGroup struct {
	ID, Name, Project, Description string
	Addresses                      []string
	stamp
}

// Agent is an agent that has reported.
type Agent struct {
	ID, Type, Binary, Host, Topic string
	Configurations                json.RawMessage
	Started, Created, Heartbeat   time.Time

	pretended bool              // it does not exist, so it does not die either
	versions  map[string]string // of the objects that it listens to, by kind
	conf      struct {
		BridgeMappings map[string]string `json:"bridge_mappings"`
		TunnelTypes    []string          `json:"tunnel_types"`
		TunnelingIP    string            `json:"tunneling_ip"`
		Bridge         string            `json:"integration_bridge"`
		DatapathType   string            `json:"datapath_type"`
		HybridPlug     bool              `json:"ovs_hybrid_plug"`
	}
}

// downTime is how long after its last report an agent counts as alive; Neutron's agent_down_time.
const downTime = 75 * time.Second

// Alive tells whether it has reported lately.
func (a *Agent) Alive() bool { return a.pretended || time.Since(a.Heartbeat) < downTime }

const (
	active   = "ACTIVE"
	inactive = "INACTIVE"
	down     = "DOWN"

	unbound = "unbound"
	bound   = "ovs"
	failed  = "binding_failed"
)

// stamp is what every object of Neutron's has.
type stamp struct {
	Revision         int
	Created, Updated time.Time
}

func born() stamp {
	now := time.Now().UTC()
	return stamp{Created: now, Updated: now}
}

// touch counts a change.
func (s *stamp) touch() {
	s.Revision++
	s.Updated = time.Now().UTC()
}

// timestamp is the form of times in objects and in the API.
const timestamp = "2006-01-02T15:04:05Z"

// newID makes an identifier in the form of a uuid4; s.mu is held.
func (s *Region) newID() string {
	var b [16]byte
	if s.rnd != nil {
		binary.BigEndian.PutUint64(b[:8], s.rnd.Uint64())
		binary.BigEndian.PutUint64(b[8:], s.rnd.Uint64())
	} else {
		_, _ = rand.Read(b[:]) // never fails
	}
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
