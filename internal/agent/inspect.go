// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// The agent answers questions about itself: see [inspect.Source]. The loop copies, the asker formats. Of what there may be
// many, the loop copies a few at a time, so that no question holds it up for longer than an event does.
var _ inspect.Source = (*Agent)(nil)

var errEnded = errors.New("the agent has stopped")

// How many things the loop copies before it looks at its events again: some hundred microseconds' worth.
const (
	flowsPerStep    = 500
	portsPerStep    = 100
	segmentsPerStep = 10
	groupsPerStep   = 20
)

// ask has the loop run a function that looks and changes nothing.
func (a *Agent) ask(ctx context.Context, look func()) error {
	done := make(chan error, 1)
	question := func() {
		// A mistake in an answer is no reason to stop wiring ports.
		defer func() {
			if r := recover(); r != nil {
				err := fmt.Errorf("answering failed: %w", &panicked{r, frames()})
				a.tally(culprit{name: "answering a question"}, err)
				done <- err
			}
		}()
		look()
		done <- nil
	}
	select {
	case a.asked <- question:
		return <-done
	case <-a.ended:
		return errEnded
	case <-ctx.Done():
		return fmt.Errorf("the agent's loop does not answer: %w", ctx.Err())
	}
}

// Alive says whether the loop goes round.
func (a *Agent) Alive(ctx context.Context) error { return a.ask(ctx, func() {}) }

// Status implements [inspect.Source].
func (a *Agent) Status(ctx context.Context) (inspect.Status, error) {
	var s inspect.Status
	if err := a.ask(ctx, func() { s = a.status() }); err != nil {
		return inspect.Status{}, err
	}
	s.Errors = a.recorder.lastWarnings()
	s.Totals.Warnings, s.Totals.Errors = a.recorder.lines()
	return s, nil
}

func (a *Agent) status() inspect.Status {
	s := inspect.Status{
		Host: a.cfg.Host, Version: a.cfg.Version, PID: os.Getpid(), Started: a.seen.began,
		Switch: a.seen.sw, Broker: a.seen.broker, Server: a.seen.server,
		Bridges: a.bridges(), Ports: map[string]int{}, Totals: a.seen.totals, Firewall: "none",
		FromSnapshot: a.world.Remembered() > 0, Held: a.quarantined(),
	}
	s.Totals.Wired.Buckets, s.Totals.Apply.Buckets = slices.Clone(s.Totals.Wired.Buckets), slices.Clone(s.Totals.Apply.Buckets)
	if a.switchUp {
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
	s.Advisories = a.advisories()
	now := time.Now()
	facts := a.facts(now, gate.All)
	s.Pending = inspect.Pending{Details: facts.Ports, Items: facts.Groups, Rows: facts.Rows, Reports: facts.Reports}
	for _, b := range facts.Bridges {
		s.Pending.Flows += b.Flows
	}
	blockers := gate.Blockers(facts)
	s.Reasons, s.Changing = gate.Details(blockers, gate.InSync)
	s.InSync, s.SyncedAt, s.Ready = gate.Open(blockers, gate.InSync), a.seen.synced, gate.Open(blockers, gate.Ready)
	s.Awaited = a.awaited(now)
	return s
}

// Bridges implements [inspect.Source].
func (a *Agent) Bridges(ctx context.Context) (list []inspect.Bridge, err error) {
	err = a.ask(ctx, func() { list = a.bridges() })
	return list, err
}

func (a *Agent) bridges() []inspect.Bridge {
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

// inSteps has the loop look at items, some at a time.
func (a *Agent) inSteps(ctx context.Context, items []string, step int, look func(string)) error {
	for chunk := range slices.Chunk(items, step) {
		err := a.ask(ctx, func() {
			for _, item := range chunk {
				look(item)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Flows implements [inspect.Source].
func (a *Agent) Flows(ctx context.Context, bridge string) ([]inspect.Flow, error) {
	var names []string
	if err := a.ask(ctx, func() { names = a.world.Bridges() }); err != nil {
		return nil, err
	}
	out := []inspect.Flow{}
	for _, name := range names {
		if bridge != "" && bridge != name {
			continue
		}
		found, err := a.flowsOf(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			out = append(out, flowDocument(name, k))
		}
	}
	if bridge != "" && !slices.Contains(names, bridge) {
		return nil, fmt.Errorf("%w: bridge %s is none of this agent's", inspect.ErrNotFound, bridge)
	}
	return out, nil
}

// flowsOf copies what is known of a bridge, in the order of its tables.
func (a *Agent) flowsOf(ctx context.Context, name string) ([]delta.Known, error) {
	var next func() (delta.Known, bool)
	var stop func()
	if err := a.ask(ctx, func() { next, stop = iter.Pull(a.dataplane.Known(name)) }); err != nil {
		return nil, err
	}
	// A range that has not been finished is ended between questions, never beside one: ask has returned.
	defer stop()
	var all []delta.Known
	for more := true; more; {
		chunk := make([]delta.Known, 0, flowsPerStep)
		err := a.ask(ctx, func() {
			for len(chunk) < flowsPerStep {
				k, ok := next()
				if !ok {
					more = false
					return
				}
				chunk = append(chunk, k)
			}
		})
		if err != nil {
			return nil, err
		}
		all = append(all, chunk...)
	}
	// One that changed meanwhile may have come twice: what was seen last counts.
	slices.SortStableFunc(all, func(x, y delta.Known) int { return x.Key.Compare(y.Key) })
	slices.Reverse(all)
	all = slices.CompactFunc(all, func(x, y delta.Known) bool { return x.Key == y.Key })
	slices.Reverse(all)
	return all, nil
}

func flowDocument(bridge string, k delta.Known) inspect.Flow {
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

// Events implements [inspect.Source]. It does not need the loop.
func (a *Agent) Events(context.Context) ([]inspect.Event, error) { return a.recorder.events(), nil }

// portCopy is a port as the loop hands it out; what it points to does not change.
type portCopy struct {
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

// Ports implements [inspect.Source].
func (a *Agent) Ports(ctx context.Context) ([]inspect.Port, error) {
	var ids []string
	if err := a.ask(ctx, func() { ids = a.world.PortIDs() }); err != nil {
		return nil, err
	}
	copies := make([]portCopy, 0, len(ids))
	err := a.inSteps(ctx, ids, portsPerStep, func(id string) {
		if p := a.world.Port(id); p != nil {
			copies = append(copies, a.copyPort(p))
		}
	})
	if err != nil {
		return nil, err
	}
	counters := a.counters(ctx)
	out := make([]inspect.Port, len(copies))
	for i := range copies {
		out[i] = copies[i].document()
		out[i].Counters = counters(out[i].Interface)
	}
	return out, nil
}

func (a *Agent) copyPort(p *world.Port) portCopy {
	o := world.Object{Kind: world.KindPort, ID: p.ID}
	c := portCopy{port: *p, settled: a.settled(o), filter: a.world.Filtered(p), confirmed: a.reports.Confirmed(p.ID), notes: a.extensions.Explain(o)}
	if p.VIF != nil {
		c.vif = *p.VIF
	}
	if s := a.world.Segments.Get(p.Wiring.Segment); s != nil {
		c.segment = world.Segment{Key: s.Key, Type: s.Type, Physnet: s.Physnet}
	}
	if l := a.timelines.of[p.ID]; l != nil {
		c.line = *l
	}
	c.flows = a.dataplane.Flows(o)
	return c
}

func (c *portCopy) document() inspect.Port {
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
