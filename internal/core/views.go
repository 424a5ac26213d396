// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// View answers questions about a core, and changes nothing. It is good between two steps. What it shows of others is only read.
type View struct {
	World      *world.World
	Dataplane  *dataplane.Dataplane
	Extensions extension.Set
	c          *Core
	now        time.Time
}

// Look returns the view of a time.
func (c *Core) Look(now time.Time) View { return View{c.world, c.dataplane, c.extensions.Set, c, now} }

// SyncedAt returns when everything had been pulled and reported since the agent started or lost messages; zero: it has not.
func (v View) SyncedAt() time.Time { return v.c.reports.syncedAt }

// Unsaved returns whether the snapshot is not what is known now, or is being written.
func (v View) Unsaved() bool { return v.c.memory.unsaved() }

// Quarantined names what failed and is tried again, sorted.
func (v View) Quarantined() []string { return v.c.contained.names() }

// LastPlug returns when a port was plugged in last.
func (v View) LastPlug() time.Time { return v.c.reports.lastPlug }

// NextStep returns when the next step is due; zero: when something happens.
func (v View) NextStep() time.Time { return v.c.wakeAt }

// AgentStatus returns how the agent is, but for what only its loop knows.
func (v View) AgentStatus() inspect.Status {
	c := v.c
	s := inspect.Status{
		Host: c.cfg.Host, Version: c.cfg.Version, Started: c.seen.began,
		Switch: c.seen.sw, Broker: c.seen.broker, Server: c.seen.server,
		Bridges: v.AllBridges(), Ports: map[string]int{}, Totals: c.seen.totals, Firewall: "none",
		FromSnapshot: c.world.Remembered() > 0, Held: c.contained.quarantined(),
	}
	s.Totals.Panics, s.Totals.Resyncs, s.Totals.Wired = c.contained.panics, c.resyncing.count, c.reports.took
	s.Totals.Packets = c.extensions.packetTotals()
	s.Totals.Wired.Buckets, s.Totals.Apply.Buckets = slices.Clone(s.Totals.Wired.Buckets), slices.Clone(s.Totals.Apply.Buckets)
	if c.bridges.inSight() {
		s.Switch.Detail = strings.TrimSpace("Open vSwitch " + c.world.View.Capabilities().OVSVersion)
		if kind := c.cfg.Configurations.DatapathType; kind != "" {
			s.Switch.Detail += ", " + kind
		}
	}
	if c.cfg.World.FilterTables {
		s.Firewall = "openvswitch"
		if !c.cfg.World.Filter {
			s.Firewall = "openvswitch, disabled"
		}
	}
	if c.cfg.World.Hybrid {
		s.Firewall = "iptables_hybrid"
	}
	if c.rules.Room != nil {
		s.Totals.RulesWritten = c.rules.Written()
	}
	for _, id := range c.world.PortIDs() {
		s.Ports[c.world.Port(id).Wiring.State.String()]++
	}
	s.Advisories = c.seen.advisories(c.zones.limits.Dropped())
	facts := v.Facts(gate.All)
	s.Pending = inspect.Pending{Details: facts.Ports, Items: facts.Groups, Rows: facts.Rows, Reports: facts.Reports}
	for _, b := range facts.Bridges {
		s.Pending.Flows += b.Flows
	}
	blockers := gate.Blockers(facts)
	s.Reasons, s.Changing = gate.Details(blockers, gate.InSync)
	s.InSync, s.SyncedAt, s.Ready = gate.Open(blockers, gate.InSync), c.reports.firstSync, gate.Open(blockers, gate.Ready)
	s.Awaited = c.reports.awaited(v.now)
	return s
}

// open returns whether nothing blocks a scope now.
func (c *Core) open(s gate.Scope) bool { return gate.Open(gate.Blockers(c.Look(c.now()).Facts(s)), s) }

// Facts collects what can block the scopes. It writes nothing. The loop asks for Complete and Prune after every event: once it is clear
// that they are blocked, nothing more is collected for them.
func (v View) Facts(s gate.Scope) gate.Facts {
	c := v.c
	reports := c.reports.Stats()
	f := gate.Facts{
		SwitchUp: c.bridges.inSight(), Registered: c.server.known(), RoundRunning: c.dataplane.InFlight(), Reports: reports.Due,
		Calls:     c.pulls.InFlight() + reports.InFlight + c.extensions.awaited(),
		ResyncDue: c.resyncing.pending(), Refresh: reports.Networks, Known: !c.reports.firstSync.IsZero(),
	}
	for _, t := range c.cfg.World.TunnelTypes {
		if !c.world.Tunnels.Listed(t) {
			f.TunnelTypes = append(f.TunnelTypes, t)
		}
	}
	onlyLoop := s&^(gate.Complete|gate.Prune) == 0
	if onlyLoop && !gate.Open(gate.Blockers(f), s) {
		return f
	}
	f.Ports, f.Groups = c.world.Unspoken()
	f.Unrequested, f.Entries = c.reports.missingEntries(v.now)
	for _, e := range c.extensions.Set {
		g, ok := e.Extension.(*guarded)
		f.Extensions = append(f.Extensions, gate.Extension{Name: e.Name(), Waits: waiting(e), Failed: ok && g.owes})
	}
	f.HeldBlind, f.RulesFirst = c.contained.blind(), c.rules.inherits()
	if !onlyLoop {
		v.switchFacts(&f)
	}
	return f
}

