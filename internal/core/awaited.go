// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// With l2population neutron-server sends the forwarding entries of a network in a message of its own, right before it answers the
// report of a port. The message may arrive after the answer. For a network that no other host has ports of it sends none. So an
// agent without entries cannot tell at once which of the two it is. Its ports are wired and reported either way: it is in sync.

// awaited lists the networks whose forwarding entries may still come, in the order of their VLANs.
func (a *Core) awaited(now time.Time) []inspect.Awaited {
	if !a.cfg.World.L2Population {
		return nil
	}
	var out []inspect.Awaited
	for _, s := range a.world.Segments.All() {
		since := a.reports.Requested(s.Key)
		until := since.Add(a.cfg.FDBGrace)
		if !since.IsZero() && s.Tunnelled() && !s.Told() && now.Before(until) {
			out = append(out, inspect.Awaited{Network: s.Key.Network, Since: since, Until: until})
		}
	}
	return out
}
