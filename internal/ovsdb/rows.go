// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"slices"
	"strings"
)

// UUID identifies a row for its whole life. It is never used again.
type UUID string

// OpenVSwitch is the one row of the table Open_vSwitch.
type OpenVSwitch struct {
	UUID          UUID
	Bridges       []UUID
	Managers      []UUID
	OtherConfig   map[string]string
	ExternalIDs   map[string]string
	CurCfg        int
	OVSVersion    string
	DatapathTypes []string
	IfaceTypes    []string
}

// Bridge is a row of the table Bridge.
type Bridge struct {
	UUID                UUID
	Name                string
	Ports               []UUID // sorted
	Controllers         []UUID // sorted
	Mirrors             []UUID // sorted
	DatapathType        string
	DatapathID          string // 16 hexadecimal digits, empty until ovs-vswitchd has made the bridge
	FailMode            string // "secure", "standalone" or empty
	Protocols           []string
	McastSnoopingEnable bool
	OtherConfig         map[string]string
	ExternalIDs         map[string]string
}

// Port is a row of the table Port.
type Port struct {
	UUID        UUID
	Name        string
	Interfaces  []UUID // sorted
	Tag         *int   // nil when not set
	VLANMode    string // empty when not set
	Trunks      []int  // sorted
	QoS         UUID   // empty when not set
	OtherConfig map[string]string
	ExternalIDs map[string]string
}

// Interface is a row of the table Interface.
type Interface struct {
	UUID UUID
	Name string
	Type string
	// OFPort is nil until ovs-vswitchd has tried to create the interface, and -1 when it could not.
	OFPort               *int
	Options              map[string]string
	ExternalIDs          map[string]string
	Error                string // why OFPort is -1
	IngressPolicingRate  int    // kbit/s, 0 is no limit
	IngressPolicingBurst int    // kbit
	MTU                  *int   // bytes; nil while it is not known
	OtherConfig          map[string]string
}

// Controller is a row of the table Controller.
type Controller struct {
	UUID            UUID
	Target          string
	ConnectionMode  string
	InactivityProbe *int // ms
	RateLimit       *int // packets/s
	BurstLimit      *int // packets
	IsConnected     bool
}

// Manager is a row of the table Manager.
type Manager struct {
	UUID            UUID
	Target          string
	InactivityProbe *int // ms
}

// QoS is a row of the table QoS.
type QoS struct {
	UUID        UUID
	Type        string
	Queues      map[int]UUID
	OtherConfig map[string]string
	ExternalIDs map[string]string
}

// Queue is a row of the table Queue.
type Queue struct {
	UUID        UUID
	OtherConfig map[string]string
	ExternalIDs map[string]string
}

// Mirror is a row of the table Mirror. When a port that it names is deleted, the database takes it out of the row.
type Mirror struct {
	UUID        UUID
	Name        string
	SelectAll   bool
	SelectSrc   []UUID // ports whose packets are copied as they come in; sorted
	SelectDst   []UUID // ports whose packets are copied as they go out; sorted
	Output      UUID   // port that copies go to; empty when not set
	ExternalIDs map[string]string
}

// Capabilities is what the agent's state report says about the switch.
type Capabilities struct {
	DatapathTypes []string
	IfaceTypes    []string
	OVSVersion    string
	HWOffload     bool
}

// Capabilities reads them from the row. The lists are empty until ovs-vswitchd has run once on this database.
func (o *OpenVSwitch) Capabilities() Capabilities {
	return Capabilities{
		DatapathTypes: slices.Clone(o.DatapathTypes),
		IfaceTypes:    slices.Clone(o.IfaceTypes),
		OVSVersion:    o.OVSVersion,
		HWOffload:     strings.EqualFold(o.OtherConfig["hw-offload"], "true"),
	}
}
