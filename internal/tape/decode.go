// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// conn is a connection to a bridge that was there when the tape was recorded. It is only compared with others.
type conn struct {
	effect.Conn
	n int
}

// flight is what was started and has no outcome yet. Outcomes on the tape refer to it.
type flight struct {
	host    string
	conns   map[int]*conn
	round   *dataplane.Round
	rules   *iptables.Changes
	reports map[int]report.Batch
	calls   map[string]effect.CallExtension
}

func newFlight(host string) flight {
	return flight{host: host, conns: map[int]*conn{}, reports: map[int]report.Batch{}, calls: map[string]effect.CallExtension{}}
}

// started takes effects that were decided on.
func (f *flight) started(effects []effect.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case effect.Apply:
			f.round = e.Round
		case effect.ApplyRules:
			f.rules = e.Changes
		case effect.ReportPorts:
			f.reports[e.Batch.Number()] = e.Batch
		case effect.CallExtension:
			f.calls[callName(e.Extension, e.Key.String())] = e
		}
	}
}

func callName(extension int, key string) string { return fmt.Sprintf("%d %s", extension, key) }

// conn returns the connection with a number; nil for 0.
func (f *flight) conn(n int) effect.Conn {
	if n == 0 {
		return nil
	}
	if f.conns[n] == nil {
		f.conns[n] = &conn{n: n}
	}
	return f.conns[n]
}

// of reads what the kind of a document has besides.
func of[T any](d *document) (v T, err error) {
	if len(d.Of) == 0 {
		return v, nil
	}
	if err = json.Unmarshal(d.Of, &v); err != nil {
		err = fmt.Errorf("the event %q cannot be read: %w", d.Kind, err)
	}
	return v, err
}

// errNotStarted is about an outcome of something that was not decided on.
var errNotStarted = errors.New("the tape has an outcome of what was not started")

// event returns the event of a document.
func (f *flight) event(d *document) (effect.Event, error) {
	err := d.Err.err()
	switch d.Kind {
	case kindReportDue:
		return effect.ReportDue{}, nil
	case kindWatchdogDue:
		return effect.WatchdogDue{}, nil
	case kindStateReported:
		return effect.StateReported{Status: neutron.AgentStatus(d.Text), Err: err, Took: d.Took}, nil
	case kindDatabase:
		return effect.DatabaseAsked{Err: err}, nil
	case kindReleased:
		return effect.ConnectionsReleased{N: d.N, Err: err}, nil
	case kindEnded:
		return effect.ConnectionsEnded{N: d.N, Err: err}, nil
	case kindDevice:
		return effect.DeviceChanged{Extension: d.N, Device: d.Text, Err: err}, nil
	case kindSaved:
		return effect.Saved{Err: err}, nil
	case kindNotifyFailed:
		return effect.NotifyFailed{Err: err}, nil
	case kindFollowFailed:
		return effect.FollowFailed{Err: err}, nil
	case kindAnswerFailed:
		return effect.AnswerFailed{Err: err}, nil
	case kindUnheard:
		return effect.PacketsUnheard{Bridge: d.Bridge, Err: err}, nil
	case kindLinked:
		return effect.BridgeLinked{Bridge: d.Bridge, Conn: f.conn(d.Conn), Err: err}, nil
	case kindPortsReported, kindCalled, kindApplied, kindRulesApplied:
		return f.outcome(d, err)
	case kindFlows, kindRead, kindPacket, kindResolver:
		return f.ofBridge(d, err)
	}
	return ofPeers(d, err)
}

