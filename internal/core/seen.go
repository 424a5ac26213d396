// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// seen is what is kept only to be shown: nothing is decided by it. It is owned by the loop.
type seen struct {
	began   time.Time
	synced  time.Time // when everything was as wanted for the first time, and the server knew
	sw      inspect.Peer
	broker  inspect.Peer
	server  inspect.Peer
	release string
	totals  inspect.Totals

	unverified bool   // the broker may be anybody
	warned     string // the version of the switch whose holes are in the log
}

// newSeen returns the figures of an agent that starts, with the upper bounds of the histograms in seconds.
func newSeen(now time.Time) seen {
	return seen{began: now, totals: inspect.Totals{
		Wired: inspect.NewHistogram(.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120),
		Apply: inspect.NewHistogram(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10),
	}}
}

// wired counts a port that the server now knows to be up.
func (s *seen) wired(l *timeline, now time.Time) {
	l.reported = now
	s.totals.Wired.Observe(now.Sub(l.plugged))
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
func (a *Core) note(e effect.Event) {
	switch e := e.(type) {
	case effect.Broker:
		a.noteBroker(e.Event)
	case effect.Registered:
		if e.Err != nil {
			gone(&a.seen.server, e.Err, a.turn.now())
		} else {
			a.seen.release = e.Releases
			found(&a.seen.server, e.Releases, a.turn.now())
		}
	case effect.StateReported:
		a.counted(e.Err)
		if e.Err != nil {
			gone(&a.seen.server, e.Err, a.turn.now())
			a.log.note(note{kind: kindReport, what: "report_state failed", detail: e.Err.Error()})
		} else {
			found(&a.seen.server, a.seen.release, a.turn.now())
		}
	case effect.BridgeLinked:
		what := "connected to bridge"
		if e.Conn == nil {
			what = "connection lost to bridge"
		}
		a.log.note(note{kind: kindFlows, what: what, subject: e.Bridge, detail: errorText(e.Err)})
	case effect.FlowsRead:
		a.log.note(note{kind: kindFlows, what: "flows read from bridge", subject: e.Bridge, n: len(e.Flows), detail: errorText(e.Err)})
	case effect.FlowsChanged:
		a.log.note(note{kind: kindFlows, what: "flows changed by another program on bridge", subject: e.Bridge, n: len(e.Updates)})
	case effect.Applied:
		a.noteRound(e.Round)
	case effect.Pulled:
		a.counted(e.Err)
		a.notePulled(e)
	case effect.PortsReported:
		a.counted(e.Err)
		a.notePortsReported(e)
	case effect.DatabaseAsked:
		a.counted(e.Err)
		a.log.note(note{kind: kindReply, what: "bulk_pull to check the database of neutron-server", detail: errorText(e.Err)})
	case effect.Called:
		a.counted(e.Err)
		a.log.note(note{
			kind: kindReply, what: "extension " + a.extensions.Set[e.Extension].Name() + " called " + e.Key.String(), detail: errorText(e.Err),
		})
	case effect.ConnectionsReleased:
		if e.N > 0 {
			a.log.note(note{kind: kindConntrack, what: "conntrack marks cleared", n: e.N})
		}
	}
}

func (a *Core) notePulled(e effect.Pulled) {
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
	a.log.note(n)
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

func (a *Core) counted(err error) {
	a.seen.totals.Calls++
	if err != nil {
		a.seen.totals.CallsFailed++
	}
}

func (a *Core) noteBroker(e messaging.Event) {
	switch e := e.(type) {
	case messaging.Connected:
		found(&a.seen.broker, strings.TrimSuffix(e.Addr+", "+inspect.Printable(e.Broker), ", "), a.turn.now())
	case messaging.Disconnected:
		gone(&a.seen.broker, e.Err, a.turn.now())
	case messaging.ConnectFailed:
		gone(&a.seen.broker, e.Err, a.turn.now())
		a.log.note(note{kind: kindBroker, what: "connection failed to", subject: e.Addr, detail: errorText(e.Err)})
	case messaging.Refused:
		gone(&a.seen.broker, e.Err, a.turn.now())
		a.log.note(note{kind: kindBroker, what: "refused by", subject: e.Addr, detail: e.Err.Error()})
	}
}

func (a *Core) noteRound(r *dataplane.Round) {
	t := &a.seen.totals
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
			n.subject = r.Owners[0].ID
		}
		a.log.note(n)
	}
	for _, b := range r.Bundles {
		n := note{kind: kindFlows, what: "flows written to bridge", n: len(b.Changes), subject: b.Bridge, took: r.Took}
		if b.Err != nil {
			n.what, n.detail = "flows rejected by bridge", b.Err.Error()
			t.FlowsRefused++
		}
		failed = cmp.Or(failed, b.Err)
		a.log.note(n)
	}
	if failed != nil {
		t.ApplyFailed++
	}
}

