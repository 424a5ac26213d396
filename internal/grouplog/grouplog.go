// SPDX-License-Identifier: Apache-2.0

// Package grouplog is the extension log: it writes down which new connections the security groups of ports let pass, and which packets they drop,
// where the administrator has made a log for it (Neutron's API of logs). It is for ports that flows filter (firewall_driver = openvswitch).
//
// The server is asked for the logs, and pushes their changes; the snapshot keeps them. Rules and groups are those of the world: nothing is
// asked for a port. Flows send a copy of the packets to the agent (package pipeline makes them, flows.go says for whom); packet.go writes the headers of
// a packet as text, and never what the packet carries.
//
// A line is written for every packet that comes, within two bounds: rate_limit of the options for the whole host, and below that a small share that
// each port has for itself, so that a flood of one port hides no other.
package grouplog

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// name is that in agent.extensions.
const name = "log"

// Logger is the name under which the Python agent writes the lines, which tools that read them look for.
const Logger = "neutron.services.logapi.drivers.openvswitch.ovs_firewall_log"

// The share that every port has of lines of each action, whatever others do.
const (
	shareEvery = time.Second
	shareBurst = 5
)

// Log is the extension. It belongs to the agent's loop.
type Log struct {
	w     *world.World
	bound extension.Bound

	logs map[string]neutron.Log // of security groups, by id
	// listed: the server has told them all. Missing: it is asked to. Pushed: something was pushed since.
	listed, missing, pushed bool
	gone                    map[string]bool // logs that were deleted since they were last listed; ids are not used again
	ports                   map[string]bool // that flows filter here
	meters                  *extension.PortMeters
	dirty                   map[world.Object]bool
	total, shares           pace.Limits[string]
	lines                   []string
}

// New returns the maker of the extension. Bound is that of lines, for the host.
func New(bound extension.Bound) extension.New {
	return func(w *world.World) extension.Extension {
		return &Log{
			w: w, bound: bound, logs: map[string]neutron.Log{}, missing: true, gone: map[string]bool{}, ports: map[string]bool{},
			meters: extension.NewPortMeters(w, name), dirty: map[world.Object]bool{},
			total: pace.Limits[string]{Every: bound.Every(), Burst: bound.Burst}, shares: pace.Limits[string]{Every: shareEvery, Burst: shareBurst},
		}
	}
}

// Name implements extension.Extension.
func (*Log) Name() string { return name }

// Resolve implements extension.Extension.
func (l *Log) Resolve(changed []world.Object) []world.Object {
	for _, o := range changed {
		id, ok := world.PortID(o)
		if !ok {
			continue
		}
		if l.filtered(id) == nil {
			delete(l.ports, id)
		} else {
			l.ports[id] = true
		}
		l.number(id)
	}
	if l.meters.Renewed() {
		for id := range l.ports {
			l.number(id)
			l.dirty[world.PortObject(id)] = true
		}
	}
	l.meters.Forget()
	return extension.TakeDirty(l.dirty)
}

// filtered returns the port with an id, if flows filter it.
func (l *Log) filtered(id string) *world.Port {
	if p := l.w.Port(id); p != nil && l.w.Filtered(p) && !l.w.Config.Hybrid && p.VIF.OFPort != 0 {
		return p
	}
	return nil
}

// number gives a port its meter, if it is logged.
func (l *Log) number(id string) {
	if p := l.filtered(id); p != nil && len(l.of(p)) > 0 {
		l.meters.Number(id)
	} else {
		l.meters.Release(id)
	}
}

// of returns the logs of a port, sorted by id.
func (l *Log) of(p *world.Port) []neutron.Log {
	var out []neutron.Log
	for _, g := range l.logs {
		if binds(&g, p) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b neutron.Log) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// binds returns whether a log is about a port: about its id, about one of its groups, about both, or, without either, about its project.
func binds(g *neutron.Log, p *world.Port) bool {
	if !g.Enabled || g.ResourceType != securityGroup {
		return false
	}
	if g.TargetID == "" && g.ResourceID == "" {
		return g.ProjectID == p.Details.ProjectID
	}
	return (g.TargetID == "" || g.TargetID == p.ID) && (g.ResourceID == "" || slices.Contains(p.Groups, g.ResourceID))
}

const securityGroup = "security_group"

// action is what became of a packet.
type action string

const (
	accept action = "ACCEPT"
	drop   action = "DROP"
	// all is the event of logs that are about both.
	all = "ALL"
)

// about returns those of the logs that are about an action.
func about(logs []neutron.Log, a action) []neutron.Log {
	var out []neutron.Log
	for _, g := range logs {
		if g.Event == string(a) || g.Event == all {
			out = append(out, g)
		}
	}
	return out
}

// groups returns the groups of a port whose rules are logged.
func groups(logs []neutron.Log, p *world.Port) []string {
	var out []string
	for _, id := range p.Groups {
		if slices.ContainsFunc(about(logs, accept), func(g neutron.Log) bool { return g.ResourceID == "" || g.ResourceID == id }) {
			out = append(out, id)
		}
	}
	return out
}

// PacketBound implements extension.Bounded: one port may have all lines of the host.
func (l *Log) PacketBound() extension.Bound { return l.bound }

// OnPacket implements extension.PacketHandler.
func (l *Log) OnPacket(p extension.Packet) ([]of.Message, extension.Outcome) {
	id, did, _ := strings.Cut(p.Key, " ")
	port := l.filtered(id)
	if port == nil || p.Bridge != l.w.Config.IntegrationBridge {
		return nil, extension.Refused // a flow of before, which is about to go
	}
	logs := about(l.of(port), action(did))
	if len(logs) == 0 || action(did) != accept && action(did) != drop {
		return nil, extension.Refused
	}
	if !l.shares.Take(p.Key, l.w.Time) && !l.total.Take("", l.w.Time) {
		return nil, extension.Limited
	}
	text := headers(p.PacketIn.Packet)
	if text == "" {
		return nil, extension.Malformed
	}
	ids := make([]string, len(logs))
	for i, g := range logs {
		ids[i] = "'" + g.ID + "'"
	}
	l.lines = append(l.lines, fmt.Sprintf("action=%s project_id=%s log_resource_ids=[%s] vm_port=%s pkt=%s", did, logs[0].ProjectID, strings.Join(ids, ", "), id, text))
	return nil, extension.Logged
}

// Records implements extension.Recorder.
func (l *Log) Records() []string {
	lines := l.lines
	l.lines = nil
	return lines
}