// ofPeers returns what a database, the broker, the server and the host said.
func ofPeers(d *document, err error) (effect.Event, error) {
	switch d.Kind {
	case kindSwitch:
		b, bad := of[ovsdb.Batch](d)
		b.Err = err
		return effect.SwitchChanged{Batch: &b}, bad
	case kindMessage:
		m, bad := of[messageDoc](d)
		if m.Bytes != nil {
			m.Args = m.Bytes
		}
		return effect.Message{Message: &messaging.Message{
			Topic: m.Topic, Method: m.Method, Namespace: m.Namespace, Version: m.Version, Fanout: m.Fanout, Directed: m.Directed, ID: m.ID, Args: m.Args,
		}}, bad
	case kindBroker:
		b, bad := of[brokerDoc](d)
		if bad != nil {
			return nil, bad
		}
		e, bad := b.event(err)
		return effect.Broker{Event: e}, bad
	case kindDropped:
		l, bad := of[droppedDoc](d)
		return effect.Dropped{Count: d.N, Large: l.Large, Latest: messaging.Dropped{Exchange: l.Exchange, RoutingKey: l.RoutingKey, Err: err}}, bad
	case kindRegistered:
		r, bad := of[registeredDoc](d)
		return effect.Registered{Releases: r.Releases, Versions: r.Versions, Removed: r.Removed, Err: err}, bad
	case kindPulled:
		p, bad := of[pulledDoc](d)
		return effect.Pulled{Batch: p.Batch, Reply: effect.Reply{
			Ports: p.Ports, Groups: p.Groups, Members: p.Members, Addresses: p.Addresses, Tunnels: p.Tunnels, Objects: p.Objects, Unread: p.Unread,
			Bad: p.Bad.err(),
		}, Err: err, Took: d.Took}, bad
	case kindListed:
		found, bad := of[[]zones.Connections](d)
		return effect.ConnectionsListed{Found: found, Took: d.Took, Err: err}, bad
	case kindRulesRead:
		r, bad := of[rulesDoc](d)
		return effect.RulesRead{State: r.State, Asked: r.Asked, Other: r.Other, Err: err}, bad
	case kindForwardingRead:
		r, bad := of[forwardingDoc](d)
		return effect.ForwardingRead{Extension: d.N, Devices: r.Devices, Tables: r.Tables, Err: err}, bad
	case kindServed:
		s, bad := of[metaproxy.State](d)
		return effect.Served{Extension: d.N, State: s, Err: err}, bad
	case kindForwarding:
		c, bad := of[forwarding.Changes](d)
		return effect.ForwardingChanged{Extension: d.N, Changes: c, Err: err}, bad
	}
	return nil, fmt.Errorf("an event of kind %q is of a later version", d.Kind)
}

// outcome returns the outcome of something that was decided on again.
func (f *flight) outcome(d *document, err error) (effect.Event, error) {
	switch d.Kind {
	case kindPortsReported:
		batch, ok := f.reports[d.N]
		if !ok {
			return nil, fmt.Errorf("%w: report %d of ports", errNotStarted, d.N)
		}
		delete(f.reports, d.N)
		r, bad := of[neutron.DeviceResult](d)
		return effect.PortsReported{Batch: batch, Result: r, Err: err}, bad
	case kindCalled:
		name := callName(d.N, d.Text)
		call, ok := f.calls[name]
		if !ok {
			return nil, fmt.Errorf("%w: call of extension %d, %s", errNotStarted, d.N, d.Text)
		}
		delete(f.calls, name)
		list, bad := of[[]heardDoc](d)
		out := effect.Called{CallKey: call.CallKey, Err: err}
		// The error that was recorded counts: it may be that of a call that was given up.
		_ = effect.Try(nil, "calling", func() error {
			out.Result, _ = call.Run(context.Background(), neutron.NewServer(&answers{list}, f.host))
			return nil
		})
		return out, bad
	case kindApplied:
		r := f.round
		if f.round = nil; r == nil {
			return nil, fmt.Errorf("%w: a round of changes", errNotStarted)
		}
		a, bad := of[appliedDoc](d)
		b := dataplane.Became{
			Seq: a.Seq, RowErrs: errsOf(a.RowErrs), LimitsErr: a.LimitsErr.err(), Limited: a.Limited, FlushErrs: errsOf(a.FlushErrs), Took: d.Took,
		}
		for _, each := range a.Bundles {
			b.Bundles = append(b.Bundles, dataplane.BundleBecame{Meters: each.Meters, MeterErr: each.MeterErr.err(), Err: each.Err.err()})
		}
		return effect.Applied{Round: r}, errors.Join(bad, r.Become(b, err))
	}
	c := f.rules
	if f.rules = nil; c == nil {
		return nil, fmt.Errorf("%w: rules of iptables", errNotStarted)
	}
	return effect.RulesApplied{Changes: c, Err: err}, nil
}

