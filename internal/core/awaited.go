// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// fdbGrace is the usual [Config].FDBGrace.
const fdbGrace = 30 * time.Second

// With l2population neutron-server sends the forwarding entries of a network in a message of its own, right before it answers the
// report of a port. The message may arrive after the answer. For a network that no other host has ports of it sends none. So an
// agent without entries cannot tell at once which of the two it is. Its ports are wired and reported either way: it is in sync.

// awaited lists the networks whose forwarding entries may still come, in the order of their VLANs.
func (r *reports) awaited(now time.Time) []inspect.Awaited {
	if !r.cfg.World.L2Population {
		return nil
	}
	var out []inspect.Awaited
	for _, s := range r.world.Segments.All() {
		since := r.Requested(s.Key)
		until := since.Add(r.cfg.FDBGrace)
		if !since.IsZero() && s.Tunnelled() && !s.Told() && now.Before(until) {
			out = append(out, inspect.Awaited{Network: s.Key.Network, Since: since, Until: until})
		}
	}
	return out
}

// missingEntries counts the tunnelled networks without forwarding entries: those for which nothing has been requested since the
// agent started or lost messages, and those for which entries may still come.
func (r *reports) missingEntries(now time.Time) (unrequested, entries int) {
	noted := !r.syncedAt.IsZero()
	if !r.cfg.World.L2Population || noted && now.Sub(r.syncedAt) > r.cfg.FDBGrace {
		return 0, 0
	}
	for _, s := range r.world.Segments.All() {
		if !s.Tunnelled() || s.Told() {
			continue
		}
		entries++
		if r.Requested(s.Key).IsZero() && !noted {
			unrequested++
		}
	}
	return unrequested, entries
}

// refreshNetworks has the server send all forwarding entries again.
func (r *reports) refreshNetworks() {
	if !r.cfg.World.L2Population {
		return
	}
	r.syncedAt = time.Time{}
	var networks []world.SegmentKey
	for _, s := range r.world.Segments.All() {
		if s.Tunnelled() {
			networks = append(networks, s.Key)
		}
	}
	r.Resync(networks...)
}
