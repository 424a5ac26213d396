// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
)

// linkBridges connects to the bridges that exist.
func (a *Core) linkBridges() {
	for _, name := range a.world.Bridges() {
		row := a.world.View.BridgeByName(name)
		if lost, err := a.dataplane.Unreachable(name, a.turn.now()); row != nil && lost {
			a.log.repeat(slog.LevelWarn, "OpenFlow connection to the bridge failed, retrying", "bridge", name, "err", err)
		}
		if row == nil && a.switchUp && isMapped(a.cfg.World.Physical, name) {
			a.log.repeat(slog.LevelWarn, noMappedBridge, "bridge", name)
		}
		if _, dialled := a.links[name]; dialled || row == nil || row.DatapathID == "" {
			continue // the switch has not made it yet
		}
		a.links[name] = nil
		a.turn.start(effect.Dial{Bridge: name})
	}
}

const noMappedBridge = "a bridge of bridge_mappings does not exist, waiting for it"

// isMapped returns whether a bridge is one that a physical network is mapped to. Others the agent makes itself.
func isMapped(physical map[string]string, bridge string) bool {
	return slices.Contains(slices.Collect(maps.Values(physical)), bridge)
}

func (a *Core) bridgeLinked(e effect.BridgeLinked) {
	a.act(a.dataplane.Linked(e.Bridge, e.Conn, e.Err, a.turn.now()))
	a.links[e.Bridge] = e.Conn
	if e.Conn != nil {
		a.limits.Changed() // of a switch that was restarted
		a.turn.start(effect.ReadFlows{
			Reading: dataplane.Reading{Bridge: e.Bridge, Conn: e.Conn}, Begin: true,
			AskMeters: len(a.extensions.Set) > 0, Packets: a.extensions.HandlesPackets(),
		})
	}
}

// act does what an input of the dataplane leads to.
func (a *Core) act(out dataplane.Outcome) {
	for _, l := range out.Logs {
		if l.Repeated {
			a.log.repeat(l.Level, l.Message, l.Args...)
		} else {
			a.log.Log(context.Background(), l.Level, l.Message, l.Args...) //nolint:sloglint // the messages of the dataplane are constants
		}
	}
	for _, conn := range out.Close {
		a.hangUp(conn)
	}
}

// hangUp closes a connection. The supervisor makes a new one.
func (a *Core) hangUp(conn effect.Conn) {
	for _, name := range a.world.Bridges() {
		if a.links[name] == conn {
			a.turn.start(effect.HangUp{Bridge: name, Conn: conn})
			return
		}
	}
	a.turn.start(effect.HangUp{Conn: conn}) // an earlier one
}

func (a *Core) bridgeRead(e dataplane.Reading) {
	out, first := a.dataplane.Read(e, a.turn.now())
	a.act(out)
	if !first {
		return
	}
	a.world.MaxMeters[e.Bridge] = e.MaxMeters
	if e.Bridge == a.cfg.World.IntegrationBridge {
		a.adopt(e.Flows)
		a.disinherit(e.Bridge)
		a.keepApart(e.Flows)
	}
	a.log.forget("OpenFlow connection to the bridge failed, retrying")
	a.log.forget(noMappedBridge)
	a.log.Info("bridge connected", "bridge", e.Bridge, "flows", len(e.Flows))
}

// flowsObserved takes changes that others made.
func (a *Core) flowsObserved(e effect.FlowsChanged) {
	a.act(a.dataplane.Observe(e.Bridge, e.Conn, e.Updates, e.Lost, a.turn.now()))
}

// readAgain reads bridges again of which changes may be unknown.
func (a *Core) readAgain() {
	for _, r := range a.dataplane.ToRead(a.turn.now()) {
		a.turn.start(effect.ReadFlows{Reading: r})
	}
}
