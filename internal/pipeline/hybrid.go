// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// rulesWaiting is why a port is not up that rules of iptables filter.
const rulesWaiting = "its iptables rules are not in place yet"

// unguarded returns whether a port is plugged in through a bridge on which no rule of iptables filters it.
func (c *compiler) unguarded(p *world.Port) bool {
	return c.w.Config.Hybrid && c.w.Bridged(p) && c.w.Guard(p.ID) == world.Unguarded
}

// awaitRules keeps a port out of its network until its rules are in place. One that an earlier run has put there stays, as long as it has rules of that
// time.
func (c *compiler) awaitRules(p *world.Port) {
	keep := int(p.Wiring.VLAN)
	if c.unguarded(p) {
		keep = noVLAN
	}
	c.row(apartRow{p.VIF.Port, keep})
	c.want.Waiting = rulesWaiting
}

// rulesGoneRow wants the mark on the integration bridge that no rules of iptables are left, or wants it gone.
type rulesGoneRow struct {
	bridge string
	is     bool
}

// Add implements Row.
func (r rulesGoneRow) Add(tx *ovsdb.Tx, v *ovsdb.View) {
	b := v.BridgeByName(r.bridge)
	if b == nil {
		return
	}
	switch value, there := b.OtherConfig[world.RulesGoneKey]; {
	case r.is && value != "true":
		tx.Bridge(b.UUID).MergeOtherConfig(map[string]string{world.RulesGoneKey: "true"})
	case !r.is && there:
		tx.Bridge(b.UUID).RemoveOtherConfig(world.RulesGoneKey)
	}
}
