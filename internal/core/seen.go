// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// seen is what is kept only to be shown: nothing is decided by it.
type seen struct {
	room
	began   time.Time
	sw      inspect.Peer
	broker  inspect.Peer
	server  inspect.Peer
	release string
	totals  inspect.Totals

	unverified bool          // the broker may be anybody
	passed     *neutron.Push // see Core.Take
	warned     string        // the version of the switch whose holes are in the log
}

// newSeen returns the figures of an agent that starts, with the upper bounds of the histogram in seconds.
func newSeen(r room) seen {
	return seen{room: r, began: r.now(), totals: inspect.Totals{Apply: inspect.NewHistogram(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10)}}
}

func found(p *inspect.Peer, detail string, now time.Time) {
	if !p.Up {
		p.Since = now
	}
	p.Up, p.Detail, p.Error = true, detail, ""
}

func gone(p *inspect.Peer, err error, now time.Time) {
	if p.Up || p.Since.IsZero() {
		p.Since = now
	}
	p.Up, p.Error = false, errorText(err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// note takes an event of the loop down, before the loop acts on it.
func (s *seen) note(e effect.Event, set extension.Set) {
	switch e := e.(type) {
	case effect.Broker:
		s.noteBroker(e.Event)
	case effect.Registered:
		if e.Err != nil {
			gone(&s.server, e.Err, s.now())
		} else {
			s.release = e.Releases
			found(&s.server, e.Releases, s.now())
		}
	case effect.StateReported:
		s.counted(e.Err)
		if e.Err != nil {
			gone(&s.server, e.Err, s.now())
			s.log.note(note{kind: kindReport, what: "report_state failed", detail: e.Err.Error()})
		} else {
			found(&s.server, s.release, s.now())
		}
	case effect.BridgeLinked:
		what := "connected to bridge"
		if e.Conn == nil {
			what = "connection lost to bridge"
		}
		s.log.note(note{kind: kindFlows, what: what, subject: e.Bridge, detail: errorText(e.Err)})
	case effect.FlowsRead:
		s.log.note(note{kind: kindFlows, what: "flows read from bridge", subject: e.Bridge, n: len(e.Flows), detail: errorText(e.Err)})
	case effect.FlowsChanged:
		s.log.note(note{kind: kindFlows, what: "flows changed by another program on bridge", subject: e.Bridge, n: len(e.Updates)})
	case effect.Applied:
		s.noteRound(e.Round)
	case effect.Pulled:
		s.counted(e.Err)
		s.notePulled(e)
	case effect.PortsReported:
		s.counted(e.Err)
		s.notePortsReported(e)
	case effect.DatabaseAsked:
		s.counted(e.Err)
		s.log.note(note{kind: kindReply, what: "bulk_pull to check the database of neutron-server", detail: errorText(e.Err)})
	case effect.Called:
		s.counted(e.Err)
		s.log.note(note{
			kind: kindReply, what: "extension " + set[e.Extension].Name() + " called " + e.Key.String(), detail: errorText(e.Err),
		})
	case effect.ConnectionsReleased:
		if e.N > 0 {
			s.log.note(note{kind: kindConntrack, what: "conntrack marks cleared", n: e.N})
		}
	}
}

func (s *seen) notePulled(e effect.Pulled) {
	ids := e.Batch.IDs
	n := note{kind: kindReply, n: len(ids), detail: errorText(e.Err)}
	switch e.Batch.Owner {
	case pull.Ports:
		n.what, n.n, n.subject = "bulk_pull of ports", len(e.Ports), single(ids)
	case pull.Filters:
		n.what, n.took = "bulk_pull of "+string(e.Batch.Kind)+" "+ids[0], e.Took
	case pull.Tunnels:
		n.what, n.n = "tunnel_sync of type "+ids[0], len(e.Tunnels)
	default:
		n.what, n.subject = "bulk_pull of "+string(e.Batch.Kind), single(ids)
	}
	s.log.note(n)
}

// single is the one id of a list, or nothing.
func single(ids []string) string {
	if len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// onlyID is the id of the one object of a push, or nothing.
func onlyID(objects []neutron.Primitive) string {
	var o struct {
		ID   string `json:"id"`
		Port string `json:"port_id"` // of what has no id of its own
	}
	if len(objects) != 1 || json.Unmarshal(objects[0].Data, &o) != nil {
		return ""
	}
	return cmp.Or(o.ID, o.Port)
}

func (s *seen) counted(err error) {
	s.totals.Calls++
	if err != nil {
		s.totals.CallsFailed++
	}
}

func (s *seen) noteBroker(e messaging.Event) {
	switch e := e.(type) {
	case messaging.Connected:
		found(&s.broker, strings.TrimSuffix(e.Addr+", "+inspect.Printable(e.Broker), ", "), s.now())
	case messaging.Disconnected:
		gone(&s.broker, e.Err, s.now())
	case messaging.ConnectFailed:
		gone(&s.broker, e.Err, s.now())
		s.log.note(note{kind: kindBroker, what: "connection failed to", subject: e.Addr, detail: errorText(e.Err)})
	case messaging.Refused:
		gone(&s.broker, e.Err, s.now())
		s.log.note(note{kind: kindBroker, what: "refused by", subject: e.Addr, detail: e.Err.Error()})
	}
}

func (s *seen) noteRound(r *dataplane.Round) {
	t := &s.totals
	t.Apply.Observe(r.Took)
	failed := error(nil)
	for _, err := range r.RowErrs {
		if err != nil {
			failed = err
			t.RowsFailed++
		}
	}
	if len(r.Rows) > 0 {
		n := note{kind: kindRows, what: "rows written", n: len(r.Rows), detail: errorText(failed), took: r.Took}
		if len(r.Owners) == 1 {
			n.subject = world.IDOf(r.Owners[0])
		}
		s.log.note(n)
	}
	for _, b := range r.Bundles {
		n := note{kind: kindFlows, what: "flows written to bridge", n: len(b.Changes), subject: b.Bridge, took: r.Took}
		if b.Err != nil {
			n.what, n.detail = "flows rejected by bridge", b.Err.Error()
			t.FlowsRefused++
		}
		failed = cmp.Or(failed, b.Err)
		s.log.note(n)
	}
	if failed != nil {
		t.ApplyFailed++
	}
}

func (s *seen) notePortsReported(e effect.PortsReported) {
	detail := errorText(e.Err)
	for _, id := range e.Batch.Update.Up {
		s.log.note(note{kind: kindReport, what: "reported up: port", subject: id, detail: detail})
	}
	for _, id := range e.Batch.Update.Down {
		s.log.note(note{kind: kindReport, what: "reported down: port", subject: id, detail: detail})
	}
	if e.Batch.AdminDown != "" {
		s.log.note(note{kind: kindReport, what: "reported admin down: port", subject: e.Batch.AdminDown, detail: detail})
	}
}

// noteSwitch takes changed rows down.
func (s *seen) noteSwitch(b *ovsdb.Batch) {
	if b.Kind == ovsdb.Disconnected {
		gone(&s.sw, b.Err, s.now())
		return
	}
	found(&s.sw, "", s.now())
	s.log.note(note{kind: kindSwitch, what: "rows changed in OVSDB", n: b.Len()})
}

// notePlugged counts ports that came without isolation while the agent ran. Whoever plugs such a port in lets it hear every
// network of the host for the milliseconds until the agent's first write; nothing that the agent does can change that.
func (s *seen) notePlugged(b *ovsdb.Batch) {
	if b.Kind != ovsdb.Update {
		return
	}
	for _, d := range b.Ports {
		if d.Old != nil || d.New == nil || d.New.Tag != nil || d.New.VLANMode != "" {
			continue
		}
		for _, id := range d.New.Interfaces {
			i, br := s.world.View.Interface(id), s.world.View.BridgeOf(d.New.UUID)
			if i == nil || br == nil || i.ExternalIDs["iface-id"] == "" || br.Name != s.cfg.World.IntegrationBridge {
				continue
			}
			if s.totals.PluggedOpen++; s.totals.PluggedOpen == 1 {
				s.log.Warn("port plugged in without isolation: set isolate_vif = true in [os_vif_ovs] of nova.conf", "interface", i.Name)
			}
		}
	}
}

// noteMessage takes a message of the server down, after the world has looked at it.
func (s *seen) noteMessage(decoded any) {
	s.totals.Messages++
	n := note{kind: kindPush}
	switch d := decoded.(type) {
	case *neutron.Push:
		about := s.world.Concerned()
		n.what = string(d.Kind) + " " + string(d.Event)
		if !slices.Contains(kinds(), d.Kind) { // an extension asked for it, and knows whether it is of this host
			n.subject, n.n = onlyID(d.Objects), len(d.Objects)
			break
		}
		if len(about) == 0 {
			n.what += ", not of this host"
			s.totals.Foreign++
			break
		}
		for _, id := range about[1:] {
			s.log.note(note{kind: kindPush, what: n.what, subject: id})
		}
		n.subject = about[0]
	case *neutron.DVRUpdate:
		n.what, n.n = "router addresses of hosts", len(d.MACs)
	case *neutron.TunnelUpdate:
		n.what, n.detail = "tunnel endpoint announced", d.Type+" "+d.IP.String()
	case *neutron.TunnelDelete:
		n.what, n.detail = "tunnel endpoint deleted", d.Type+" "+d.IP.String()
	case *neutron.FDBAdd:
		n.what, n.n = "forwarding entries added for networks", len(d.Networks)
	case *neutron.FDBRemove:
		n.what, n.n = "forwarding entries removed for networks", len(d.Networks)
	case *neutron.FDBChange:
		n.what, n.n = "forwarding entries changed for networks", len(d.Networks)
	default:
		n.what = "message without effect"
	}
	s.log.note(n)
}

// brokerRefuses is said once while it lasts.
const brokerRefuses = "the broker rejected the login or an operation, retrying"

// brokerEvent writes down what happens to the broker's connection, and returns whether everything has to be checked: after a gap.
func (s *seen) brokerEvent(e messaging.Event) (gap bool) {
	switch e := e.(type) {
	case messaging.Connected:
		s.log.forget("connection to the broker failed, retrying")
		s.log.forget(brokerRefuses)
		s.log.Info("connected to the broker", "addr", e.Addr, "tls", cmp.Or(e.TLS, "none"), "took", e.Setup)
		if s.unverified = e.TLS == "unverified"; s.unverified {
			s.log.repeat(slog.LevelWarn, brokerUnverified, "addr", e.Addr)
		}
	case messaging.Disconnected:
		s.log.Warn("connection to the broker lost, reconnecting", "addr", e.Addr, "err", e.Err)
	case messaging.ConnectFailed:
		s.log.repeat(slog.LevelWarn, "connection to the broker failed, retrying", "addr", e.Addr, "err", e.Err)
	case messaging.Refused:
		s.log.repeat(slog.LevelError, brokerRefuses, "addr", e.Addr, "queue", e.Err.Queue, "do", e.Err.Do, "err", e.Err.Err)
	case messaging.Gap:
		s.log.Warn("RPC messages may have been lost, resyncing", "queue", e.Queue, "reason", e.Reason)
		return true
	case messaging.Blocked:
		s.log.Warn("the broker blocks publishing", "reason", e.Reason)
	case messaging.Unblocked:
		s.log.Info("the broker no longer blocks publishing")
	case messaging.SetupFailed:
		s.log.repeat(slog.LevelWarn, "queue setup failed, retrying", "queue", e.Queue, "err", e.Err)
	case messaging.Fallback:
		s.log.repeat(slog.LevelWarn, "queue or exchange differs from the configuration, using it as it is", "name", e.Name, "reason", e.Reason)
	case messaging.NoHub:
		s.log.repeat(slog.LevelWarn, "the broker's user may not declare the shared exchange, binding the queue to every exchange", "exchange", e.Name, "reason", e.Reason)
	case messaging.NoStream:
		s.log.repeat(slog.LevelWarn, "the stream of [patchbay] fanout_stream cannot be used, taking messages to all from the agent's queue", "stream", e.Name, "reason", e.Reason)
	case messaging.ReplyAbandoned:
		s.log.Debug("RPC reply not delivered", "queue", e.Queue, "method", e.Method, "err", e.Err)
	}
	return false
}

// warn writes down what only the operator can do something about.
func (s *seen) warn(e effect.Event) {
	switch e := e.(type) {
	case effect.PacketsUnheard:
		s.log.repeat(slog.LevelWarn, "no connection to the bridge for packets of VMs, some get no answer of extensions, retrying", "bridge", e.Bridge, "err", e.Err)
	case effect.NotifyFailed:
		s.log.repeat(slog.LevelWarn, "sd_notify failed", "err", e.Err)
	}
}

// messagesDropped writes down that messages were dropped, and returns whether one of them was too large: it may have said anything.
func (s *seen) messagesDropped(d effect.Dropped) (tooLarge bool) {
	s.totals.Dropped += uint64(d.Count) //nolint:gosec // a count
	if d.Count == 0 {
		return false
	}
	const large, unreadable = "message too large, dropped; resyncing", "AMQP message cannot be decoded, dropped"
	msg := unreadable
	if d.Large > 0 {
		msg = large
	}
	s.log.repeat(slog.LevelWarn, msg, "exchange", d.Latest.Exchange, "key", d.Latest.RoutingKey, "err", d.Latest.Err)
	return d.Large > 0
}

// brokerUnverified is what the log says of a broker that may be anybody.
const brokerUnverified = "the certificate of the broker is not verified: set [oslo_messaging_rabbit] ssl_ca_file"
