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
		keep = ovsdb.NoVLAN
	}
	c.row(isolate(p, keep))
	c.want.Waiting = rulesWaiting
}
