// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Take takes events whose consequences wait for the next Step: of a flood of messages as many are taken as there is time for. It returns
// the last event, if that was a push about one port with which this host has nothing to do. The core remembers of it what
// [world.Stranger] tells, and decides the same when it is told nothing else.
func (c *Core) Take(now time.Time, events ...effect.Event) (passed *neutron.Push) {
	c.begin(now)
	c.world.Time = now
	for _, e := range events {
		c.receive(e)
	}
	return c.seen.passed
}

// receive takes one event. Should that fail, what it leaves undone is done in another way, and the next event is taken.
func (c *Core) receive(e effect.Event) {
	c.seen.passed = nil
	switch e := e.(type) {
	case effect.SwitchChanged:
		if !c.contained.contain(culprit{name: "taking rows of the switch"}, func() { c.switchChanged(e.Batch) }) {
			c.rowsLost(e.Batch)
		}
		return
	case effect.ReportDue:
		c.contained.contain(culprit{name: "reporting the agent's state"}, func() {
			c.world.Expire(c.now())
			c.server.sendReport(c.bridges.up, c.bridges.dead(), c.extensions.Set)
		})
		return
	}
	c.landed(e)
	if p := (*effect.Panic)(nil); errors.As(effect.Failure(e), &p) {
		c.contained.tally(culprit{name: p.What}, p)
	}
	c.contained.contain(culprit{name: "noting events"}, func() { c.seen.note(e, c.extensions.Set) })
	if r, ok := e.(effect.Applied); ok && r.Err != nil {
		c.contained.mend("giving up a round of changes", func() { c.abandon(r) })
		return
	}
	if !c.contained.contain(culprit{name: "taking " + nameOf(e)}, func() { c.event(e) }) {
		c.contained.mend("giving up "+nameOf(e), func() { c.abandon(e) })
	}
}

// nameOf is the name of an event for people.
func nameOf(e effect.Event) string {
	if m, ok := e.(effect.Message); ok {
		return "a message of topic " + m.Topic
	}
	return fmt.Sprintf("%T", e)
}

// landed takes that work beside the loop has come to its end, whatever becomes of its outcome.
func (c *Core) landed(e effect.Event) {
	switch e := e.(type) {
	case effect.Applied:
		c.dataplane.Landed()
	case effect.Saved:
		c.memory.saving = false
	default:
		c.server.landed(e)
	}
}

// event takes one event to those whose it is.
func (c *Core) event(e effect.Event) {
	switch e := e.(type) {
	case effect.Message:
		c.message(e.Message)
	case effect.Broker:
		c.resyncing.soon(c.seen.brokerEvent(e.Event))
	case effect.Dropped:
		c.resyncing.soon(c.seen.messagesDropped(e))
	case effect.Registered:
		if c.server.registered(e) {
			c.server.sendReport(c.bridges.up, c.bridges.dead(), c.extensions.Set)
		}
	case effect.StateReported:
		c.stateReported(e)
	case effect.BridgeLinked:
		c.bridges.linked(e, c.extensions.Set)
		c.zones.linked(e)
	case effect.FlowsRead:
		c.bridges.read(e.Reading)
		c.rules.flowsRead(e.Reading)
	case effect.FlowsChanged:
		c.bridges.observed(e)
	case effect.Applied:
		c.bridges.act(c.dataplane.Done(e.Round, c.now()))
		c.zones.applied(e.Round, c.now())
	case effect.Pulled:
		c.heard(e.Err)
		if c.pulls.ended(e, c.extensions.Set) {
			c.memory.changed()
		}
	case effect.PortsReported:
		c.reports.ended(e)
	case effect.Saved:
		c.memory.saved(e)
	case effect.ConnectionsListed:
		c.zones.releaseConnections(e)
	case effect.ConnectionsReleased:
		c.zones.released(e)
	case effect.DatabaseAsked:
		c.heard(e.Err)
	case effect.Called, effect.DeviceChanged, effect.ForwardingRead, effect.ForwardingChanged, effect.Served, effect.ResolverAnswered:
		if c.extensions.ended(e) {
			c.memory.changed()
		}
	case effect.PacketIn:
		c.extensions.packetCame(e)
	case effect.WatchdogDue:
		c.start(effect.Notify{})
	case effect.PacketsUnheard, effect.NotifyFailed:
		c.seen.warn(e)
	case effect.FollowFailed, effect.AnswerFailed: // counted when it landed
	default:
		c.rules.ended(e)
	}
}

