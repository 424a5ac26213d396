// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// View answers questions about a core, and changes nothing. It is good between two steps.
type View struct {
	c   *Core
	now time.Time
}

// Look returns the view of a time.
func (c *Core) Look(now time.Time) View { return View{c, now} }

// World returns the world, which is only read.
func (v View) World() *world.World { return v.c.world }

// Dataplane returns the dataplane, which is only read.
func (v View) Dataplane() *dataplane.Dataplane { return v.c.dataplane }

// Extensions returns the extensions, which are only asked.
func (v View) Extensions() extension.Set { return v.c.extensions.Set }

// Facts returns what can block the scopes.
func (v View) Facts(s gate.Scope) gate.Facts { return v.c.facts(v.now, s) }

// SyncedAt returns when everything had been pulled and reported since the agent started or lost messages; zero: it has not.
func (v View) SyncedAt() time.Time { return v.c.reports.syncedAt }

// Unsaved returns whether the snapshot is not what is known now, or is being written.
func (v View) Unsaved() bool { return v.c.memory.unsaved() }

// Quarantined names what failed and is tried again, sorted.
func (v View) Quarantined() []string { return v.c.contained.names() }

// Known ranges over the flows of a bridge that are wanted or there.
func (v View) Known(bridge string) iter.Seq[delta.Known] { return v.c.dataplane.Known(bridge) }

// Why tells who wants a flow of a bridge, and why.
func (v View) Why(bridge string, k openflow.Key) (owner world.Object, reason string, ok bool) {
	return v.c.dataplane.Owner(bridge, k)
}

// LastPlug returns when a port was plugged in last.
func (v View) LastPlug() time.Time { return v.c.reports.lines.lastPlug }

// Wake returns when the next step is due; zero: when something happens.
func (v View) Wake() time.Time { return v.c.wakeAt }

// Status returns how the agent is, but for what only its loop knows.
func (v View) Status() inspect.Status {
	a := v.c
	s := inspect.Status{
		Host: a.cfg.Host, Version: a.cfg.Version, Started: a.seen.began,
		Switch: a.seen.sw, Broker: a.seen.broker, Server: a.seen.server,
		Bridges: v.Bridges(), Ports: map[string]int{}, Totals: a.seen.totals, Firewall: "none",
		FromSnapshot: a.world.Remembered() > 0, Held: a.contained.quarantined(),
	}
	s.Totals.Panics, s.Totals.Resyncs, s.Totals.Wired = a.contained.panics, a.resyncing.count, a.reports.lines.took
	s.Totals.Wired.Buckets, s.Totals.Apply.Buckets = slices.Clone(s.Totals.Wired.Buckets), slices.Clone(s.Totals.Apply.Buckets)
	if a.bridges.up {
		s.Switch.Detail = strings.TrimSpace("Open vSwitch " + a.world.View.Capabilities().OVSVersion)
		if kind := a.cfg.Configurations.DatapathType; kind != "" {
			s.Switch.Detail += ", " + kind
		}
	}
	if a.cfg.World.FilterTables {
		s.Firewall = "openvswitch"
		if !a.cfg.World.Filter {
			s.Firewall = "openvswitch, disabled"
		}
	}
	for _, id := range a.world.PortIDs() {
		s.Ports[a.world.Port(id).Wiring.State.String()]++
	}
	s.Advisories = a.seen.advisories()
	now := v.now
	facts := a.facts(now, gate.All)
	s.Pending = inspect.Pending{Details: facts.Ports, Items: facts.Groups, Rows: facts.Rows, Reports: facts.Reports}
	for _, b := range facts.Bridges {
		s.Pending.Flows += b.Flows
	}
	blockers := gate.Blockers(facts)
	s.Reasons, s.Changing = gate.Details(blockers, gate.InSync)
	s.InSync, s.SyncedAt, s.Ready = gate.Open(blockers, gate.InSync), a.reports.firstSync, gate.Open(blockers, gate.Ready)
	s.Awaited = a.reports.awaited(now)
	return s
}

// Bridges returns how the bridges are.
func (v View) Bridges() []inspect.Bridge {
	a := v.c
	out := []inspect.Bridge{}
	for _, name := range a.world.Bridges() {
		b := a.dataplane.Bridge(name)
		c := b.Counts
		doc := inspect.Bridge{
			Name: name, Role: "physical", Connected: b.Connected,
			Wanted: c.Wanted, Present: c.Present, Foreign: c.Foreign, Pending: c.Pending, Repaired: b.Repaired, Changed: b.Changed,
		}
		switch name {
		case a.cfg.World.IntegrationBridge:
			doc.Role = "integration"
		case a.cfg.World.TunnelBridge:
			doc.Role = "tunnel"
		}
		for physnet, bridge := range a.cfg.World.Physical {
			if bridge == name {
				doc.Physical = physnet
			}
		}
		if !b.Connected {
			doc.Error = errorText(b.Err)
		}
		if row := a.world.View.BridgeByName(name); row != nil {
			doc.DatapathID = row.DatapathID
		}
		out = append(out, doc)
	}
	return out
}

