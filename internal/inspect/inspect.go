// SPDX-License-Identifier: Apache-2.0

// Package inspect is what an agent shows of itself: plain documents, the same on the admin socket, in `--json`, in a support
// bundle and on the map.
//
// The agent's loop fills them in (package agent implements [Source]), package admin serves them, and the commands and the map
// read them. They hold copies, so that a reader may take its time. Field names in JSON are a contract: fields are added, not
// renamed.
package inspect

import (
	"context"
	"errors"
	"time"
)

// Source answers questions about a running agent. Every answer is a copy, taken in one moment of the loop.
type Source interface {
	Status(ctx context.Context) (Status, error)
	Ports(ctx context.Context) ([]Port, error)
	Networks(ctx context.Context) ([]Network, error)
	Tunnels(ctx context.Context) ([]Tunnel, error)
	Groups(ctx context.Context) ([]Group, error)
	Bridges(ctx context.Context) ([]Bridge, error)
	// Flows are those of one bridge, or of all bridges when it is empty.
	Flows(ctx context.Context, bridge string) ([]Flow, error)
	// Events are the last inputs and decisions, oldest first.
	Events(ctx context.Context) ([]Event, error)
}

// Status is how the agent is.
type Status struct {
	Host    string    `json:"host"`
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// InSync: everything is as the server wants it, and the server knows. Otherwise Reasons say what is missing.
	InSync   bool      `json:"in_sync"`
	SyncedAt time.Time `json:"synced_at,omitzero"` // first time in sync
	Reasons  []string  `json:"reasons,omitempty"`  // why it is not in sync, in sentences
	// Changing: the agent is not in sync only because it is making or reporting changes, none of which has failed.
	Changing bool `json:"changing,omitempty"`
	// Ready: the switch has everything that is known to be wanted, since the agent was in sync once or has a snapshot.
	Ready bool `json:"ready"`
	// Awaited are networks whose forwarding entries the server may still send. They do not keep the agent from being in sync.
	Awaited []Awaited `json:"awaited,omitempty"`
	Switch  Peer      `json:"switch"` // the switch's database
	Broker  Peer      `json:"broker"`
	Server  Peer      `json:"server"`
	Bridges []Bridge  `json:"bridges"`
	// Counts by state of ports, by the word for the state.
	Ports    map[string]int `json:"ports"`
	Pending  Pending        `json:"pending"`
	Errors   []Event        `json:"errors,omitempty"` // the last warnings and errors, newest last
	Firewall string         `json:"firewall"`
	// Advisories name, in sentences, what works but leaves a way in: a peer that is not verified, a switch with known holes.
	Advisories []string `json:"advisories,omitempty"`
	// Unmet is what the configuration asks for and is not so, though the agent does its work without it.
	Unmet []Unmet `json:"unmet,omitempty"`
	// FromSnapshot: some ports are wired from the snapshot of an earlier run; the server has not confirmed them yet.
	FromSnapshot bool `json:"from_snapshot,omitempty"`
	// Held is what a panic or an error has put aside: it stays as it was, and is tried again.
	Held   []Held `json:"held,omitempty"`
	Totals Totals `json:"totals"`
}

// Unmet is something that the configuration asks for and that is not so.
type Unmet struct {
	Kind   string `json:"kind"`
	Detail string `json:"detail"` // a sentence
}

// The kinds of what is unmet.
const (
	UnmetExtension = "extension" // one that Patchbay does not have
	UnmetLocalIP   = "local_ip"  // no interface of the host has the tunnel endpoint
	UnmetLog       = "log"       // a log file cannot be opened
)

// Held is something that the agent failed on, and that it keeps from everything else until it succeeds.
type Held struct {
	Object string    `json:"object"` // a port, a group, an extension, or what was being done
	Reason string    `json:"reason"`
	Effect string    `json:"effect,omitempty"` // what it means for traffic meanwhile
	Since  time.Time `json:"since"`
	Failed int       `json:"failed"` // times
	Next   time.Time `json:"next,omitzero"`
}

