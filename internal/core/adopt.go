// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

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
	led := map[uint64]bool{}
	for _, e := range entries {
		if e.Table() != pipeline.TableTransient {
			continue
		}
		if f, err := e.Flow(); err == nil {
			if from, ok := f.Match.Lookup(openflow.InPort); ok {
				led[from.Value.Lo] = true
			}
		}
	}
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