// FlowDocument returns a flow for people.
func FlowDocument(bridge string, k delta.Known) inspect.Flow {
	doc := inspect.Flow{Bridge: bridge, Table: k.Key.Table(), Reason: k.Reason}
	if k.Want.IsZero() {
		doc.Text, doc.State = k.Have.String(), "foreign"
		switch {
		case k.Doomed || dataplane.StaleAgentFlow(k.Have):
			doc.State = "leftover"
		case delta.Learned(k.Have):
			doc.State = "learned"
		}
		return doc
	}
	doc.Text, doc.Owner = k.Want.String(), k.Owner.String()
	switch {
	case k.Have.IsZero():
		doc.State = "missing"
	case k.Same():
		doc.State = "present"
	default:
		doc.State, doc.Have = "different", k.Have.String()
	}
	return doc
}

// PortCopy is a port as the core hands it out; what it points to does not change.
type PortCopy struct {
	port      world.Port
	vif       world.VIF
	segment   world.Segment
	confirmed report.Status
	line      timeline
	settled   bool
	notes     []string
	filter    bool
	flows     int
}

// Port returns a copy of a port.
func (v View) Port(p *world.Port) PortCopy {
	a := v.c
	o := world.Object{Kind: world.KindPort, ID: p.ID}
	c := PortCopy{port: *p, settled: a.dataplane.Status(a.world.View, o) == dataplane.Applied, filter: a.world.Filtered(p), confirmed: a.reports.Confirmed(p.ID), notes: a.extensions.Explain(o)}
	if p.VIF != nil {
		c.vif = *p.VIF
	}
	if s := a.world.Segments.Get(p.Wiring.Segment); s != nil {
		c.segment = world.Segment{Key: s.Key, Type: s.Type, Physnet: s.Physnet}
	}
	if l := a.reports.lines.of[p.ID]; l != nil {
		c.line = *l
	}
	c.flows = a.dataplane.Flows(o)
	return c
}

// Document returns the port for people.
func (c *PortCopy) Document() inspect.Port {
	w := c.port.Wiring
	doc := inspect.Port{
		ID: c.port.ID, State: w.State.String(), Reason: w.Reason, Interface: c.vif.Name, OFPort: c.vif.OFPort,
		Network: w.Segment.Network, VLAN: w.VLAN, Filtered: c.filter, Groups: c.port.Groups,
		Reported: [...]string{"", "up", "down", "admin down"}[c.confirmed],
		Applied:  c.settled, Flows: c.flows,
		Timeline: inspect.Timeline{Plugged: c.line.plugged, Answered: c.line.answered, Applied: c.line.applied, Reported: c.line.reported},
	}
	for _, note := range c.notes {
		doc.Notes = append(doc.Notes, inspect.Printable(note)) // with the names of policies
	}
	if c.segment.Type != "" {
		doc.Segment = segmentText(&c.segment)
	}
	if c.vif.MAC != (neutron.MAC{}) {
		doc.MAC = c.vif.MAC.String()
	}
	d := c.port.Details
	if d == nil {
		doc.Role = roleOf("", doc.Interface)
		return doc
	}
	doc.Role = roleOf(d.DeviceOwner, doc.Interface)
	doc.Name, doc.Owner, doc.Device, doc.Status, doc.Revision = inspect.Printable(d.Name), d.DeviceOwner, inspect.Printable(d.DeviceID), d.Status, d.Revision
	doc.Network = cmp.Or(doc.Network, d.NetworkID)
	doc.Secured = d.PortSecurityEnabled()
	if d.MAC != (neutron.MAC{}) {
		doc.MAC = d.MAC.String()
	}
	for _, ip := range d.FixedIPs {
		if ip.IP.IsValid() {
			doc.Addresses = append(doc.Addresses, ip.IP.String())
		}
	}
	for _, pair := range d.AllowedAddressPairs {
		if mac := cmp.Or(pair.MAC, d.MAC); pair.IP.IsValid() {
			doc.Pairs = append(doc.Pairs, inspect.Address{MAC: mac.String(), IP: pair.IP.String()})
		}
	}
	return doc
}

// roleOf is what a port is, by its owner; a trunk's ports show by the patches that stand for them.
func roleOf(owner, iface string) string {
	switch {
	case strings.HasPrefix(iface, "tpi-"):
		return "trunk parent"
	case owner == "trunk:subport" || strings.HasPrefix(iface, "spi-"):
		return "sub-port"
	}
	return map[string]string{
		"network:router_interface": "router interface", "network:router_interface_distributed": "router interface",
		"network:ha_router_replicated_interface": "router interface", "network:router_centralized_snat": "SNAT",
		"network:router_gateway": "router gateway", "network:floatingip_agent_gateway": "floating IP gateway", "network:dhcp": "DHCP",
	}[owner]
}

// segmentText is "vlan 1234 on physnet1", "vxlan 77", "flat on physnet1" or "local".
func segmentText(s *world.Segment) string {
	text := s.Type
	if s.Key.ID >= 0 {
		text += fmt.Sprintf(" %d", s.Key.ID)
	}
	if s.Physnet != "" {
		text += " on " + s.Physnet
	}
	return text
}