// Totals count since the start of the agent. They only grow.
type Totals struct {
	Messages    uint64 `json:"messages"`         // that the server sent by itself
	Foreign     uint64 `json:"messages_foreign"` // of these, about nothing that concerns this host
	Dropped     uint64 `json:"messages_dropped"` // that could not be decoded or handled, or were too large; not among the above
	Calls       uint64 `json:"calls"`            // answered questions and reports to the server
	CallsFailed uint64 `json:"calls_failed"`
	Resyncs     uint64 `json:"resyncs"` // everything was asked again, because something may have been missed
	// Apply has the durations of rounds of changes to the switch.
	Apply        Histogram `json:"apply"`
	ApplyFailed  uint64    `json:"apply_failed"`        // rounds of which a part failed
	RowsFailed   uint64    `json:"transactions_failed"` // of OVSDB
	FlowsRefused uint64    `json:"bundles_failed"`      // of OpenFlow
	RulesWritten uint64    `json:"iptables_lines"`      // lines that were written to iptables and ipset
	Panics       uint64    `json:"panics"`              // that the agent recovered from
	// Packets that flows of extensions sent to the agent, by extension and by what became of them.
	Packets map[string]map[string]uint64 `json:"packets,omitempty"`
	// Requests of VMs to the metadata proxy, by what became of them.
	Requests map[string]uint64 `json:"metadata_requests,omitempty"`
	// PluggedOpen are ports that were plugged in without isolation while the agent ran, see os-vif's isolate_vif.
	PluggedOpen uint64 `json:"ports_plugged_open"`
	Warnings    uint64 `json:"log_warnings"`
	Errors      uint64 `json:"log_errors"`
	// Steps of the loop, for how long it was busy, and the longest step.
	Steps          uint64  `json:"loop_steps"`
	BusySeconds    float64 `json:"loop_busy_seconds"`
	LongestSeconds float64 `json:"loop_longest_seconds"`
	// Wired are the times from plugging a port in until the server knew that it is up.
	Wired Histogram `json:"port_wired"`
}

// Histogram counts durations.
type Histogram struct {
	Count   uint64   `json:"count"`
	Seconds float64  `json:"seconds"`           // sum
	Buckets []Bucket `json:"buckets,omitempty"` // by their upper bounds, each with those below
}

// NewHistogram returns a histogram with the upper bounds of its buckets in seconds.
func NewHistogram(bounds ...float64) (h Histogram) {
	for _, b := range bounds {
		h.Buckets = append(h.Buckets, Bucket{Below: b})
	}
	return h
}

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	h.Count, h.Seconds = h.Count+1, h.Seconds+d.Seconds()
	for i := range h.Buckets {
		if d.Seconds() <= h.Buckets[i].Below {
			h.Buckets[i].Count++ // each bucket counts those below, too
		}
	}
}

// Bucket counts durations of at most so many seconds.
type Bucket struct {
	Below float64 `json:"le"`
	Count uint64  `json:"count"`
}

// Awaited is a tunnelled network with ports here for which the server has sent no forwarding entries. It sends them, if there are
// any, before it answers the report of a port, and nothing if no other host has ports of the network.
type Awaited struct {
	Network string    `json:"network"`
	Since   time.Time `json:"since"` // when the server answered the report
	Until   time.Time `json:"until"` // from then on the network counts as one that only this host has ports of
}

// Peer is something the agent talks to.
type Peer struct {
	Up     bool      `json:"up"`
	Since  time.Time `json:"since,omitzero"`
	Detail string    `json:"detail,omitempty"` // address, release, …
	Error  string    `json:"error,omitempty"`
}

// Pending is work that is not done yet.
type Pending struct {
	Rows    int `json:"rows"`    // objects with rows to write
	Flows   int `json:"flows"`   // flows to change
	Details int `json:"ports"`   // ports to pull
	Items   int `json:"groups"`  // groups, members and address groups to pull
	Reports int `json:"reports"` // ports whose status the server does not know
}

// Bridge is a bridge that the agent programs.
type Bridge struct {
	Name       string `json:"name"`
	Role       string `json:"role"` // integration, tunnel, physical
	Physical   string `json:"physical_network,omitempty"`
	Connected  bool   `json:"connected"`
	Error      string `json:"error,omitempty"`
	DatapathID string `json:"datapath_id,omitempty"`
	Wanted     int    `json:"flows_wanted"`
	Present    int    `json:"flows_present"`
	Foreign    int    `json:"flows_foreign"` // there, and nobody's of ours
	Pending    int    `json:"flows_pending"`
	Repaired   uint64 `json:"flows_repaired"` // by others changed or deleted, and put right
	Changed    uint64 `json:"flows_changed"`  // by us, since the start
}

// Port is a port plugged in on this host.
type Port struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"`
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"`
	Interface string    `json:"interface,omitempty"`
	OFPort    uint32    `json:"ofport,omitempty"`
	MAC       string    `json:"mac,omitempty"`
	Addresses []string  `json:"addresses,omitempty"`
	Pairs     []Address `json:"address_pairs,omitempty"`
	Network   string    `json:"network,omitempty"`
	Segment   string    `json:"segment,omitempty"` // type, physical network and number, as text
	VLAN      uint16    `json:"vlan,omitempty"`
	Owner     string    `json:"device_owner,omitempty"`
	Device    string    `json:"device,omitempty"`
	// Role is what the port is if not a VM's: router interface, SNAT, router gateway, floating IP gateway, DHCP, trunk parent, sub-port.
	Role     string    `json:"role,omitempty"`
	Secured  bool      `json:"port_security"`
	Filtered bool      `json:"filtered"`
	Groups   []string  `json:"groups,omitempty"`
	Status   string    `json:"server_status,omitempty"` // ACTIVE, DOWN, BUILD: what the server last said
	Reported string    `json:"reported,omitempty"`      // up, down, admin down: the last status that the server confirmed
	Applied  bool      `json:"applied"`                 // flows and rows are as wanted
	Notes    []string  `json:"notes,omitempty"`         // what extensions do about it, in sentences
	Rules    []string  `json:"iptables,omitempty"`      // rules of iptables in its chains, with the security group rules that they are there for
	Flows    int       `json:"flows"`
	Revision int64     `json:"revision,omitempty"`
	Timeline Timeline  `json:"timeline"`
	Counters *Counters `json:"counters,omitempty"`
}

