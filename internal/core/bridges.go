// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"log/slog"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
)

// bridges are the connections to the switch and to its bridges. What is to be on them decides package dataplane.
type bridges struct {
	room
	started   bool // the switch has been seen
	up        bool // the world's view of it is current
	dataplane *dataplane.Dataplane
	links     map[string]effect.Conn // by bridge, of those that are dialled; nil while there is none
}

// inSight returns whether the switch has been seen and is there.
func (b *bridges) inSight() bool { return b.started && b.up }

// connected takes that the switch is there, and returns whether it was not.
func (b *bridges) connected() bool {
	if !b.started {
		b.started = true
		b.world.Rebuild() // everything is compiled
	}
	if b.up {
		return false
	}
	b.up = true
	b.log.forget(noSwitch)
	b.log.Info("connected to ovsdb-server", "ports", len(b.world.PortIDs()))
	return true
}

// disconnected takes that the switch is away.
func (b *bridges) disconnected(err error) {
	b.up = false
	b.log.repeat(slog.LevelWarn, noSwitch, "err", err)
}

// noSwitch lasts while the database of the switch is away.
const noSwitch = "connection to ovsdb-server failed, retrying"

// dial connects to the bridges that exist.
func (b *bridges) dial() {
	for _, name := range b.world.Bridges() {
		row := b.world.View.BridgeByName(name)
		if lost, err := b.dataplane.Unreachable(name, b.now()); row != nil && lost {
			b.log.repeat(slog.LevelWarn, "OpenFlow connection to the bridge failed, retrying", "bridge", name, "err", err)
		}
		if _, dialled := b.links[name]; dialled || row == nil || row.DatapathID == "" {
			continue // the switch has not made it yet
		}
		b.links[name] = nil
		b.start(effect.Dial{Bridge: name})
	}
}

// linked takes that a connection was made, or lost. What a new one has is read.
func (b *bridges) linked(e effect.BridgeLinked, set extension.Set) {
	b.act(b.dataplane.Linked(e.Bridge, e.Conn, e.Err, b.now()))
	b.links[e.Bridge] = e.Conn
	if e.Conn != nil {
		b.start(effect.ReadFlows{
			Reading: dataplane.Reading{Bridge: e.Bridge, Conn: e.Conn}, Begin: true,
			AskMeters: len(set) > 0, Packets: set.HandlesPackets(),
		})
	}
}

// act does what an input of the dataplane leads to.
func (b *bridges) act(out dataplane.Outcome) {
	for _, l := range out.Logs {
		if l.Repeated {
			b.log.repeat(l.Level, l.Message, l.Args...)
		} else {
			b.log.Log(context.Background(), l.Level, l.Message, l.Args...) //nolint:sloglint // the messages of the dataplane are constants
		}
	}
	for _, conn := range out.Close {
		b.hangUp(conn)
	}
}

// hangUp closes a connection. The supervisor makes a new one.
func (b *bridges) hangUp(conn effect.Conn) {
	for _, name := range b.world.Bridges() {
		if b.links[name] == conn {
			b.start(effect.HangUp{Bridge: name, Conn: conn})
			return
		}
	}
	b.start(effect.HangUp{Conn: conn}) // an earlier one
}

// read takes what is on a bridge.
func (b *bridges) read(e dataplane.Reading) {
	out, first := b.dataplane.Read(e, b.now())
	b.act(out)
	if !first {
		return
	}
	b.world.MaxMeters[e.Bridge] = e.MaxMeters
	if e.Bridge == b.cfg.World.IntegrationBridge {
		b.adopt(e.Flows)
		b.disinherit(e.Bridge)
		b.keepApart(e.Flows)
	}
	b.log.forget("OpenFlow connection to the bridge failed, retrying")
	b.log.Info("bridge connected", "bridge", e.Bridge, "flows", len(e.Flows))
}

// observed takes changes that others made.
func (b *bridges) observed(e effect.FlowsChanged) {
	b.act(b.dataplane.Observe(e.Bridge, e.Conn, e.Updates, e.Lost, b.now()))
}

// readAgain reads bridges again of which changes may be unknown.
func (b *bridges) readAgain() {
	for _, r := range b.dataplane.ToRead(b.now()) {
		b.start(effect.ReadFlows{Reading: r})
	}
}

// prune removes what earlier runs and other agents left on our bridges; all of it, once everything that could still want it has spoken.
func (b *bridges) prune(all bool) {
	now, more := b.now(), false
	if all {
		b.world.Confirmed()
		var out dataplane.Outcome
		out, more = b.dataplane.Prune()
		b.act(out)
	}
	if b.dataplane.PruneMeters(now) || more {
		b.wakeUp(now)
	}
	b.wakeUp(b.dataplane.Deadline(now))
}
