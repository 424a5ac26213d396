// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// memory is what goes into the snapshot about a trunk.
type memory struct {
	Parent   string                 `json:"parent"`
	Trunk    string                 `json:"trunk"`
	SubPorts []neutron.SubPort      `json:"sub_ports"`
	MACs     map[string]neutron.MAC `json:"macs"`
}

// Save implements extension.Saver.
func (t *trunks) Save() any {
	var all []memory
	for _, name := range slices.Sorted(maps.Keys(t.bridges)) {
		if b := t.bridges[name]; b.trunk != nil && b.parent.id != "" {
			all = append(all, memory{b.parent.id, b.trunk.ID, slices.Clone(b.trunk.SubPorts), maps.Clone(b.macs)})
		}
	}
	if all == nil {
		return nil
	}
	return all
}

// Load implements extension.Saver.
func (t *trunks) Load(data json.RawMessage) error {
	var all []memory
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, m := range all {
		t.recalled[m.Parent] = m
	}
	return nil
}
