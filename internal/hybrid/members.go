// SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"net/netip"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// members are those of groups: package world has them.
type members interface {
	Addresses(remote string) []netip.Prefix
	Changed(remote string) uint64
}

// tellMembers tells the filter the members of groups that have changed. A group may have thousands.
func (r *Room) tellMembers(w *world.World) {
	told, all := map[string]uint64{}, r.groups(w)
	for _, remote := range r.filter.Remotes() {
		told[remote] = all.Changed(remote)
		if before, known := r.told[remote]; !known || before != told[remote] {
			r.filter.SetMembers(remote, all.Addresses(remote))
		}
	}
	r.told = told
}
