// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
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
		Remembered: a.world.Remembered() > 0, Held: a.quarantined(),
	}
	s.Totals.Wired = a.seen.histogram()
	if a.switchUp {
		s.Switch.Detail = strings.TrimSpace("Open vSwitch " + a.world.View.Capabilities().OVSVersion)
	}
	if a.cfg.World.FilterTables {
		s.Firewall = "openvswitch"
		if !a.cfg.World.Filter {
			s.Firewall = "openvswitch, switched off"
		}
	}
	for _, id := range a.world.PortIDs() {
		s.Ports[a.world.Port(id).Wiring.State.String()]++
	}
	s.Advisories = a.advisories()
	s.Pending = a.pendingWork(s.Bridges)
	s.Reasons = a.reasons(&s)
	s.InSync, s.SyncedAt = len(s.Reasons) == 0, a.seen.synced
	return s
}

func (a *Agent) pendingWork(bridges []inspect.Bridge) inspect.Pending {
	p := inspect.Pending{Reports: len(a.ports.changed)}
	p.Details, p.Items = a.world.Unspoken()
	for o := range a.wiring.unsettled {
		if a.rows(o).Len() > 0 {
			p.Rows++
		}
	}
	for _, b := range bridges {
		p.Flows += b.Pending
	}
	return p
}

// reasons says in sentences why not everything is as the server wants it, or why that is not known.
func (a *Agent) reasons(s *inspect.Status) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	because := func(text string) string {
		if text == "" {
			return ""
		}
		return ": " + text
	}
	if !a.switchUp {
		say("the switch's database cannot be reached%s", because(s.Switch.Error))
	}
	for _, b := range s.Bridges {
		switch {
		case !b.Connected && a.world.View.BridgeByName(b.Name) == nil:
			say("bridge %s does not exist", b.Name)
		case !b.Connected:
			say("bridge %s cannot be programmed%s", b.Name, because(b.Error))
		case !a.bridge(b.Name).tracker.Known():
			say("the flows of bridge %s have not been read yet", b.Name)
		}
	}
	if !s.Broker.Up && a.seen.broker.Error != "" {
		say("the broker cannot be reached%s", because(s.Broker.Error))
	}
	switch {
	case a.versions == nil:
		say("no neutron-server has answered yet%s", because(s.Server.Error))
	case a.report.failed > 0:
		say("the server does not take our state reports%s", because(s.Server.Error))
	}
	if s.Pending.Details > 0 {
		say("the server has not told about %s yet", count(s.Pending.Details, "port"))
	}
	if s.Pending.Items > 0 {
		say("the server has not told about %s that filters need yet", count(s.Pending.Items, "group"))
	}
	for _, t := range a.cfg.World.TunnelTypes {
		if a.tunnels[t] != tunnelSynced {
			say("the server has not told the %s endpoints of other hosts yet", t)
		}
	}
	if n := a.untold(); n > 0 {
		say("the server has not sent the forwarding entries of %s yet", count(n, "network"))
	}
	if s.Pending.Rows > 0 {
		say("rows of %s are not written yet", count(s.Pending.Rows, "object"))
	}
	if s.Pending.Flows > 0 {
		say("%s not as wanted yet", count(s.Pending.Flows, "flow"))
	}
	for _, zone := range slices.Sorted(maps.Keys(a.tracking.retries)) {
		say("connection tracking zone %d was not flushed; new ports of its network wait", zone)
	}
	out = append(out, a.stumbling()...)
	out = append(out, heldReasons(s.Held)...)
	if s.Pending.Reports > 0 {
		say("the status of %s has not been told to the server yet", count(s.Pending.Reports, "port"))
	}
	for _, e := range a.extensions.Set {
		if n := len(e.Missing()) + len(e.Due()); n > 0 {
			say("extension %s waits for %s", e.Name(), count(n, "answer"))
		}
	}
	if len(out) == 0 && (a.wiring.applying || a.ports.asking+a.ports.checking > 0 || len(a.ports.onWay) > 0 || a.filters.asking+a.filters.checking > 0) {
		say("changes are on their way")
	}
	return out
}

// untold counts the networks whose forwarding entries are still waited for.
func (a *Agent) untold() int {
	if !a.cfg.World.L2Population || !a.syncedAt.IsZero() && time.Since(a.syncedAt) > fdbGrace {
		return 0
	}
	n := 0
	for _, s := range a.world.Segments() {
		if s.Tunnelled() && !s.Told() {
			n++
		}
	}
	return n
}

// maxStumbling bounds how many objects are named that fail again and again.
const maxStumbling = 5

// stumbling names objects whose rows or flows were refused.
func (a *Agent) stumbling() []string {
	var out []string
	for _, o := range slices.SortedFunc(maps.Keys(a.wiring.retries), world.Object.Compare) {
		if r := a.wiring.retries[o]; (a.wiring.unsettled[o] || a.pending(o)) && len(out) < maxStumbling {
			out = append(out, fmt.Sprintf("%s was refused %s by the switch and is tried again; see the last errors", o, count(r.failed, "time")))
		}
	}
	return out
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Bridges implements [inspect.Source].
func (a *Agent) Bridges(ctx context.Context) (list []inspect.Bridge, err error) {
	err = a.ask(ctx, func() { list = a.bridges() })
	return list, err
}

func (a *Agent) bridges() []inspect.Bridge {
	out := []inspect.Bridge{}
	for _, name := range a.world.Bridges() {
		b := a.bridge(name)
		c := b.tracker.Counts()
		doc := inspect.Bridge{
			Name: name, Role: "physical", Connected: b.conn != nil,
			Wanted: c.Wanted, Present: c.Present, Foreign: c.Foreign, Pending: c.Pending, Repaired: b.repaired, Changed: b.changed,
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
		if b.conn == nil {
			doc.Error = errorText(b.err)
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
	if err := a.ask(ctx, func() { next, stop = iter.Pull(a.bridge(name).tracker.All()) }); err != nil {
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
		case k.Doomed || leftover(k.Have):
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
	port    world.Port
	vif     world.VIF
	segment world.Segment
	told    status
	line    timeline
	settled bool
	notes   []string
	filter  bool
	flows   int
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
	c := portCopy{port: *p, settled: a.settled(o), filter: a.world.Filtered(p), told: a.ports.told[p.ID].status, notes: a.extensions.Explain(o)}
	if p.VIF != nil {
		c.vif = *p.VIF
	}
	if s := a.world.Segment(p.Wiring.Segment); s != nil {
		c.segment = world.Segment{Key: s.Key, Type: s.Type, Physnet: s.Physnet}
	}
	if l := a.ports.lines[p.ID]; l != nil {
		c.line = *l
	}
	for _, b := range a.wiring.bridges {
		c.flows += b.tracker.Owned(o)
	}
	return c
}

func (c *portCopy) document() inspect.Port {
	w := c.port.Wiring
	doc := inspect.Port{
		ID: c.port.ID, State: w.State.String(), Reason: w.Reason, Interface: c.vif.Name, OFPort: c.vif.OFPort,
		Network: w.Segment.Network, VLAN: w.VLAN, Filtered: c.filter, Groups: c.port.Groups,
		Told:    [...]string{"", "up", "down", "switched off"}[c.told],
		Settled: c.settled, Flows: c.flows,
		Timeline: inspect.Timeline{Plugged: c.line.plugged, Answered: c.line.answered, Settled: c.line.settled, Reported: c.line.reported},
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
