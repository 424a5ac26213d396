// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Shut is what a port wants that nothing may reach or leave, as a dead one does: for a port of which nobody can say what it wants.
func Shut(w *world.World, id, reason string) Want {
	c := compiler{w: w}
	if p := w.Port(id); p != nil && p.VIF != nil && p.VIF.OFPort != 0 {
		c.shut(p, reason)
	}
	return c.want
}

func (c *compiler) shut(p *world.Port, reason string) {
	c.row(isolate(p, ovsdb.NoVLAN))
	c.flow(c.w.Config.IntegrationBridge, reason, of.Flow{Table: intEntry, Priority: 2, Match: of.Match{of.FromPort(p.VIF.OFPort)}})
}