func (a *Core) notePortsReported(e effect.PortsReported) {
	detail := errorText(e.Err)
	for _, id := range e.Batch.Update.Up {
		a.log.note(note{kind: kindReport, what: "reported up: port", subject: id, detail: detail})
	}
	for _, id := range e.Batch.Update.Down {
		a.log.note(note{kind: kindReport, what: "reported down: port", subject: id, detail: detail})
	}
	if e.Batch.AdminDown != "" {
		a.log.note(note{kind: kindReport, what: "reported admin down: port", subject: e.Batch.AdminDown, detail: detail})
	}
}

// noteSwitch takes changed rows down.
func (a *Core) noteSwitch(b *ovsdb.Batch) {
	if b.Kind == ovsdb.Disconnected {
		gone(&a.seen.sw, b.Err, a.turn.now())
		return
	}
	found(&a.seen.sw, "", a.turn.now())
	a.log.note(note{kind: kindSwitch, what: "rows changed in OVSDB", n: b.Len()})
}

// notePlugged counts ports that came without isolation while the agent ran. Whoever plugs such a port in lets it hear every
// network of the host for the milliseconds until the agent's first write; nothing that the agent does can change that.
func (a *Core) notePlugged(b *ovsdb.Batch) {
	if b.Kind != ovsdb.Update {
		return
	}
	for _, d := range b.Ports {
		if d.Old != nil || d.New == nil || d.New.Tag != nil || d.New.VLANMode != "" {
			continue
		}
		for _, id := range d.New.Interfaces {
			i, br := a.world.View.Interface(id), a.world.View.BridgeOf(d.New.UUID)
			if i == nil || br == nil || i.ExternalIDs["iface-id"] == "" || br.Name != a.cfg.World.IntegrationBridge {
				continue
			}
			if a.seen.totals.PluggedOpen++; a.seen.totals.PluggedOpen == 1 {
				a.log.Warn("port plugged in without isolation: set isolate_vif = true in [os_vif_ovs] of nova.conf", "interface", i.Name)
			}
		}
	}
}

// noteMessage takes a message of the server down, after the world has looked at it.
func (a *Core) noteMessage(decoded any) {
	a.seen.totals.Messages++
	n := note{kind: kindPush}
	switch d := decoded.(type) {
	case *neutron.Push:
		about := a.world.Concerned()
		n.what = string(d.Kind) + " " + string(d.Event)
		if !slices.Contains(kinds(), d.Kind) { // an extension asked for it, and knows whether it is of this host
			n.subject, n.n = onlyID(d.Objects), len(d.Objects)
			break
		}
		if len(about) == 0 {
			n.what += ", not of this host"
			a.seen.totals.Foreign++
			break
		}
		for _, id := range about[1:] {
			a.log.note(note{kind: kindPush, what: n.what, subject: id})
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
	a.log.note(n)
}

// noteDecision takes down what was decided about a port, if that is new.
func (a *Core) noteDecision(id string) {
	p, l := a.world.Port(id), a.timelines.of[id]
	if p == nil {
		a.log.note(note{kind: kindPort, what: "unplugged", subject: id})
		return
	}
	if state := fmt.Sprintf("%s, %s", p.Wiring.State, p.Wiring.Reason); l.state != state {
		l.state = state
		a.log.note(note{kind: kindPort, what: state, subject: id})
	}
}
