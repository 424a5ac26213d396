// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Names are those of the Python agent and of os-vif.
const (
	bridgePrefix = "tbr-"

	// Of patch ports, by the bridge that they are on: the integration bridge or the trunk's.
	parentInner, parentOuter = "tpi-", "tpt-"
	subInner, subOuter       = "spi-", "spt-"

	maxName = 15 // that the kernel takes
)

func bridgeName(trunk string) string { return cut(bridgePrefix+trunk, maxName-1) }

func patchName(prefix, port string) string { return cut(prefix+port, maxName) }

func cut(s string, n int) string { return s[:min(n, len(s))] }

func isBridge(name string) bool { return strings.HasPrefix(name, bridgePrefix) }

func hasPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func isPatch(name string) bool {
	return hasPrefix(name, parentInner, parentOuter, subInner, subOuter)
}

// parent is the VM's interface on a trunk's bridge. The zero value is none.
type parent struct {
	iface ovsdb.UUID
	id    string // of the port; empty while nobody has said
	mac   string
}

// parentOn finds the VM's interface on a trunk's bridge. Occupied says that there is any interface but ours, whosever it is.
func parentOn(v *ovsdb.View, b *ovsdb.Bridge) (p parent, occupied bool) {
	var at string
	for _, i := range v.InterfacesOn(b) {
		if i.Name == b.Name || isPatch(i.Name) {
			continue
		}
		occupied = true
		id, mac := i.ExternalIDs["iface-id"], i.ExternalIDs["attached-mac"]
		if id != "" && mac != "" && (at == "" || i.Name < at) { // of several the same one every time
			at, p = i.Name, parent{i.UUID, id, mac}
		}
	}
	return p, occupied
}

// joined is how the rows of a trunk shall be whose VM is there: its bridge is joined to the integration bridge.
func (t *trunks) joined(b *bridge) ovsdb.Spec {
	integration := t.w.Config.IntegrationBridge
	// Only untagged packets are the parent's, as with Neutron since 24. Without that the VM could send into the parent's network
	// under any VLAN.
	specs := pair(integration, b.name, [2]string{parentInner, parentOuter}, b.parent.id, b.parent.mac, 0)
	subs := slices.DeleteFunc(slices.Clone(b.trunk.SubPorts), uncarriable)
	slices.SortFunc(subs, func(a, b neutron.SubPort) int { return strings.Compare(a.PortID, b.PortID) })
	var keep, wired []string
	present := map[string]string{} // sub-ports by their patches, which stay if they are there
	for _, s := range subs {
		name := patchName(subOuter, s.PortID)
		keep, present[name] = append(keep, name), s.PortID
		if mac, ok := b.macs[s.PortID]; ok {
			wired = append(wired, s.PortID)
			specs = append(specs, pair(integration, b.name, [2]string{subInner, subOuter}, s.PortID, mac.String(), s.SegmentationID)...)
		}
	}
	if b.confirmed { // the other patches are not the trunk's any more
		specs = append(specs, ovsdb.AbsentPatches{
			Bridge: b.name, Prefixes: []string{subOuter}, Keep: keep, PeerBridge: integration, PeerPrefixes: []string{parentInner, subInner},
		})
	}
	// What belongs to the VM's interface is written down there: a Python agent looks for it when the interface is gone.
	specs = append(specs, ovsdb.InterfaceSpec{
		Interface: b.parent.iface, ExternalIDs: map[string]string{"bridge_name": b.name, "trunk_id": b.trunk.ID},
		List: &ovsdb.IDList{Key: "subport_ids", IDs: wired, Present: present, Bridge: b.name},
	})
	return ovsdb.When{Bridges: []string{b.name, integration}, Interfaces: []ovsdb.UUID{b.parent.iface}, Specs: specs}
}

// pair is how the two patch ports shall be that stand for a port. The inner one is in no network before the core has wired it: without
// a tag it would be a trunk of all VLANs. The outer one is an access port of the VLAN by which the VM's packets are the port's, as
// Neutron writes it since 24.
func pair(integration, bridge string, prefixes [2]string, id, mac string, vlan int) []ovsdb.Spec {
	in, out := patchName(prefixes[0], id), patchName(prefixes[1], id)
	ids := map[string]string{"iface-id": id, "attached-mac": mac}
	return []ovsdb.Spec{
		ovsdb.PortSpec{
			Bridge: integration, Name: in, Type: "patch", Options: map[string]string{"peer": out}, ExternalIDs: ids,
			Initial: &ovsdb.VLANs{Tag: world.DeadVLAN, Mode: "trunk", Trunks: []int{world.DeadVLAN}},
		},
		ovsdb.PortSpec{
			Bridge: bridge, Name: out, Type: "patch", Options: map[string]string{"peer": in}, ExternalIDs: ids, Tag: &vlan, VLANMode: "access",
		},
	}
}

// unjoined is how the rows of a trunk shall be that has no VM: without patches, and with dispose without the bridge.
func unjoined(integration, bridge string, dispose bool) ovsdb.Spec {
	return ovsdb.AbsentPatches{
		Bridge: bridge, Prefixes: []string{parentOuter, subOuter}, PeerBridge: integration, PeerPrefixes: []string{parentInner, subInner},
		IfEmpty: []string{parentInner, parentOuter, subInner, subOuter}, WithBridge: dispose,
	}
}

// noStray says that a patch port is gone whose trunk's bridge is gone.
func noStray(integration, name string) ovsdb.Spec {
	return ovsdb.StrayPatch{Bridge: integration, Name: name, PeerPrefixes: []string{parentOuter, subOuter}}
}

// isStray says whether a name is that of a patch of a trunk on the integration bridge that leads nowhere.
func isStray(v *ovsdb.View, integration, name string) bool {
	return hasPrefix(name, parentInner, subInner) && ovsdb.DiffRows(v, noStray(integration, name)).Len() > 0
}