// waiting counts what an extension wants pulled or called now. What it calls in the background does not count.
func waiting(e extension.Member) int {
	n := len(e.Missing())
	for _, call := range e.Calls() {
		if !call.Background {
			n++
		}
	}
	return n
}

// switchFacts adds what the loop does not need to decide: connections, and what the switch has to be changed by.
func (v View) switchFacts(f *gate.Facts) {
	c := v.c
	f.Known = f.Known || c.world.Remembered() > 0
	f.SwitchError, f.ServerError = c.seen.sw.Error, c.seen.server.Error
	if !c.seen.broker.Up {
		f.BrokerError = c.seen.broker.Error
	}
	f.StateReportFailed = c.server.report.failed > 0
	f.Unresolved, f.ViewBehind = c.world.HasChanges(), c.dataplane.Behind(c.world.View)
	f.RowsUnchecked, f.Rows = len(c.dataplane.RowsPending()), c.dataplane.RowsToWrite(c.world.View, c.contained.rows)
	f.ZonesDue, f.ZonesFailed = c.zones.Pending(), c.zones.Failed()
	f.RulesBusy, f.RuleFaults = c.rules.blocking()
	f.TablesBusy, f.TableFaults = c.extensions.tablesBlocking(func() bool { return c.open(gate.Prune) })
	f.ServiceFaults = c.extensions.servicesBlocking()
	for i, o := range c.dataplane.Failures() {
		if i < maxRejected {
			f.Rejected = append(f.Rejected, gate.Rejected{Object: world.NameOf(o.Object), Times: o.Failed})
		}
	}
	for _, h := range c.contained.quarantined() {
		f.Held = append(f.Held, gate.Held{Object: h.Object, Effect: h.Effect})
	}
	for _, name := range c.world.Bridges() {
		b := c.dataplane.Bridge(name)
		f.Bridges = append(f.Bridges, gate.Bridge{
			Name: name, Exists: c.world.View.BridgeByName(name) != nil, Connected: b.Connected, Error: errorText(b.Err),
			Read: b.Known, Reading: b.Reading, Flows: b.Counts.Pending, Meters: b.Meters,
		})
	}
}

// maxRejected bounds how many objects are named that the switch rejects again and again.
const maxRejected = 5

// AgentProgress works out how far the agent is.
func (v View) AgentProgress() *effect.Progress {
	blockers := gate.Blockers(v.Facts(gate.All))
	p := effect.Progress{Idle: gate.Open(blockers, gate.Idle)}
	if p.Complete = p.Idle && v.Dataplane.Pruned() && !v.c.bridges.mustShut() && gate.Open(blockers, gate.Complete); !p.Complete {
		p.Missing, _ = gate.Details(blockers, gate.All)
	}
	return &p
}

// AllBridges returns how the bridges are.
func (v View) AllBridges() []inspect.Bridge {
	c := v.c
	out := []inspect.Bridge{}
	for _, name := range c.world.Bridges() {
		b := c.dataplane.Bridge(name)
		n := b.Counts
		doc := inspect.Bridge{
			Name: name, Role: "physical", Connected: b.Connected,
			Wanted: n.Wanted, Present: n.Present, Foreign: n.Foreign, Pending: n.Pending, Repaired: b.Repaired, Changed: b.Changed,
		}
		switch name {
		case c.cfg.World.IntegrationBridge:
			doc.Role = "integration"
		case c.cfg.World.TunnelBridge:
			doc.Role = "tunnel"
		}
		for physnet, bridge := range c.cfg.World.Physical {
			if bridge == name {
				doc.Physical = physnet
			}
		}
		if !b.Connected {
			doc.Error = errorText(b.Err)
		}
		if row := c.world.View.BridgeByName(name); row != nil {
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
	applied   bool
	notes     []string
	filter    bool
	rules     []string
	flows     int
}

// CopyPort returns a copy of a port.
func (v View) CopyPort(p *world.Port) PortCopy {
	o := world.PortObject(p.ID)
	out := PortCopy{port: *p, applied: v.Dataplane.Status(v.World.View, o) == dataplane.Applied, filter: v.World.Filtered(p), confirmed: v.c.reports.Confirmed(p.ID), notes: v.Extensions.Explain(o)}
	if p.VIF != nil {
		out.vif = *p.VIF
	}
	if s := v.World.Segments.Get(p.Wiring.Segment); s != nil {
		out.segment = world.Segment{Key: s.Key, Type: s.Type, Physnet: s.Physnet}
	}
	if l := v.c.reports.of[p.ID]; l != nil {
		out.line = *l
	}
	out.flows, out.rules = v.Dataplane.Flows(o), v.c.rules.lines(p.ID)
	return out
}

// Document returns the port for people.
func (c *PortCopy) Document() inspect.Port {
	w := c.port.Wiring
	doc := inspect.Port{
		ID: c.port.ID, State: w.State.String(), Reason: w.Reason, Interface: c.vif.Name, OFPort: c.vif.OFPort,
		Network: w.Segment.Network, VLAN: w.VLAN, Filtered: c.filter, Groups: c.port.Groups,
		Reported: [...]string{"", "up", "down", "admin down"}[c.confirmed],
		Applied:  c.applied, Flows: c.flows, Rules: c.rules,
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
