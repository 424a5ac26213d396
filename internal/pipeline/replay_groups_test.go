// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// replayVersions are those of the recorded release.
var replayVersions = neutron.Versions{
	neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5", neutron.KindAddressGroup: "1.2", neutron.KindQosPolicy: "1.10",
	neutron.KindNetwork: "1.1",
}

// pulled asks the recording's server for objects.
func (h *replay) pulled(kind neutron.Kind, key string, values ...string) []neutron.Primitive {
	h.t.Helper()
	found, err := neutron.NewServer(h.server, h.host).BulkPull(h.t.Context(), replayVersions, kind, map[string]any{key: values})
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

func decoded[T any](h *replay, kind neutron.Kind, objects []neutron.Primitive) []T {
	h.t.Helper()
	all, err := neutron.DecodeAll[T](kind, objects)
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// answer gives the world what it asks for about groups, as the recording's server would have. What that does not know is
// asked once for every event.
func (h *replay) answer(asked map[world.Item]bool) bool {
	busy := false
	for _, item := range h.w.MissingItems() {
		one := []world.Item{item}
		key := world.Item{Kind: item.Kind, ID: item.ID}
		if asked[key] {
			continue
		}
		asked[key], busy = true, true
		switch item.Kind {
		case neutron.KindSecurityGroup:
			h.w.Groups.Pulled(one, decoded[neutron.SecurityGroup](h, item.Kind, h.pulled(item.Kind, "id", item.ID)))
		case neutron.KindAddressGroup:
			h.w.Members.AddressGroupsPulled(one, decoded[neutron.AddressGroup](h, item.Kind, h.pulled(item.Kind, "id", item.ID)))
		case neutron.KindPort:
			var found []neutron.Member
			for _, port := range decoded[neutron.Port](h, item.Kind, h.pulled(item.Kind, "security_group_ids", item.ID)) {
				found = append(found, *port.Member())
			}
			h.w.Members.Pulled(one, found)
		}
	}
	return busy
}
