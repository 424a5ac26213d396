// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
)

// host is a core whose effects a test carries out: there is no goroutine, and no connection.
type host struct {
	*Core
	cloud *cloud
	ct    *tracker // nil: nothing is tracked
}

// cloud is a server that has ports p0…, each in a group of its own, g0…, whose rules refer to members of another, m0…. It notes what it is told.
type cloud struct {
	status   []string
	up, down [][]string
}

// told is an object as the server tells it.
func told(t *testing.T, kind neutron.Kind, data map[string]any) neutron.Primitive {
	t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return neutron.Primitive{Name: string(kind), Data: text}
}

// pull answers what a batch asks for.
func (c *cloud) pull(t *testing.T, b pull.Batch) (out effect.Reply) {
	t.Helper()
	for _, id := range b.IDs {
		switch {
		case b.Owner == pull.Ports:
			r := neutron.ReadAll(b.Kind, []neutron.Primitive{told(t, b.Kind, fake.PluggedPort(id, 5, "DOWN"))}, func(p *neutron.Port) string { return p.ID })
			out.Ports = append(out.Ports, r.Found...)
		case b.Kind == neutron.KindSecurityGroup:
			rule := fake.Wrapped(map[string]any{"id": "r" + id, "security_group_id": id, "direction": "ingress", "ethertype": "IPv4", "remote_group_id": "m" + id[1:]})
			r := neutron.ReadAll(b.Kind, []neutron.Primitive{told(t, b.Kind, map[string]any{"id": id, "rules": []any{rule}})}, func(g *neutron.SecurityGroup) string { return g.ID })
			out.Groups = append(out.Groups, r.Found...)
		case b.Kind == neutron.KindPort:
			r := neutron.ReadAll(b.Kind, []neutron.Primitive{told(t, b.Kind, map[string]any{
				"id": "of-" + id, "security_group_ids": b.IDs, "fixed_ips": []any{fake.Wrapped(map[string]any{"ip_address": "10.0.0.1"})},
			})}, func(m *neutron.Member) string { return m.ID })
			out.Members = append(out.Members, r.Found...)
		}
	}
	return out
}

// tracker is connection tracking that notes what it is told.
type tracker struct {
	began            time.Time
	calls            []string
	broken           bool
	marked, released []conntrack.Connection
}

func (c *tracker) note(what string, zone uint16) {
	c.calls = append(c.calls, fmt.Sprintf("%s %d at %s", what, zone, time.Since(c.began)))
}

func (c *tracker) FlushZone(_ context.Context, zone uint16) error {
	c.note("flush", zone)
	if c.broken {
		return errors.New("broken")
	}
	return nil
}

// filtering makes a core with filters before a cloud, and the switch's first rows: so many ports.
func filtering(t *testing.T, c *cloud, ct *tracker, ports int) (*host, *ovsdb.Batch) {
	t.Helper()
	core := New(Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}, Conntrack: ct != nil,
		World: world.Config{Host: "hv1", IntegrationBridge: "br-int", Filter: true, FilterTables: true, FailClosed: true},
	}, nil, time.Now())
	return &host{core, c, ct}, fake.Plugged(ports)
}

// carryOut carries out the effects that there are, but for those of the switch. It returns how many outcomes there were.
func (h *host) carryOut(t *testing.T) (outcomes int) {
	t.Helper()
	effects := h.turn.effects
	h.turn.effects = nil
	for _, e := range effects {
		var outcome effect.Event
		switch e := e.(type) {
		case effect.Pull:
			outcome = effect.Pulled{Batch: e.Batch, Reply: h.cloud.pull(t, e.Batch)}
		case effect.ReportPorts:
			up, down := e.Batch.Update.Up, e.Batch.Update.Down
			h.cloud.status = append(h.cloud.status, fmt.Sprintf("up %v down %v", up, down))
			if len(up) > 0 {
				h.cloud.up = append(h.cloud.up, up)
			}
			if len(down) > 0 {
				h.cloud.down = append(h.cloud.down, down)
			}
			outcome = effect.PortsReported{Batch: e.Batch}
		case effect.ListConnections:
			outcome = h.ct.list(e.Zones)
		case effect.ReleaseConnections:
			outcome = h.ct.release(e)
		case effect.Save:
			outcome = effect.Saved{}
		default:
			continue
		}
		outcomes++
		h.receive(outcome)
	}
	return outcomes
}

// logBuffer may be read while somebody writes.
type logBuffer struct {
	mu  sync.Mutex
	buf []byte
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	return len(b), nil
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}

// hung is a connection on which nothing happens.
type hung struct{ effect.Conn }

// closes returns whether the connection is hung up by the effects that there are, and takes them.
func (h *host) closes(c effect.Conn) bool {
	effects := h.turn.effects
	h.turn.effects = nil
	return slices.ContainsFunc(effects, func(e effect.Effect) bool { hang, ok := e.(effect.HangUp); return ok && hang.Conn == c })
}

func (c *tracker) list(due []uint16) effect.Event {
	var out effect.ConnectionsListed
	for _, zone := range due {
		c.note("list", zone)
		if len(c.marked) > 0 {
			out.Found = append(out.Found, zones.Connections{Zone: zone, List: c.marked})
		}
	}
	return out
}

func (c *tracker) release(e effect.ReleaseConnections) effect.Event {
	var out effect.ConnectionsReleased
	for _, found := range e.Connections {
		c.note("release", found.Zone)
		c.released = append(c.released, found.List...)
		c.marked = nil
		out.N += len(found.List)
	}
	return out
}

// shownFlows are the flows of the integration bridge, for people.
func shownFlows(a *host) (out []inspect.Flow) {
	for k := range a.dataplane.Known("br-int") {
		out = append(out, FlowDocument("br-int", k))
	}
	return out
}

func hasPart(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}
