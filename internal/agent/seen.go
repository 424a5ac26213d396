// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
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
func newSeen() seen {
	return seen{began: time.Now(), totals: inspect.Totals{
		Wired: inspect.NewHistogram(.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120),
		Apply: inspect.NewHistogram(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10),
	}}
}

// turned counts a turn of the loop.
func (s *seen) turned(took time.Duration) {
	s.totals.Turns++
	s.totals.BusySeconds += took.Seconds()
	s.totals.LongestSeconds = max(s.totals.LongestSeconds, took.Seconds())
}

// wired counts a port that the server now knows to be up.
func (s *seen) wired(l *timeline, now time.Time) {
	l.reported = now
	s.totals.Wired.Observe(now.Sub(l.plugged))
}

func found(p *inspect.Peer, detail string) {
	if !p.Up {
		p.Since = time.Now()
	}
	p.Up, p.Detail, p.Error = true, detail, ""
}

func gone(p *inspect.Peer, err error) {
	if p.Up || p.Since.IsZero() {
		p.Since = time.Now()
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
func (a *Agent) note(e any) {
	switch e := e.(type) {
	case messaging.Event:
		a.noteBroker(e)
	case notAlive:
		gone(&a.seen.server, e.err)
	case registered:
		a.seen.release = e.releases
		found(&a.seen.server, e.releases)
	case reported:
		a.counted(e.err)
		if e.err != nil {
			gone(&a.seen.server, e.err)
			a.recorder.put(note{kind: kindReport, what: "report_state failed", detail: e.err.Error()})
		} else {
			found(&a.seen.server, a.seen.release)
		}
	case linked:
		what := "connected to bridge"
		if e.link.Conn == nil {
			what = "connection lost to bridge"
		}
		a.recorder.put(note{kind: kindFlows, what: what, subject: e.bridge, detail: errorText(e.link.Err)})
	case dataplane.Reading:
		a.recorder.put(note{kind: kindFlows, what: "flows read from bridge", subject: e.Bridge, n: len(e.Flows), detail: errorText(e.Err)})
	case observed:
		a.recorder.put(note{kind: kindFlows, what: "flows changed by another program on bridge", subject: e.bridge, n: len(e.updates)})
	case *dataplane.Round:
		a.noteRound(e)
	case pulled:
		a.counted(e.err)
		a.notePulled(e)
	case portsReported:
		a.counted(e.err)
		a.notePortsReported(e)
	case databaseAsked:
		a.counted(e.err)
		a.recorder.put(note{kind: kindReply, what: "bulk_pull to check the database of neutron-server", detail: errorText(e.err)})
	case called:
		a.counted(e.err)
		a.recorder.put(note{
			kind: kindReply, what: "extension " + a.extensions.Set[e.extension].Name() + " called " + e.key.String(), detail: errorText(e.err),
		})
	case connectionsReleased:
		if e.n > 0 {
			a.recorder.put(note{kind: kindConntrack, what: "conntrack marks cleared", n: e.n})
		}
	}
}

func (a *Agent) notePulled(e pulled) {
	ids := e.batch.IDs
	n := note{kind: kindReply, n: len(ids), detail: errorText(e.err)}
	switch e.batch.Owner {
	case pull.Ports:
		n.what, n.n, n.subject = "bulk_pull of ports", len(e.ports), single(ids)
	case pull.Filters:
		n.what, n.took = "bulk_pull of "+string(e.batch.Kind)+" "+ids[0], e.took
	case pull.Tunnels:
		n.what, n.n = "tunnel_sync of type "+ids[0], len(e.tunnels)
	default:
		n.what, n.subject = "bulk_pull of "+string(e.batch.Kind), single(ids)
	}
	a.recorder.put(n)
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

func (a *Agent) counted(err error) {
	a.seen.totals.Calls++
	if err != nil {
		a.seen.totals.CallsFailed++
	}
}

func (a *Agent) noteBroker(e messaging.Event) {
	switch e := e.(type) {
	case messaging.Connected:
		found(&a.seen.broker, strings.TrimSuffix(e.Addr+", "+inspect.Printable(e.Broker), ", "))
	case messaging.Disconnected:
		gone(&a.seen.broker, e.Err)
	case messaging.ConnectFailed:
		gone(&a.seen.broker, e.Err)
		a.recorder.put(note{kind: kindBroker, what: "connection failed to", subject: e.Addr, detail: errorText(e.Err)})
	}
}

func (a *Agent) noteRound(r *dataplane.Round) {
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
		a.recorder.put(n)
	}
	for _, b := range r.Bundles {
		n := note{kind: kindFlows, what: "flows written to bridge", n: len(b.Changes), subject: b.Bridge, took: r.Took}
		if b.Err != nil {
			n.what, n.detail = "flows rejected by bridge", b.Err.Error()
			t.FlowsRefused++
		}
		failed = cmp.Or(failed, b.Err)
		a.recorder.put(n)
	}
	if failed != nil {
		t.ApplyFailed++
	}
}

func (a *Agent) notePortsReported(e portsReported) {
	detail := errorText(e.err)
	for _, id := range e.batch.Update.Up {
		a.recorder.put(note{kind: kindReport, what: "reported up: port", subject: id, detail: detail})
	}
	for _, id := range e.batch.Update.Down {
		a.recorder.put(note{kind: kindReport, what: "reported down: port", subject: id, detail: detail})
	}
	if e.batch.AdminDown != "" {
		a.recorder.put(note{kind: kindReport, what: "reported admin down: port", subject: e.batch.AdminDown, detail: detail})
	}
}

// noteSwitch takes changed rows down.
func (a *Agent) noteSwitch(b *ovsdb.Batch) {
	if b.Kind == ovsdb.Disconnected {
		gone(&a.seen.sw, b.Err)
		return
	}
	found(&a.seen.sw, "")
	a.recorder.put(note{kind: kindSwitch, what: "rows changed in OVSDB", n: b.Len()})
}

// notePlugged counts ports that came without isolation while the agent ran. Whoever plugs such a port in lets it hear every
// network of the host for the milliseconds until the agent's first write; nothing that the agent does can change that.
func (a *Agent) notePlugged(b *ovsdb.Batch) {
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
func (a *Agent) noteMessage(decoded any) {
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
			a.recorder.put(note{kind: kindPush, what: n.what, subject: id})
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
	a.recorder.put(n)
}

// noteDecision takes down what was decided about a port, if that is new.
func (a *Agent) noteDecision(id string) {
	p, l := a.world.Port(id), a.timelines.of[id]
	if p == nil {
		a.recorder.put(note{kind: kindPort, what: "unplugged", subject: id})
		return
	}
	if state := fmt.Sprintf("%s, %s", p.Wiring.State, p.Wiring.Reason); l.state != state {
		l.state = state
		a.recorder.put(note{kind: kindPort, what: state, subject: id})
	}
}