// abandon gives up an event that could not be taken, as if its outcome had been a failure. It may have been taken half-way.
func (c *Core) abandon(e effect.Event) {
	now := c.now()
	switch e := e.(type) {
	case effect.Message:
		c.seen.totals.Dropped++
		c.resyncing.lost()
	case effect.Broker:
		c.resyncing.lost()
	case effect.Registered:
		c.server.registrationLost()
	case effect.BridgeLinked:
		if e.Conn != nil {
			c.bridges.hangUp(e.Conn)
		}
	case effect.FlowsRead:
		c.bridges.act(c.dataplane.ReadAbandoned(e.Reading))
	case effect.FlowsChanged:
		c.dataplane.EventsLost(e.Bridge)
	case effect.Applied:
		for _, b := range e.Round.Bundles {
			c.zones.Withheld(b.Zones)
		}
		c.bridges.act(c.dataplane.Abandoned(e.Round))
	case effect.Pulled:
		c.pulls.Done(e.Batch, pull.Result{}, now)
	case effect.PortsReported:
		c.reports.Fail(e.Batch, now)
	case effect.Saved:
		c.memory.changed()
	case effect.RulesRead, effect.RulesApplied, effect.ConnectionsEnded:
		c.rules.Abandoned(now)
	case effect.ConnectionsListed:
		c.zones.Abandoned(e.Found, now)
	case effect.ConnectionsReleased:
		c.zones.Released()
	case effect.Called:
		c.extensions.callLost(e.CallKey)
	case effect.ForwardingRead:
		c.extensions.tablesLost(e.Extension)
	case effect.ForwardingChanged:
		c.extensions.tablesLost(e.Extension)
	}
}

// heard takes what the outcome of any question says about the database of the server. What failed for want of it is tried at once.
func (c *Core) heard(err error) {
	if c.server.heard(err) {
		now := c.now()
		c.pulls.RetryNow(now)
		c.extensions.retries.RetryNow(now)
		c.reports.RetryNow(now)
		c.reports.Abandon() // they are in one of the server's pauses
	}
}

// stateReported takes the outcome of a state report.
func (c *Core) stateReported(e effect.StateReported) {
	missed, revived := c.server.reportEnded(e)
	c.resyncing.soon(missed)
	if revived { // our queue has kept what was sent meanwhile; had it not, a gap would have told
		c.reports.refreshNetworks()
	}
}

// switchChanged moves the view on.
func (c *Core) switchChanged(b *ovsdb.Batch) {
	c.seen.noteSwitch(b)
	if b.Kind == ovsdb.Disconnected {
		c.bridges.disconnected(b.Err)
		return
	}
	c.world.Switch(b)
	c.seen.notePlugged(b)
	c.extensions.OnRows(b)
	if c.bridges.connected() {
		c.seen.warnOfSwitch()
		c.server.sendReport(c.bridges.up, c.bridges.dead(), c.extensions.Set)
	}
}

// rowsLost takes a batch of rows that could not be taken: what follows from all rows is worked out again.
func (c *Core) rowsLost(b *ovsdb.Batch) {
	if b.Kind == ovsdb.Disconnected {
		c.bridges.up = false
		return
	}
	c.contained.mend("rebuilding from rows", func() {
		if c.world.View.Seq() < b.Seq {
			c.world.View.Apply(b)
		}
		c.world.Rebuild()
		for _, g := range c.extensions.guards {
			g.owes = true
		}
		c.bridges.started, c.bridges.up = true, true
	})
}

// message takes what the server told us to the world.
func (c *Core) message(m *messaging.Message) {
	decoded, err := neutron.DecodeMessage(m.Topic, m.Method, m.Args)
	if err != nil {
		c.seen.totals.Dropped++
		c.log.repeat(slog.LevelWarn, "RPC message cannot be decoded", "topic", m.Topic, "err", err)
		c.resyncing.lost() // whatever it was
		return
	}
	c.log.Debug("RPC message received", "topic", m.Topic, "method", m.Method, "known", decoded != nil)
	if push, ok := decoded.(*neutron.Push); ok {
		err = errors.Join(c.world.Push(push, c.now()), c.extensions.OnPush(push))
		if err != nil && slices.ContainsFunc(push.Objects, func(o neutron.Primitive) bool { return o.ID() == "" }) {
			c.resyncing.lost() // it may have been about anything
		}
	} else {
		err = c.extensions.OnCast(m.Method, m.Args)
	}
	if err != nil {
		c.contained.unreadable("message of topic "+m.Topic, err)
		c.log.repeat(slog.LevelWarn, "RPC message cannot be decoded", "topic", m.Topic, "err", err)
	}
	switch d := decoded.(type) {
	case *neutron.TunnelUpdate:
		c.world.Tunnels.Up(world.Endpoint{Type: d.Type, IP: d.IP})
	case *neutron.TunnelDelete:
		c.world.Tunnels.Gone(world.Endpoint{Type: d.Type, IP: d.IP})
	case *neutron.FDBAdd:
		if m.Fanout {
			c.world.Tunnels.FDBBroadcast(d)
		} else {
			c.world.Tunnels.FDBAdd(d)
		}
	case *neutron.FDBRemove:
		c.world.Tunnels.FDBRemove(d)
	case *neutron.FDBChange:
		c.world.Tunnels.FDBChange(d)
	}
	if push, ok := decoded.(*neutron.Push); ok && err == nil && c.world.Passed() && len(push.Objects) == 1 && !c.extensions.Takes(push.Kind) {
		c.seen.passed = push
	}
	c.seen.noteMessage(decoded) // at the end: what fails before it is counted as dropped
}
