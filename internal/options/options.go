// SPDX-License-Identifier: Apache-2.0

package options

import (
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/config"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Options is the configuration of the agent, typed and validated.
type Options struct {
	Default       Default
	Log           Log
	OVS           OVS
	Agent         Agent
	SecurityGroup SecurityGroup
	Rabbit        messaging.Rabbit
	DHCP          DHCP
	LocalIP       LocalIP
	FDB           FDB
	NetworkLog    NetworkLog
	Metadata      Metadata
	DNSForwarder  DNSForwarder
	ML2           ML2
	Reports       Reports
	Patchbay      Patchbay
	// LockPath is [oslo_concurrency] lock_path.
	LockPath string

	conf *config.Config
}

// Default is the [DEFAULT] section without logging.
type Default struct {
	Host                       string // identity towards the server and on the broker
	StatePath                  string
	BaseMAC                    string
	DHCPLeaseDuration          time.Duration
	DNSDomain                  string
	GlobalPhysnetMTU           int
	RPCResourcesProcessingStep int // devices per update_device_list
	RPCResponseTimeout         time.Duration
	RPCResponseMaxTimeout      time.Duration // ceiling of adaptive timeouts
	TransportURL               Secret
	ControlExchange            string
	RPCPingEnabled             bool
}

// Log is the logging part of [DEFAULT]; see [Options.Logging].
type Log struct {
	Debug      bool
	File       string // with Dir in front unless absolute
	Dir        string
	JSON       bool
	Stderr     bool
	Syslog     bool
	Facility   string // of the system log and the journal
	Journal    bool
	DateFormat string // of Python's time.strftime
	Config     string // a Python logging configuration, which replaces all of these
}

// Reports is the [oslo_reports] section: where a report of the agent's state goes, and what asks for one besides SIGUSR2.
type Reports struct {
	Dir      string // "": standard error
	File     string // one that is touched asks for a report
	Interval time.Duration
}

// OVS is the [ovs] section.
type OVS struct {
	IntegrationBridge string
	TunnelBridge      string
	IntPeerPatchPort  string // on the integration bridge
	TunPeerPatchPort  string // on the tunnel bridge
	LocalIP           string // tunnel endpoint; "" when there are no tunnels
	BridgeMappings    []Mapping
	DatapathType      string
	VhostUserSockets  string // directory, reported only

	OFListenAddress  string
	OFListenPort     int
	OFConnectTimeout time.Duration
	OFRequestTimeout time.Duration
	OFInactivity     time.Duration // probe interval of controllers and manager

	OVSDBConnection string
	OVSDBTimeout    time.Duration
	SSLKeyFile      string
	SSLCertFile     string
	SSLCACertFile   string

	BridgeMACTableSize    int
	IGMPSnooping          bool
	IGMPFlood             bool
	IGMPFloodReports      bool
	IGMPFloodUnregistered bool
	QoSMeterBandwidth     bool
	TrunkEnabled          bool

	Placement Placement
}

// Placement is what the agent reports for the Placement service.
type Placement struct {
	Bandwidths           map[string]Rates // by bridge
	PacketRates          map[string]Rates // by hypervisor; Any only
	DirectedPacketRates  map[string]Rates // by hypervisor; Egress and Ingress only
	Hypervisors          map[string]string
	DefaultHypervisor    string
	Inventory            Inventory
	PacketInventory      Inventory
	TunnelledNetworkName string // resource provider of tunnelled networks
}

// Rates are kilobits or kilopackets per second; nil: not given.
type Rates struct{ Egress, Ingress, Any *int }

// Inventory is the defaults of a Placement inventory; nil: not given.
type Inventory struct {
	AllocationRatio                      *float64
	MinUnit, MaxUnit, StepSize, Reserved *int
}

// Mapping is one "key:value" of a mapping list.
type Mapping struct{ Physnet, Bridge string }

// Agent is the [agent] section.
type Agent struct {
	DSCP                 *int // of the outer header; nil: not set
	DSCPInherit          bool
	TunnelTypes          []string
	VXLANUDPPort         int
	L2Population         bool
	ARPResponder         bool // already false when L2Population is, and true where distributed routing needs it
	DontFragment         bool
	DistributedRouting   bool
	TunnelCsum           bool
	BaremetalSmartNIC    bool
	ExplicitEgressDirect bool
	RuleComments         bool
	Extensions           []string
	ReportInterval       time.Duration
	LogHeartbeats        bool // reported only
}

// SecurityGroup is the [securitygroup] section.
type SecurityGroup struct {
	FirewallDriver      string // "": noop
	Enabled             bool
	IPSets              bool
	PermittedEthertypes []uint16
}

// Driver is the firewall: [FirewallOpenVSwitch], [FirewallHybrid] or [FirewallNone].
func (s SecurityGroup) Driver() string { return driver(s.FirewallDriver) }

// DHCP is the [dhcp] section, of the dhcp extension.
type DHCP struct {
	EnableIPv6    bool
	RenewalTime   time.Duration
	RebindingTime time.Duration
}

// LocalIP is the [local_ip] section, of the local_ip extension.
type LocalIP struct{ StaticNAT bool }

// FDB is the [fdb] section, of the fdb extension.
type FDB struct{ SharedDevices []string }

// NetworkLog is the [network_log] section, of the log extension.
type NetworkLog struct {
	RateLimit  int // messages per second
	BurstLimit int
	OutputFile string // "": the system log
}

// Metadata is the [metadata] section, of the metadata_path extension.
type Metadata struct {
	ProviderCIDR      string
	ProviderVLAN      int
	ProviderBaseMAC   string
	HostProxyPort     int
	NovaHost          string
	NovaPort          int
	NovaProtocol      string
	NovaInsecure      bool
	SharedSecret      Secret
	AuthCACert        string
	NovaClientCert    string
	NovaClientPrivKey string
}

// DNSForwarder is the [dns_forwarder] section, of the dns_forwarder extension.
type DNSForwarder struct {
	Upstream        []string
	UpstreamTimeout time.Duration
	Listen          []string
}

// ML2 is the part of the [ml2] section that the agent reads.
type ML2 struct{ TunnelledNetworkRPName string }

// Patchbay is the [patchbay] section, which only Patchbay reads.
type Patchbay struct {
	FailClosed       bool
	AdminSocket      string // path; "": none
	AdminSocketGroup string // "": the agent's own
	MetricsListen    string // address and port; "": nowhere but on the socket
	ConntrackLimit   int    // tracked connections a network may have; 0: no limit
	DropFragments    bool   // where the switch could let them out to others
	// UnknownExtensions is what an extension leads to that Patchbay does not have: stop or ignore.
	UnknownExtensions string
	ReportVersion     bool // in the state report
	TapeSize          int  // MiB; 0: inputs are not recorded
	FanoutStream      bool // one stream on the broker for what is sent to all agents
}
