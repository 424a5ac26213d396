// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Effect is something to do. Its text says all of it, in one line or several.
type Effect interface {
	fmt.Stringer
	effect()
}

// Effects are what follows from events: what to do, in this order, and when to look again.
type Effects struct {
	Do       []Effect
	Progress *Progress // nil: nobody wants to know
	Wake     time.Time // zero: when something happens
}

// Progress is how far the agent has come.
type Progress struct {
	// Idle: the switch is as wanted by what is known, and nothing is on its way to it.
	Idle bool
	// Complete: besides, everything has been told, and what nothing wants is gone.
	Complete bool
	// Missing says in sentences why it is not complete.
	Missing []string
}

// Calls of the server.
type (
	// Register asks a server whether it is alive, finds out its object versions and listens to the topics of exactly these.
	Register struct {
		Kinds        []neutron.Kind
		Topics       []string // besides
		L2Population bool
	}
	// ReportState sends the agent's state.
	ReportState struct {
		State   neutron.AgentState
		Timeout time.Duration
	}
	// Pull asks for objects.
	Pull struct {
		Batch    pull.Batch
		Versions neutron.Versions
	}
	// ReportPorts sends statuses of ports.
	ReportPorts struct{ Batch report.Batch }
	// AskDatabase asks whether the server has its database.
	AskDatabase struct{ Versions neutron.Versions }
	// CallExtension makes a call of an extension.
	CallExtension struct {
		CallKey
		Name string // of the extension
		Run  func(context.Context, *neutron.Server) (any, error)
	}
)

// Changes of the switch, and what is read of it.
type (
	// Dial keeps a connection to a bridge. Every [BridgeLinked] is its outcome.
	Dial struct{ Bridge string }
	// ReadFlows reads the flows of a bridge.
	ReadFlows struct {
		dataplane.Reading
		// Begin: the connection is new. Changes are reported from then on.
		Begin bool
		// AskMeters: it is found out how many meters the bridge can have. Packets: those are passed on that
		// flows of extensions send to the controller, within bounds.
		AskMeters bool
		Packets   map[string]extension.Bound // by extension; nil: none
		// PacketConns is how many further connections there are for packets. Their controller ids begin with 1.
		PacketConns int
	}
	// Apply makes one round of changes.
	Apply struct{ *dataplane.Round }
	// HangUp closes a connection, in place of which there will be a new one.
	HangUp struct {
		Bridge string
		Conn   Conn
	}
	// SendPackets answers a packet.
	SendPackets struct {
		Bridge   string
		Conn     Conn
		Messages []openflow.Message
	}
	// WriteRecords writes lines of an extension's log.
	WriteRecords struct {
		Extension string
		At        time.Time
		Lines     []string
	}
	// ListConnections lists the marked connections of zones.
	ListConnections struct{ Zones []uint16 }
	// ReleaseConnections takes the mark off connections.
	ReleaseConnections struct{ Connections []zones.Connections }
)

// Changes of iptables, and what is read of it.
type (
	// ReadRules reads the rules and sets of the host. Other: and it is looked for rules of another back end.
	ReadRules struct{ Other bool }
	// ApplyRules writes rules and sets.
	ApplyRules struct{ Changes *iptables.Changes }
	// EndConnections deletes tracked connections.
	EndConnections struct{ Connections []iptables.Connections }
)

// Changes of forwarding tables of devices for an extension, given by its place in the list, and what is read of them.
type (
	// WatchDevices has every change of the devices' links told.
	WatchDevices struct {
		Extension int
		Devices   []string
	}
	// ReadForwarding reads the tables of devices.
	ReadForwarding struct {
		Extension int
		Devices   []string
	}
	// ChangeForwarding adds and deletes entries.
	ChangeForwarding struct {
		Extension int
		Changes   forwarding.Changes
	}
)

// Serve has a service answer for an extension, given by its place in the list. Begin: the service does not run yet. Every [Served] is its outcome.
type Serve struct {
	Extension int
	Begin     bool
	Service   *metaproxy.Service
}

// AskResolver asks resolvers for an extension, given by its place in the list. Bridge and Conn are those of the packet that asks.
type AskResolver struct {
	Extension int
	Bridge    string
	Conn      Conn
	Ask       resolver.Ask
}

// Other effects.
type (
	// Save writes the snapshot.
	Save struct {
		Memory *world.Memory
		At     time.Time
	}
	// Notify tells the service manager that the agent is ready, with a line for people; without one, that the loop goes round.
	Notify struct{ Ready string }
)

