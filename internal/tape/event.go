// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// document is an event as data.
type document struct {
	Kind   string        `json:"event"`
	Bridge string        `json:"bridge,omitempty"`
	Conn   int           `json:"conn,omitempty"` // the number of a connection; 0: none
	N      int           `json:"n,omitempty"`    // a count, or the place of an extension
	Text   string        `json:"text,omitempty"`
	Took   time.Duration `json:"took,omitempty"`
	Err    *failure      `json:"err,omitempty"`
	// Of is what the kind has besides.
	Of json.RawMessage `json:"of,omitempty"`
}

// What the kinds have besides.
type (
	messageDoc struct {
		Topic, Method, Namespace, Version string
		Fanout, Directed                  bool
		ID                                string          `json:",omitempty"`
		Args                              json.RawMessage `json:",omitempty"`
		Bytes                             []byte          `json:",omitempty"` // in place of Args that are no JSON
	}
	droppedDoc struct {
		Large                int
		Exchange, RoutingKey string
	}
	updateDoc struct {
		Event  openflow.MonitorEvent
		Reason openflow.RemovedReason
		XID    uint32
		Entry  string
	}
	updatesDoc struct {
		Updates []updateDoc
		Lost    bool
	}
	packetDoc struct {
		openflow.PacketIn
		Metadata []termDoc
	}
	termDoc struct {
		Field       openflow.Field
		Value, Mask openflow.Value
		Raw         []byte `json:",omitempty"`
	}
	registeredDoc struct {
		Releases string
		Versions neutron.Versions
		Removed  []string
	}
	pulledDoc struct {
		Batch     pull.Batch
		Ports     []neutron.Port          `json:",omitempty"`
		Groups    []neutron.SecurityGroup `json:",omitempty"`
		Members   []neutron.Member        `json:",omitempty"`
		Addresses []neutron.AddressGroup  `json:",omitempty"`
		Tunnels   []neutron.Tunnel        `json:",omitempty"`
		Objects   []neutron.Primitive     `json:",omitempty"`
		Unread    []string                `json:",omitempty"`
		Bad       *failure                `json:",omitempty"`
	}
	heardDoc struct {
		Result json.RawMessage `json:",omitempty"`
		Err    *failure        `json:",omitempty"`
	}
	appliedDoc struct {
		Seq       uint64
		RowErrs   []*failure `json:",omitempty"`
		LimitsErr *failure   `json:",omitempty"`
		Limited   int        `json:",omitempty"`
		FlushErrs []*failure `json:",omitempty"`
		Bundles   []bundleDoc
	}
	bundleDoc struct {
		Meters   []dataplane.MeterDone `json:",omitempty"`
		MeterErr *failure              `json:",omitempty"`
		Err      *failure              `json:",omitempty"`
	}
	readDoc struct {
		Flows       []string
		Meters      []openflow.MeterDesc `json:",omitempty"`
		MaxMeters   uint32               `json:",omitempty"`
		Unmonitored *failure             `json:",omitempty"`
	}
	rulesDoc struct {
		State iptables.State
		Asked bool
		Other string
	}
	forwardingDoc struct {
		Devices []string
		Tables  forwarding.Tables
	}
)

// The kinds of events, by the names that people read.
const (
	kindSwitch         = "rows changed"
	kindMessage        = "message"
	kindBroker         = "broker"
	kindDropped        = "messages dropped"
	kindLinked         = "bridge linked"
	kindFlows          = "flows changed"
	kindPacket         = "packet"
	kindUnheard        = "packets unheard"
	kindReportDue      = "report due"
	kindWatchdogDue    = "watchdog due"
	kindRegistered     = "registered"
	kindStateReported  = "state reported"
	kindPulled         = "pulled"
	kindPortsReported  = "ports reported"
	kindDatabase       = "database asked"
	kindCalled         = "extension called"
	kindApplied        = "changes applied"
	kindRead           = "flows read"
	kindListed         = "connections listed"
	kindReleased       = "connections released"
	kindRulesRead      = "rules read"
	kindRulesApplied   = "rules applied"
	kindEnded          = "connections ended"
	kindDevice         = "device changed"
	kindForwardingRead = "forwarding read"
	kindForwarding     = "forwarding changed"
	kindServed         = "service"
	kindResolver       = "resolver answered"
	kindSaved          = "snapshot written"
	kindNotifyFailed   = "notify failed"
	kindFollowFailed   = "follow failed"
	kindAnswerFailed   = "answer failed"
)

// encoder turns events into data.
type encoder struct {
	recent map[string][]numbered // connections by bridge, the newest last
	last   int
}

type numbered struct {
	conn effect.Conn
	n    int
}

// maxRecent is how many connections of a bridge are known at a time. An outcome on an earlier one gets a new number: it counts for nothing either way.
const maxRecent = 8

