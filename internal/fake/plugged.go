// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// Connected returns the first batch of a switch without bridges.
func Connected() *ovsdb.Batch {
	row := &ovsdb.OpenVSwitch{UUID: "root", OVSVersion: "3.1.0", DatapathTypes: []string{"netdev", "system"}, IfaceTypes: []string{"vxlan"}}
	return &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: row}}}
}

// Plugged returns the first batch of a switch with so many ports on br-int, p0, p1 and so on, as an earlier run left them in VLAN 1.
func Plugged(ports int) *ovsdb.Batch {
	batch, br := Connected(), &ovsdb.Bridge{UUID: "br", Name: "br-int"}
	for i := range ports {
		id, n, tag := fmt.Sprintf("p%d", i), i+1, 1
		iface := ovsdb.UUID("i" + id)
		row := &ovsdb.Port{UUID: ovsdb.UUID("r" + id), Name: id, Interfaces: []ovsdb.UUID{iface}, Tag: &tag, OtherConfig: map[string]string{
			"net_uuid": "n", "network_type": "local", "physical_network": "None", "tag": "1",
		}}
		br.Ports = append(br.Ports, row.UUID)
		batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: row})
		batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
			UUID: iface, Name: id, OFPort: &n,
			ExternalIDs: map[string]string{"iface-id": id, "attached-mac": fmt.Sprintf("fa:16:3e:00:00:%02x", i)},
		}})
	}
	slices.Sort(br.Ports)
	batch.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{New: br}}
	return batch
}

// Wrapped returns an object of Neutron as it is sent within another.
func Wrapped(data map[string]any) map[string]any {
	return map[string]any{"versioned_object.data": data}
}

// PluggedPort returns a port of [Plugged] as Neutron sends it: p7 has the address 10.0.5.7 and the group g7.
func PluggedPort(id string, revision int, status string) map[string]any {
	return map[string]any{
		"id": id, "network_id": "n", "admin_state_up": true, "device_owner": "compute:nova", "revision_number": revision, "status": status,
		"security_group_ids": []string{"g" + id[1:]},
		"fixed_ips":          []any{Wrapped(map[string]any{"ip_address": "10.0.5." + id[1:]})},
		"bindings":           []any{Wrapped(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels":     []any{Wrapped(map[string]any{"segment": Wrapped(map[string]any{"network_type": "local"})})},
	}
}