func (Register) effect()           {}
func (ReportState) effect()        {}
func (Pull) effect()               {}
func (ReportPorts) effect()        {}
func (AskDatabase) effect()        {}
func (CallExtension) effect()      {}
func (Dial) effect()               {}
func (ReadFlows) effect()          {}
func (Apply) effect()              {}
func (HangUp) effect()             {}
func (SendPackets) effect()        {}
func (WriteRecords) effect()       {}
func (ListConnections) effect()    {}
func (ReleaseConnections) effect() {}
func (ReadRules) effect()          {}
func (ApplyRules) effect()         {}
func (EndConnections) effect()     {}
func (WatchDevices) effect()       {}
func (ReadForwarding) effect()     {}
func (ChangeForwarding) effect()   {}
func (Serve) effect()              {}
func (AskResolver) effect()        {}
func (Save) effect()               {}
func (Notify) effect()             {}

func (e Register) String() string {
	return fmt.Sprintf("register %q %q %v", e.Kinds, e.Topics, e.L2Population)
}

func (e ReportState) String() string {
	return "report_state " + asJSON(e.State) + " within " + e.Timeout.String()
}

func (e Pull) String() string {
	return fmt.Sprintf("pull %+v versions %s", e.Batch, asJSON(e.Versions))
}

func (e ReportPorts) String() string {
	b := &e.Batch
	text := fmt.Sprintf("report ports %+v admin down %q refresh %v repeated %q", b.Update, b.AdminDown, b.Refresh, b.Repeated)
	for _, id := range slices.Sorted(maps.Keys(b.Claims)) {
		c := b.Claims[id] // but for what only decides whether it is reported: records of earlier versions do not have that
		text += fmt.Sprintf("\n\t{Port:%s Status:%d Interface:%s Applied:%v Revision:%d ServerStatus:%s Segment:%v Tunnelled:%v NoEntries:%v}",
			c.Port, c.Status, c.Interface, c.Applied, c.Revision, c.ServerStatus, c.Segment, c.Tunnelled, c.NoEntries)
	}
	return text
}

func (e AskDatabase) String() string { return "ask for the database, versions " + asJSON(e.Versions) }

func (e CallExtension) String() string { return "extension " + e.Name + " calls " + e.Key.String() }

func (e Dial) String() string { return "dial " + e.Bridge }

func (e ReadFlows) String() string {
	return fmt.Sprintf("read flows of %s, begin %v meters %v packets %v max meters %d", e.Bridge, e.Begin, e.AskMeters, len(e.Packets) > 0, e.MaxMeters)
}

func (e HangUp) String() string { return "hang up " + e.Bridge }

func (e SendPackets) String() string { return fmt.Sprintf("send to %s %+v", e.Bridge, e.Messages) }

func (e WriteRecords) String() string {
	return fmt.Sprintf("write records of extension %s at %d %q", e.Extension, e.At.UnixNano(), e.Lines)
}

func (e ListConnections) String() string { return fmt.Sprintf("list connections of zones %v", e.Zones) }

func (e ReleaseConnections) String() string {
	return fmt.Sprintf("release connections %+v", e.Connections)
}

func (e ReadRules) String() string { return fmt.Sprintf("read rules, other %v", e.Other) }

func (e ApplyRules) String() string {
	c := e.Changes
	return fmt.Sprintf("apply rules\n%s%s%s%s", c.Sets, c.Rules[0], c.Rules[1], c.Unused)
}

func (e EndConnections) String() string { return fmt.Sprintf("end connections %+v", e.Connections) }

func (e WatchDevices) String() string { return fmt.Sprintf("watch devices %q", e.Devices) }

func (e ReadForwarding) String() string {
	return fmt.Sprintf("read forwarding tables of %q", e.Devices)
}

func (e ChangeForwarding) String() string {
	return "change forwarding tables\n" + strings.Join(e.Changes.Lines(), "\n")
}

func (e Serve) String() string { return fmt.Sprintf("serve, begin %v: %s", e.Begin, e.Service) }

func (e AskResolver) String() string {
	return fmt.Sprintf("ask resolvers, for %s: %s", e.Bridge, e.Ask)
}

// wholeMemory is how many ports and members a snapshot has at most whose text is told whole. A record of decisions takes the text of each.
const wholeMemory = 500

func (e Save) String() string {
	at := fmt.Sprintf("save at %d ", e.At.UnixNano())
	if m := e.Memory; m != nil && len(m.Ports)+len(m.Members) > wholeMemory {
		return at + fmt.Sprintf("%d ports, %d groups, %d members of %d, %d tunnels, %d segments", len(m.Ports), len(m.Groups), len(m.Members), len(m.Remotes), len(m.Tunnels), len(m.Segments))
	}
	return at + asJSON(e.Memory)
}

func (e Notify) String() string { return fmt.Sprintf("notify %q", e.Ready) }