// Address is a pair of addresses.
type Address struct {
	MAC string `json:"mac"`
	IP  string `json:"ip"`
}

// Timeline is when a port reached which stage.
type Timeline struct {
	Plugged  time.Time `json:"plugged,omitzero"`
	Answered time.Time `json:"answered,omitzero"`
	Applied  time.Time `json:"applied,omitzero"`
	Reported time.Time `json:"reported,omitzero"`
}

// Counters are an interface's, as the switch's database shows them.
type Counters struct {
	RxPackets int64 `json:"rx_packets"`
	RxBytes   int64 `json:"rx_bytes"`
	RxDropped int64 `json:"rx_dropped"`
	TxPackets int64 `json:"tx_packets"`
	TxBytes   int64 `json:"tx_bytes"`
	TxDropped int64 `json:"tx_dropped"`
}

// Network is a segment of a network with ports here.
type Network struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Physical string   `json:"physical_network,omitempty"`
	Number   int      `json:"segmentation_id,omitempty"`
	VLAN     uint16   `json:"vlan"`
	MTU      int      `json:"mtu,omitempty"`
	Ports    []string `json:"ports"`
	// Endpoints are the tunnels over which its broadcasts go.
	Endpoints []string `json:"endpoints,omitempty"`
	Stations  int      `json:"stations,omitempty"` // addresses that the server said are behind them
}

// Tunnel is an endpoint of another host.
type Tunnel struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Remote string `json:"remote"`
	OFPort uint32 `json:"ofport,omitempty"`
	// State is up, missing (wanted and not there) or failed (the switch could not make it).
	State    string   `json:"state"`
	Error    string   `json:"error,omitempty"`
	Networks []string `json:"networks,omitempty"`
	// Counters are of what came and went by it.
	Counters *Counters `json:"counters,omitempty"`
}

// Group is a security group of ports here.
type Group struct {
	ID    string   `json:"id"`
	Name  string   `json:"name,omitempty"`
	Known bool     `json:"known"` // the server has told its rules
	Ports []string `json:"ports"`
	Rules []Rule   `json:"rules"`
}

// Rule is one rule of a group.
type Rule struct {
	ID        string `json:"id"`
	Direction string `json:"direction"`
	EtherType string `json:"ethertype"`
	Protocol  string `json:"protocol,omitempty"`
	PortMin   *int   `json:"port_min,omitempty"`
	PortMax   *int   `json:"port_max,omitempty"`
	Remote    string `json:"remote,omitempty"`  // prefix
	Group     string `json:"group,omitempty"`   // remote group or address group
	Members   int    `json:"members,omitempty"` // of that
	Text      string `json:"text"`              // the rule as one says it: "allow tcp/22 from 10.0.0.0/8"
}

// Flow is a flow of a bridge, wanted, present or both.
type Flow struct {
	Bridge string `json:"bridge"`
	Table  uint8  `json:"table"`
	// Text is the flow as ovs-ofctl writes it, without counters.
	Text   string `json:"flow"`
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"`
	// State is present, missing, different (another action is there), leftover (an agent's, wanted by nobody), learned
	// (made by the switch itself from packets, for a while) or foreign.
	State string `json:"state"`
	// Have is what the switch has instead, if different.
	Have string `json:"have,omitempty"`
	// Packets and Bytes are the switch's counters, where a command has asked for them; the agent does not know them.
	Packets *uint64 `json:"packets,omitempty"`
	Bytes   *uint64 `json:"bytes,omitempty"`
}

// Event is one input or decision.
type Event struct {
	// Seq numbers the events of one run, from 1.
	Seq   uint64    `json:"seq,omitempty"`
	Time  time.Time `json:"time"`
	Level string    `json:"level,omitempty"` // info, warning or error, of a line of the log
	Kind  string    `json:"kind"`            // switch, push, call, reply, report, flows, rows, broker, drift, log …
	Text  string    `json:"text"`
	// Subject is the id of the port, network or group that it is about, if it is about one.
	Subject string `json:"subject,omitempty"`
	// Count: so many like it came in a row, the last one at Until.
	Count int       `json:"count,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// ErrNotFound says that there is no such thing.
var ErrNotFound = errors.New("not found")