// ofBridge returns what a bridge said.
func (f *flight) ofBridge(d *document, err error) (effect.Event, error) {
	switch d.Kind {
	case kindFlows:
		list, bad := of[updatesDoc](d)
		e := effect.FlowsChanged{Bridge: d.Bridge, Conn: f.conn(d.Conn), Lost: list.Lost}
		for _, u := range list.Updates {
			entry, wrong := entryOf(u.Entry)
			bad = errors.Join(bad, wrong)
			e.Updates = append(e.Updates, openflow.FlowUpdate{Event: u.Event, Reason: u.Reason, XID: u.XID, Entry: entry})
		}
		return e, bad
	case kindRead:
		r, bad := of[readDoc](d)
		e := effect.FlowsRead{Reading: dataplane.Reading{
			Bridge: d.Bridge, Conn: f.conn(d.Conn), Meters: r.Meters, MaxMeters: r.MaxMeters, Err: err, Unmonitored: r.Unmonitored.err(),
		}}
		for _, text := range r.Flows {
			entry, wrong := entryOf(text)
			bad = errors.Join(bad, wrong)
			e.Flows = append(e.Flows, entry)
		}
		return e, bad
	case kindResolver:
		a, bad := of[resolver.Answer](d)
		return effect.ResolverAnswered{Extension: d.N, Bridge: d.Bridge, Conn: f.conn(d.Conn), Answer: a, Err: err}, bad
	}
	p, bad := of[packetDoc](d)
	for _, t := range p.Metadata {
		p.PacketIn.Metadata = append(p.PacketIn.Metadata, openflow.Term{Field: t.Field, Value: t.Value, Mask: t.Mask, Raw: string(t.Raw)})
	}
	return effect.PacketIn{Bridge: d.Bridge, Conn: f.conn(d.Conn), Packet: &p.PacketIn, Limited: uint64(max(d.N, 0))}, bad
}

// entryOf returns the flow that entryText wrote.
func entryOf(text string) (openflow.Entry, error) {
	if text == "" { // that the switch holds reports back, or a change of ours
		return openflow.Entry{}, nil
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		return openflow.Entry{}, fmt.Errorf("a flow of the tape cannot be read: %w", err)
	}
	return openflow.EntryOf(b)
}

// answers is a server that says again what it said.
type answers struct{ left []heardDoc }

var errNoAnswer = errors.New("the tape has no further answer of the server")

// Call implements neutron.Caller.
func (a *answers) Call(_ context.Context, _ messaging.Target, _ string, _, result any) error {
	if len(a.left) == 0 {
		return errNoAnswer
	}
	next := a.left[0]
	a.left = a.left[1:]
	if err := next.Err.err(); err != nil || result == nil || len(next.Result) == 0 {
		return err
	}
	return json.Unmarshal(next.Result, result)
}

func (b *brokerDoc) event(err error) (messaging.Event, error) {
	switch b.What {
	case "connected":
		return messaging.Connected{Addr: b.Addr, TLS: b.TLS, Broker: b.Broker, Setup: b.Took}, nil
	case "connecting failed":
		return messaging.ConnectFailed{Addr: b.Addr, Next: b.Took, Err: err}, nil
	case "disconnected":
		return messaging.Disconnected{Addr: b.Addr, Err: err}, nil
	case "gap":
		return messaging.Gap{Queue: b.Queue, Reason: b.Reason}, nil
	case "blocked":
		return messaging.Blocked{Reason: b.Reason}, nil
	case "unblocked":
		return messaging.Unblocked{}, nil
	case "refused":
		return messaging.Refused{Addr: b.Addr, Next: b.Took, Err: &messaging.RefusedError{Queue: b.Queue, Do: b.Do, Err: err}}, nil
	case "setup failed":
		return messaging.SetupFailed{Queue: b.Queue, Next: b.Took, Err: err}, nil
	case "fallback":
		return messaging.Fallback{Name: b.Name, Reason: b.Reason}, nil
	case "no hub":
		return messaging.NoHub{Name: b.Name, Reason: b.Reason}, nil
	case "no stream":
		return messaging.NoStream{Name: b.Name, Reason: b.Reason}, nil
	case "reply abandoned":
		return messaging.ReplyAbandoned{Queue: b.Queue, Method: b.Method, Err: err}, nil
	}
	return nil, fmt.Errorf("%q of the broker is of a later version", b.What)
}