// number returns the number of a connection; 0 for none.
func (c *encoder) number(bridge string, conn effect.Conn) int {
	if conn == nil {
		return 0
	}
	for _, known := range c.recent[bridge] {
		if known.conn == conn {
			return known.n
		}
	}
	c.last++
	if c.recent == nil {
		c.recent = map[string][]numbered{}
	}
	list := append(c.recent[bridge], numbered{conn, c.last})
	c.recent[bridge] = list[max(0, len(list)-maxRecent):]
	return c.last
}

// document returns an event as data.
func (c *encoder) document(e effect.Event) (document, error) {
	d, of := c.outcome(e)
	if d.Kind == "" {
		d, of = c.happened(e)
	}
	if d.Kind == "" {
		return d, fmt.Errorf("an event that no tape can hold: %T", e)
	}
	if of == nil {
		return d, nil
	}
	text, err := marshal(of)
	if err != nil {
		return d, fmt.Errorf("recording the event %q: %w", d.Kind, err)
	}
	d.Of = text
	return d, nil
}

// happened returns what happened by itself.
func (c *encoder) happened(e effect.Event) (d document, of any) {
	switch e := e.(type) {
	case effect.SwitchChanged:
		rows := *e.Batch
		rows.Err = nil
		return document{Kind: kindSwitch, Err: failureOf(e.Batch.Err)}, rows
	case effect.Message:
		m := messageDoc{
			Topic: e.Topic, Method: e.Method, Namespace: e.Namespace, Version: e.Version, Fanout: e.Fanout, Directed: e.Directed, ID: e.ID, Args: e.Args,
		}
		if !json.Valid(m.Args) {
			m.Args, m.Bytes = nil, e.Args
		}
		return document{Kind: kindMessage}, m
	case effect.Broker:
		b, err := brokerDocOf(e.Event)
		return document{Kind: kindBroker, Err: failureOf(err)}, b
	case effect.Dropped:
		return document{Kind: kindDropped, N: e.Count, Err: failureOf(e.Latest.Err)}, droppedDoc{e.Large, e.Latest.Exchange, e.Latest.RoutingKey}
	case effect.BridgeLinked:
		return document{Kind: kindLinked, Bridge: e.Bridge, Conn: c.number(e.Bridge, e.Conn), Err: failureOf(e.Err)}, nil
	case effect.FlowsChanged:
		list := updatesDoc{Lost: e.Lost}
		for _, u := range e.Updates {
			list.Updates = append(list.Updates, updateDoc{u.Event, u.Reason, u.XID, entryText(u.Entry)})
		}
		return document{Kind: kindFlows, Bridge: e.Bridge, Conn: c.number(e.Bridge, e.Conn)}, list
	case effect.PacketIn:
		p := packetDoc{PacketIn: *e.Packet}
		for _, t := range e.Packet.Metadata {
			p.Metadata = append(p.Metadata, termDoc{t.Field, t.Value, t.Mask, []byte(t.Raw)})
		}
		return document{Kind: kindPacket, Bridge: e.Bridge, Conn: c.number(e.Bridge, e.Conn), N: int(e.Limited)}, p //nolint:gosec // a count
	case effect.PacketsUnheard:
		return document{Kind: kindUnheard, Bridge: e.Bridge, Err: failureOf(e.Err)}, nil
	case effect.ReportDue:
		return document{Kind: kindReportDue}, nil
	case effect.WatchdogDue:
		return document{Kind: kindWatchdogDue}, nil
	case effect.NotifyFailed:
		return document{Kind: kindNotifyFailed, Err: failureOf(e.Err)}, nil
	case effect.FollowFailed:
		return document{Kind: kindFollowFailed, Err: failureOf(e.Err)}, nil
	case effect.AnswerFailed:
		return document{Kind: kindAnswerFailed, Err: failureOf(e.Err)}, nil
	case effect.DeviceChanged:
		return document{Kind: kindDevice, N: e.Extension, Text: e.Device, Err: failureOf(e.Err)}, nil
	}
	return document{}, nil
}

