// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// linger is how long flows about packets from a port stay after its row is deleted. Until ovs-vswitchd has read the deletion the port is in its
// network, and without these flows nothing checks what it sends. A busy ovs-vswitchd took 80 ms.
const linger = 500 * time.Millisecond

// departed returns the changes without the deletions of such flows that have to stay yet, and notes since when their ports are gone. If another port
// of the bridge has the number, ovs-vswitchd has read the deletion, and the flows go at once.
func (b *bridge) departed(name string, view *ovsdb.View, changes []delta.Change, wants func(world.Object) bool, now time.Time) []delta.Change {
	until := map[world.Object]time.Time{}
	var numbers map[uint64]bool
	changes = slices.DeleteFunc(changes, func(c delta.Change) bool {
		if c.Owner == nil || !c.Entry.IsZero() || wants(c.Owner) {
			return false
		}
		if numbers == nil {
			numbers = portNumbers(view, name)
		}
		if from, ok := inPort(c.Key); !ok || numbers[from] {
			return false
		}
		at, known := b.left[c.Owner]
		if !known {
			at = now.Add(linger)
		}
		until[c.Owner] = at
		if !at.After(now) {
			return false
		}
		b.monitor.wake(at)
		return true
	})
	b.left = until
	return changes
}

// portNumbers returns the numbers of the ports that a bridge has.
func portNumbers(view *ovsdb.View, bridge string) map[uint64]bool {
	numbers := map[uint64]bool{}
	if br := view.BridgeByName(bridge); br != nil {
		for _, i := range view.InterfacesOn(br) {
			if i.OFPort != nil {
				numbers[uint64(*i.OFPort)] = true
			}
		}
	}
	return numbers
}

// inPort returns the number of the port whose packets a flow is about.
func inPort(k openflow.Key) (number uint64, ok bool) {
	match, err := k.Match()
	if err != nil {
		return 0, false
	}
	from, ok := match.Lookup(openflow.InPort)
	return from.Value.Lo, ok
}
