// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"bytes"
	"maps"
	"strconv"
)

// AgentStatus is what neutron-server makes of a state report.
type AgentStatus string

// The answers to a state report.
const (
	StatusNew     AgentStatus = "new"
	StatusAlive   AgentStatus = "alive"
	StatusRevived AgentStatus = "revived" // the server had given the agent up for dead: it may have missed news
)

// Identity of the agent in Neutron's database; a contract with the server and with deployment tools.
const (
	Binary    = "neutron-openvswitch-agent"
	AgentType = "Open vSwitch agent"
)

// AgentState is the body of a state report.
type AgentState struct {
	Binary         string         `json:"binary"`
	Host           string         `json:"host"`
	Topic          string         `json:"topic"`
	AgentType      string         `json:"agent_type"`
	Configurations Configurations `json:"configurations"`
	// ResourceVersions goes out until one report succeeded; without it the server keeps what it has.
	ResourceVersions Versions `json:"resource_versions,omitempty"`
	// StartFlag tells the server that this agent has just begun and wants to hear everything again.
	StartFlag bool `json:"start_flag,omitempty"`
	// UUID is new for each report and lets the logs of both sides be matched.
	UUID string `json:"uuid"`
}

// Configurations is the part of a state report that the API shows and port binding reads.
type Configurations struct {
	BridgeMappings             map[string]string            `json:"bridge_mappings"`
	IntegrationBridge          string                       `json:"integration_bridge"`
	TunnelTypes                []string                     `json:"tunnel_types"`
	TunnelingIP                *string                      `json:"tunneling_ip"`
	L2Population               bool                         `json:"l2_population"`
	ARPResponderEnabled        bool                         `json:"arp_responder_enabled"`
	EnableDistributedRouting   bool                         `json:"enable_distributed_routing"`
	LogAgentHeartbeats         bool                         `json:"log_agent_heartbeats"`
	Extensions                 []string                     `json:"extensions"`
	DatapathType               string                       `json:"datapath_type"`
	VhostuserSocketDir         string                       `json:"vhostuser_socket_dir"`
	OVSCapabilities            Capabilities                 `json:"ovs_capabilities"`
	OVSHybridPlug              bool                         `json:"ovs_hybrid_plug"`
	BaremetalSmartnic          bool                         `json:"baremetal_smartnic"`
	Devices                    int                          `json:"devices"`
	InDistributedMode          bool                         `json:"in_distributed_mode"`
	RPBandwidths               map[string]DirectedRate      `json:"resource_provider_bandwidths"`
	RPInventoryDefaults        Inventory                    `json:"resource_provider_inventory_defaults"`
	RPHypervisors              map[string]string            `json:"resource_provider_hypervisors"`
	RPPacketsWithDirection     map[string]DirectedRate      `json:"resource_provider_packet_processing_with_direction"`
	RPPacketsWithoutDirection  map[string]map[string]*int64 `json:"resource_provider_packet_processing_without_direction"`
	RPPacketsInventoryDefaults Inventory                    `json:"resource_provider_packet_processing_inventory_defaults"`
	// Patchbay is the version of the program, where the operator wants the API to show it; the Python agent has no such key.
	Patchbay string `json:"patchbay,omitempty"`
	// ImpliedRP is the resource provider of tunnelled networks, when it stands in RPHypervisors although no option mentions it.
	ImpliedRP string `json:"-"`
}

// ConfigurationsFor is the part as agents of the server's release report it. The provider of tunnelled networks came with release 22, whose objects
// are those of 21: a server with these hears of it when an option mentions it.
func ConfigurationsFor(c Configurations, v Versions) Configurations {
	if c.ImpliedRP != "" && !v.Since(23) {
		c.RPHypervisors = maps.Clone(c.RPHypervisors)
		delete(c.RPHypervisors, c.ImpliedRP)
	}
	return c
}

// Capabilities is what the switch says it can do.
type Capabilities struct {
	DatapathTypes []string `json:"datapath_types"`
	IfaceTypes    []string `json:"iface_types"`
}

// DirectedRate is a placement inventory of bandwidth (kbit/s) or packets (kpps); nil is not given.
type DirectedRate struct {
	Egress  *int64 `json:"egress"`
	Ingress *int64 `json:"ingress"`
}

// Inventory holds placement's defaults for an inventory; nil is not given.
type Inventory struct {
	AllocationRatio *Ratio `json:"allocation_ratio,omitempty"`
	MinUnit         *int64 `json:"min_unit,omitempty"`
	MaxUnit         *int64 `json:"max_unit,omitempty"`
	StepSize        *int64 `json:"step_size,omitempty"`
	Reserved        *int64 `json:"reserved,omitempty"`
}

// Ratio is a number that stays a float on the wire: Python writes and compares 1.0, Go would write 1.
type Ratio float64

// MarshalJSON implements json.Marshaler.
func (r Ratio) MarshalJSON() ([]byte, error) {
	b := strconv.AppendFloat(nil, float64(r), 'f', -1, 64)
	if !bytes.ContainsRune(b, '.') {
		b = append(b, ".0"...)
	}
	return b, nil
}