// outcome returns the outcome of an effect.
func (c *encoder) outcome(e effect.Event) (d document, of any) {
	d.Err = failureOf(effect.Failure(e))
	switch e := e.(type) {
	case effect.Registered:
		d.Kind, of = kindRegistered, registeredDoc{e.Releases, e.Versions, e.Removed}
	case effect.StateReported:
		d.Kind, d.Text, d.Took = kindStateReported, string(e.Status), e.Took
	case effect.Pulled:
		d.Kind, d.Took = kindPulled, e.Took
		of = pulledDoc{e.Batch, e.Ports, e.Groups, e.Members, e.Addresses, e.Tunnels, e.Objects, e.Unread, failureOf(e.Bad)}
	case effect.PortsReported:
		d.Kind, d.N, of = kindPortsReported, e.Batch.Number(), e.Result
	case effect.DatabaseAsked:
		d.Kind = kindDatabase
	case effect.Called:
		list := []heardDoc{}
		for _, h := range e.Heard {
			list = append(list, heardDoc{h.Result, failureOf(h.Err)})
		}
		d.Kind, d.N, d.Text, of = kindCalled, e.Extension, e.Key.String(), list
	case effect.Applied:
		b := e.Became()
		a := appliedDoc{Seq: b.Seq, RowErrs: failuresOf(b.RowErrs), LimitsErr: failureOf(b.LimitsErr), Limited: b.Limited, FlushErrs: failuresOf(b.FlushErrs)}
		for _, each := range b.Bundles {
			a.Bundles = append(a.Bundles, bundleDoc{each.Meters, failureOf(each.MeterErr), failureOf(each.Err)})
		}
		d.Kind, d.Took, of = kindApplied, b.Took, a
	case effect.FlowsRead:
		r := readDoc{Meters: e.Meters, MaxMeters: e.MaxMeters, Unmonitored: failureOf(e.Unmonitored), Flows: make([]string, len(e.Flows))}
		for i, f := range e.Flows {
			r.Flows[i] = entryText(f)
		}
		d.Kind, d.Bridge, d.Conn, of = kindRead, e.Bridge, c.number(e.Bridge, e.Conn), r
	case effect.ConnectionsListed:
		d.Kind, d.Took, of = kindListed, e.Took, e.Found
	case effect.ConnectionsReleased:
		d.Kind, d.N = kindReleased, e.N
	case effect.RulesRead:
		d.Kind, of = kindRulesRead, rulesDoc{e.State, e.Asked, e.Other}
	case effect.RulesApplied:
		d.Kind = kindRulesApplied
	case effect.ConnectionsEnded:
		d.Kind, d.N = kindEnded, e.N
	case effect.ForwardingRead:
		d.Kind, d.N, of = kindForwardingRead, e.Extension, forwardingDoc{e.Devices, e.Tables}
	case effect.ForwardingChanged:
		d.Kind, d.N, of = kindForwarding, e.Extension, e.Changes
	case effect.Served:
		d.Kind, d.N, of = kindServed, e.Extension, e.State
	case effect.ResolverAnswered:
		d.Kind, d.N, d.Bridge, d.Conn, of = kindResolver, e.Extension, e.Bridge, c.number(e.Bridge, e.Conn), e.Answer
	case effect.Saved:
		d.Kind = kindSaved
	}
	return d, of
}

func entryText(e openflow.Entry) string { return hex.EncodeToString([]byte(e.Canonical())) }

// brokerDoc is an event of the broker's connection. Which fields count depends on What.
type brokerDoc struct {
	What                                               string
	Addr, TLS, Broker, Queue, Name, Reason, Do, Method string        `json:",omitempty"`
	Took                                               time.Duration `json:",omitempty"`
}

func brokerDocOf(e messaging.Event) (brokerDoc, error) {
	switch e := e.(type) {
	case messaging.Connected:
		return brokerDoc{What: "connected", Addr: e.Addr, TLS: e.TLS, Broker: e.Broker, Took: e.Setup}, nil
	case messaging.ConnectFailed:
		return brokerDoc{What: "connecting failed", Addr: e.Addr, Took: e.Next}, e.Err
	case messaging.Disconnected:
		return brokerDoc{What: "disconnected", Addr: e.Addr}, e.Err
	case messaging.Gap:
		return brokerDoc{What: "gap", Queue: e.Queue, Reason: e.Reason}, nil
	case messaging.Blocked:
		return brokerDoc{What: "blocked", Reason: e.Reason}, nil
	case messaging.Unblocked:
		return brokerDoc{What: "unblocked"}, nil
	case messaging.Refused:
		return brokerDoc{What: "refused", Addr: e.Addr, Took: e.Next, Queue: e.Err.Queue, Do: e.Err.Do}, e.Err.Err
	case messaging.SetupFailed:
		return brokerDoc{What: "setup failed", Queue: e.Queue, Took: e.Next}, e.Err
	case messaging.Fallback:
		return brokerDoc{What: "fallback", Name: e.Name, Reason: e.Reason}, nil
	case messaging.NoHub:
		return brokerDoc{What: "no hub", Name: e.Name, Reason: e.Reason}, nil
	case messaging.NoStream:
		return brokerDoc{What: "no stream", Name: e.Name, Reason: e.Reason}, nil
	case messaging.ReplyAbandoned:
		return brokerDoc{What: "reply abandoned", Queue: e.Queue, Method: e.Method}, e.Err
	}
	return brokerDoc{What: fmt.Sprintf("%T", e)}, nil
}
