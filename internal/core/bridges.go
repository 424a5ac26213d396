// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
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
	b.log.Info("connected to ovsdb-server")
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
		if row == nil && b.up && isMapped(b.cfg.World.Physical, name) {
			b.log.repeat(slog.LevelWarn, noMappedBridge, "bridge", name)
		}
		if _, dialled := b.links[name]; dialled || row == nil || row.DatapathID == "" {
			continue // the switch has not made it yet
		}
		b.links[name] = nil
		b.start(effect.Dial{Bridge: name})
	}
}

const noMappedBridge = "a bridge of bridge_mappings does not exist, waiting for it"

// isMapped returns whether a bridge is one that a physical network is mapped to. Others the agent makes itself.
func isMapped(physical map[string]string, bridge string) bool {
	return slices.Contains(slices.Collect(maps.Values(physical)), bridge)
}

// dead returns whether ovs-vswitchd has not answered for longer than it takes to restart, though its database lives.
func (b *bridges) dead() bool {
	name := b.cfg.World.IntegrationBridge
	if b.dataplane.Bridge(name).Connected {
		return false
	}
	lost, _ := b.dataplane.Unreachable(name, b.now())
	row := b.world.View.BridgeByName(name)
	return lost || row != nil && row.DatapathID == "" // it has never made the bridge
}

// linked takes that a connection was made, or lost. What a new one has is read.
func (b *bridges) linked(e effect.BridgeLinked, set extension.Set) {
	b.act(b.dataplane.Linked(e.Bridge, e.Conn, e.Err, b.now()))
	b.links[e.Bridge] = e.Conn
	if e.Conn != nil {
		read := effect.ReadFlows{
			Reading: dataplane.Reading{Bridge: e.Bridge, Conn: e.Conn}, Begin: true,
			AskMeters: len(set) > 0, Packets: set.PacketBounds(),
		}
		if e.Bridge == b.world.Config.IntegrationBridge { // where VMs are
			read.PacketConns = extension.PacketConns
		}
		b.start(read)
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
	b.log.forget(noMappedBridge)
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
		out, more = b.dataplane.Prune(now)
		b.act(out)
	}
	if b.dataplane.PruneMeters(now) || more {
		b.wakeUp(now)
	}
	b.wakeUp(b.dataplane.Deadline(now))
}

// adopt looks at what filters find on the integration bridge: conjunction ids that another agent's flows bear, and
// whether the bridge is closed to interfaces that nobody knows. An open one, which is another agent's, is closed when
// everything that has to pass has been let in.
func (b *bridges) adopt(entries []openflow.Entry) {
	if !b.cfg.World.Filter {
		return
	}
	open := false
	var ids []uint32
	for _, e := range entries {
		if e.Table() == 0 && e.Priority() == 0 && e.Cookie() != 0 { // without a cookie it is that of a new bridge
			f, err := e.Flow()
			open = open || err == nil && len(f.Match) == 0 && len(f.Actions) > 0
		}
		if e.Cookie() != pipeline.Cookie {
			ids = append(ids, conjunctionIDs(e)...)
		}
	}
	b.world.Members.Avoid(ids)
	if !open {
		b.world.Close()
	}
}

// disinherit removes at once what a port that was never wired would inherit: a number may have been another port's, whose
// flows are still there and would let the new one pass under the other's filters. Wiring leaves its mark on a port's row.
func (b *bridges) disinherit(name string) {
	if !b.cfg.World.Filter {
		return
	}
	heirs := map[uint64]bool{}
	for _, id := range b.world.PortIDs() {
		if vif := b.world.Port(id).VIF; vif != nil && vif.OFPort != 0 {
			if row := b.world.View.Port(vif.Port); row != nil && row.OtherConfig["net_uuid"] == "" {
				heirs[uint64(vif.OFPort)] = true
			}
		}
	}
	if len(heirs) == 0 {
		return
	}
	n := b.dataplane.Release(name, func(e openflow.Entry) bool {
		f, err := e.Flow()
		return err == nil && len(f.Actions) > 0 && dataplane.StaleAgentFlow(e) && slices.ContainsFunc(f.Match, func(t openflow.Term) bool {
			return t.Field == openflow.InPort && heirs[t.Value.Lo]
		})
	})
	if n > 0 {
		b.log.Info("removing flows of reused ofports", "bridge", name, "flows", n)
	}
}

// keepApart shuts the ports that wait for the server, and for which the switch has no filters: it was started anew, and there is no
// memory of them. Their rows still have them in their networks. A port that is known and only waits for its interface gets its
// filters with it.
func (b *bridges) keepApart(entries []openflow.Entry) {
	if !b.world.Closed() {
		return
	}
	led := ledToFilters(entries)
	n := 0
	for _, id := range b.world.PortIDs() {
		p := b.world.Port(id)
		if p.VIF == nil || p.Wiring.State != world.Waiting || led[uint64(p.VIF.OFPort)] || p.VIF.OFPort == 0 && p.Details != nil {
			continue
		}
		b.world.Shut(id)
		n++
	}
	if n > 0 {
		b.log.Info("ports isolated until their security groups are known", "ports", n)
	}
}

// conjunctionIDs are those in the match and the actions of a flow.
func conjunctionIDs(e openflow.Entry) []uint32 {
	f, err := e.Flow()
	if err != nil {
		return nil
	}
	var ids []uint32
	for _, t := range f.Match {
		if t.Field == openflow.ConjID {
			ids = append(ids, uint32(t.Value.Lo))
		}
	}
	for _, action := range f.Actions {
		if c, ok := action.(openflow.Conjunction); ok {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// mustShut returns whether the integration bridge is still open to interfaces that nobody knows, and is not to stay so.
func (b *bridges) mustShut() bool {
	return b.cfg.World.Filter && b.cfg.World.FailClosed && !b.world.Closed()
}

// shut closes the integration bridge to interfaces that nobody knows, once everything that has to pass has its flows.
func (b *bridges) shut() {
	if s := b.dataplane.Bridge(b.cfg.World.IntegrationBridge); !s.Connected || !s.Known || s.Counts.Pending > 0 {
		return
	}
	b.log.Info("all ports are filtered, dropping packets of unknown interfaces from now on")
	b.world.Close()
	b.wakeUp(b.now())
}
