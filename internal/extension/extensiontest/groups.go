// SPDX-License-Identifier: Apache-2.0

package extensiontest

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// answerGroups has the server answer about groups and their members, and says whether something was asked.
func (h *host) answerGroups() bool {
	items := h.w.MissingItems()
	for _, item := range items {
		one := []world.Item{item}
		switch item.Kind {
		case neutron.KindSecurityGroup:
			h.w.Groups.Pulled(one, known[neutron.SecurityGroup](h, item))
		case neutron.KindAddressGroup:
			h.w.Members.AddressGroupsPulled(one, known[neutron.AddressGroup](h, item))
		case neutron.KindPort:
			var found []neutron.Member
			for _, id := range slices.Sorted(maps.Keys(h.ports)) {
				if p := h.ports[id]; slices.Contains(p.SecurityGroupIDs, item.ID) {
					found = append(found, *p.Member())
				}
			}
			h.w.Members.Pulled(one, found)
		}
	}
	return len(items) > 0
}

// known returns an object of the server, if there is one.
func known[T any](h *host, item world.Item) []T {
	o, ok := h.objects[extension.Item{Kind: item.Kind, ID: item.ID}]
	if !ok {
		return nil
	}
	var decoded T
	h.check(json.Unmarshal(o.Data, &decoded))
	return []T{decoded}
}
