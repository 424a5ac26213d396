// SPDX-License-Identifier: Apache-2.0

// Package effect has the inputs and the outputs of the agent's decisions: events, and effects, as plain data.
//
// Package core takes events and returns effects. Package runner carries effects out. An effect ends in one event, its outcome, which is named
// with it; a panic of the work is the outcome's error, see [Try]. Four effects have none, because it would only turn the loop: [HangUp] ends in
// the [BridgeLinked] of the connection, [SendPackets] and [WriteRecords] are not repeated, and of [Notify] only a failure is an event.
//
// An effect prints the same text whenever it says the same, see [Effects.String]. A connection to a bridge is a handle: it is compared, and printed
// by the name of its bridge.
package effect

import (
	"encoding/json"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Conn is a connection to a bridge.
type Conn = dataplane.Conn

// Event is something that happened. What it points to does not change any more.
type Event interface{ event() }

// What happens by itself.
type (
	// SwitchChanged says that rows of the switch's database changed, or its connection did.
	SwitchChanged struct{ Batch *ovsdb.Batch }
	// Message is what the server sent.
	Message struct{ *messaging.Message }
	// Broker is what happened to the broker's connection.
	Broker struct{ messaging.Event }
	// Dropped says that the broker's client has dropped messages.
	Dropped struct {
		Count, Large int               // Large: of these, for their size
		Latest       messaging.Dropped // one of them; one that was too large, if any was
	}
	// BridgeLinked says that the connection to a bridge came up, or broke, or could not be made.
	BridgeLinked struct {
		Bridge string
		Conn   Conn // nil: there is none
		Err    error
	}
	// FlowsChanged is what the switch reports: changes that are not ours, or that reports were lost.
	FlowsChanged struct {
		Bridge  string
		Conn    Conn
		Updates []openflow.FlowUpdate
		Lost    bool
	}
	// PacketIn is a packet that a flow sent to the controller.
	PacketIn struct {
		Bridge string
		Conn   Conn
		Packet *openflow.PacketIn
		// Limited is how many packets of the same flow came just before it and were dropped, because there were too many.
		Limited uint64
	}
	// PacketsUnheard says that a further connection for packets of a bridge could not be made: those that flows send there are lost.
	PacketsUnheard struct {
		Bridge string
		Err    error
	}
	// ReportDue says that it is time for a state report.
	ReportDue struct{}
	// WatchdogDue says that it is time to tell the service manager that the loop goes round.
	WatchdogDue struct{}
)

// Outcomes of effects.
type (
	// Registered is the outcome of [Register]. Without an error a server is alive, and everything it sends from now on reaches us.
	Registered struct {
		Releases string
		Versions neutron.Versions
		Removed  []string // queues of an earlier agent
		Err      error
	}
	// StateReported is the outcome of [ReportState].
	StateReported struct {
		Status neutron.AgentStatus
		Err    error
		Took   time.Duration
	}
	// Pulled is the outcome of [Pull].
	Pulled struct {
		Batch pull.Batch
		Reply
		Err  error // there is no answer; or, about ports, parts of it cannot be read
		Took time.Duration
	}
	// PortsReported is the outcome of [ReportPorts].
	PortsReported struct {
		Batch  report.Batch
		Result neutron.DeviceResult
		Err    error
	}
	// DatabaseAsked is the outcome of [AskDatabase].
	DatabaseAsked struct{ Err error }
	// Called is the outcome of [CallExtension].
	Called struct {
		CallKey
		Result any
		Err    error
		// Heard is what the server answered meanwhile, from which Result follows.
		Heard []Heard
	}
	// Applied is the outcome of [Apply].
	Applied struct{ *dataplane.Round }
	// FlowsRead is the outcome of [ReadFlows].
	FlowsRead struct{ dataplane.Reading }
	// ConnectionsListed is the outcome of [ListConnections]: the marked connections of zones.
	ConnectionsListed struct {
		Found []zones.Connections
		Took  time.Duration
		Err   error
	}
	// ConnectionsReleased is the outcome of [ReleaseConnections].
	ConnectionsReleased struct {
		N   int
		Err error
	}
	// RulesRead is the outcome of [ReadRules].
	RulesRead struct {
		State iptables.State
		Asked bool   // see [ReadRules].Other
		Other string // the program that shows rules of the agent in another back end
		Err   error
	}
	// RulesApplied is the outcome of [ApplyRules].
	RulesApplied struct {
		Changes *iptables.Changes
		Err     error
	}
	// ConnectionsEnded is the outcome of [EndConnections].
	ConnectionsEnded struct {
		N   int
		Err error
	}
	// DeviceChanged says that the link of a device has changed, see [WatchDevices]; without a name it may be any. With an error, which is its
	// outcome, nothing is told any more.
	DeviceChanged struct {
		Extension int
		Device    string
		Err       error
	}
	// ForwardingRead is the outcome of [ReadForwarding].
	ForwardingRead struct {
		Extension int
		Devices   []string
		Tables    forwarding.Tables
		Err       error
	}
	// ForwardingChanged is the outcome of [ChangeForwarding].
	ForwardingChanged struct {
		Extension int
		Changes   forwarding.Changes
		Err       error
	}
	// Served says how a service is, see [Serve]. With an error the service has ended.
	Served struct {
		Extension int
		State     metaproxy.State
		Err       error
	}
	// ResolverAnswered is the outcome of [AskResolver].
	ResolverAnswered struct {
		Extension int
		Bridge    string
		Conn      Conn
		Answer    resolver.Answer
		Err       error // why there is none
	}
	// Saved is the outcome of [Save].
	Saved struct{ Err error }
	// NotifyFailed says that the service manager could not be told, see [Notify].
	NotifyFailed struct{ Err error }
	// FollowFailed says that reports of a bridge are not passed on any more, because of a panic. Its connection is closed.
	FollowFailed struct{ Err error }
	// AnswerFailed says that answering a question panicked.
	AnswerFailed struct{ Err error }
)

// Reply is what the server said. Which of the lists is used follows from what was asked for.
type Reply struct {
	Ports     []neutron.Port
	Groups    []neutron.SecurityGroup
	Members   []neutron.Member
	Addresses []neutron.AddressGroup
	Tunnels   []neutron.Tunnel
	Objects   []neutron.Primitive // for an extension
	Unread    []string            // ids of what cannot be read, empty where not even that can be read
	Bad       error               // why
}

// Heard is what the server answered to one request.
type Heard struct {
	Result json.RawMessage
	Err    error
}

// CallKey is a call of an extension.
type CallKey struct {
	Extension int // its place in the list
	Key       extension.Key
}

func (SwitchChanged) event()       {}
func (Message) event()             {}
func (Broker) event()              {}
func (Dropped) event()             {}
func (BridgeLinked) event()        {}
func (FlowsChanged) event()        {}
func (PacketIn) event()            {}
func (ReportDue) event()           {}
func (WatchdogDue) event()         {}
func (Registered) event()          {}
func (StateReported) event()       {}
func (Pulled) event()              {}
func (PortsReported) event()       {}
func (DatabaseAsked) event()       {}
func (Called) event()              {}
func (Applied) event()             {}
func (FlowsRead) event()           {}
func (ConnectionsListed) event()   {}
func (ConnectionsReleased) event() {}
func (RulesRead) event()           {}
func (RulesApplied) event()        {}
func (ConnectionsEnded) event()    {}
func (DeviceChanged) event()       {}
func (ForwardingRead) event()      {}
func (ForwardingChanged) event()   {}
func (Served) event()              {}
func (ResolverAnswered) event()    {}
func (Saved) event()               {}
func (NotifyFailed) event()        {}
func (PacketsUnheard) event()      {}
func (FollowFailed) event()        {}
func (AnswerFailed) event()        {}

// Failure returns the error of an outcome, or nil.
func Failure(e Event) error {
	switch e := e.(type) {
	case Registered:
		return e.Err
	case StateReported:
		return e.Err
	case Pulled:
		return e.Err
	case PortsReported:
		return e.Err
	case DatabaseAsked:
		return e.Err
	case Called:
		return e.Err
	case Applied:
		return e.Err
	case FlowsRead:
		return e.Err
	case ConnectionsListed:
		return e.Err
	case ConnectionsReleased:
		return e.Err
	case RulesRead:
		return e.Err
	case RulesApplied:
		return e.Err
	case ConnectionsEnded:
		return e.Err
	case DeviceChanged:
		return e.Err
	case ForwardingRead:
		return e.Err
	case ForwardingChanged:
		return e.Err
	case Served:
		return e.Err
	case ResolverAnswered:
		return e.Err
	case Saved:
		return e.Err
	case FollowFailed:
		return e.Err
	case AnswerFailed:
		return e.Err
	}
	return nil
}
