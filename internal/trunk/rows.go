// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
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
	for _, i := range interfacesOn(v, b) {
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

func interfacesOn(v *ovsdb.View, b *ovsdb.Bridge) []*ovsdb.Interface {
	var out []*ovsdb.Interface
	for _, id := range b.Ports {
		if p := v.Port(id); p != nil {
			for _, id := range p.Interfaces {
				if i := v.Interface(id); i != nil {
					out = append(out, i)
				}
			}
		}
	}
	return out
}

// subPort is a sub-port that is to be wired.
type subPort struct {
	id   string
	mac  neutron.MAC
	vlan int
}

// trunkRow wants a trunk's bridge to be joined to the integration bridge.
type trunkRow struct {
	integration, bridge string
	parent              parent
	trunk               string
	subs                []subPort
	keep                map[string]bool // sub-ports whose patches stay if they are there
	sure                bool            // the others are not the trunk's any more
}

// Add implements pipeline.Row.
func (r trunkRow) Add(tx *ovsdb.Tx, v *ovsdb.View) {
	b, i := v.BridgeByName(r.bridge), v.Interface(r.parent.iface)
	if b == nil || i == nil || v.BridgeByName(r.integration) == nil {
		return // unplugged; something else is wanted when the extension hears
	}
	// Only untagged packets are the parent's, as with Neutron since 24. Without that the VM could send into the parent's network
	// under any VLAN.
	r.pair(tx, v, parentInner, parentOuter, r.parent.id, r.parent.mac, 0, "access")
	wired := map[string]bool{}
	for _, s := range r.subs {
		wired[s.id] = true
		r.pair(tx, v, subInner, subOuter, s.id, s.mac.String(), s.vlan, "")
	}
	names := map[string]string{}
	for id := range r.keep {
		names[patchName(subOuter, id)] = id
	}
	for _, i := range interfacesOn(v, b) {
		if !strings.HasPrefix(i.Name, subOuter) {
			continue
		}
		if id, ok := names[i.Name]; ok {
			wired[id] = true
		} else if r.sure {
			deletePeer(tx, v, r.integration, i)
			deletePortOf(tx, v, i)
		}
	}
	r.note(tx, i, slices.Sorted(maps.Keys(wired)))
}

// pair wants a pair of patch ports that stand for a port. The inner one is in no network before the core has wired it: without
// a tag it would be a trunk of all VLANs.
func (r trunkRow) pair(tx *ovsdb.Tx, v *ovsdb.View, inner, outer, id, mac string, vlan int, mode string) {
	in, out := patchName(inner, id), patchName(outer, id)
	ids := map[string]string{"iface-id": id, "attached-mac": mac}
	spec := ovsdb.PortSpec{Bridge: r.integration, Name: in, Type: "patch", Options: map[string]string{"peer": out}, ExternalIDs: ids}
	if v.PortByName(in) == nil {
		dead := world.DeadVLAN
		spec.Tag, spec.VLANMode, spec.Trunks = &dead, "trunk", []int{dead}
	}
	tx.EnsurePort(spec)
	tx.EnsurePort(ovsdb.PortSpec{
		Bridge: r.bridge, Name: out, Type: "patch", Options: map[string]string{"peer": in}, ExternalIDs: ids, Tag: &vlan, VLANMode: mode,
	})
}

// note writes down on the VM's interface what belongs to it, where a Python agent looks when the interface is gone. The order of the
// sub-ports means nothing: a Python agent has none.
func (r trunkRow) note(tx *ovsdb.Tx, i *ovsdb.Interface, subs []string) {
	missing := map[string]string{}
	for k, want := range map[string]string{"bridge_name": r.bridge, "trunk_id": r.trunk} {
		if i.ExternalIDs[k] != want {
			missing[k] = want
		}
	}
	var noted []string
	if err := json.Unmarshal([]byte(i.ExternalIDs["subport_ids"]), &noted); err != nil || !sameSet(noted, subs) {
		missing["subport_ids"] = pythonList(subs)
	}
	if len(missing) > 0 {
		tx.Interface(i.UUID).MergeExternalIDs(missing)
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// pythonList spells a list as Python does, so that who takes over sees no difference.
func pythonList(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// emptyRow wants the patches of a bridge without a VM to go, and with dispose the bridge as well.
type emptyRow struct {
	integration, bridge string
	dispose             bool
}

// Add implements pipeline.Row.
func (r emptyRow) Add(tx *ovsdb.Tx, v *ovsdb.View) {
	b := v.BridgeByName(r.bridge)
	if b == nil {
		return
	}
	if _, occupied := parentOn(v, b); occupied {
		return // plugged in again
	}
	for _, i := range interfacesOn(v, b) {
		if hasPrefix(i.Name, parentOuter, subOuter) {
			deletePeer(tx, v, r.integration, i)
			if !r.dispose {
				deletePortOf(tx, v, i)
			}
		}
	}
	if r.dispose {
		tx.Bridge(b.UUID).Verify("ports") // a VM may be plugged in this very moment
		tx.DeleteBridge(b.UUID)
	}
}

// deletePortOf deletes the port of an interface. Of one that two ports had, by somebody's mistake, it may not be known.
func deletePortOf(tx *ovsdb.Tx, v *ovsdb.View, i *ovsdb.Interface) {
	if p := v.PortOf(i.UUID); p != nil {
		tx.DeletePort(p.UUID)
	}
}

// deletePeer deletes the other end of a patch, if it is on the integration bridge.
func deletePeer(tx *ovsdb.Tx, v *ovsdb.View, integration string, i *ovsdb.Interface) {
	peer := v.InterfaceByName(i.Options["peer"])
	if peer == nil || !hasPrefix(peer.Name, parentInner, subInner) {
		return
	}
	if p := v.PortOf(peer.UUID); p != nil {
		if b := v.BridgeOf(p.UUID); b != nil && b.Name == integration {
			tx.DeletePort(p.UUID)
		}
	}
}

// strayRow wants a patch port to go whose trunk's bridge is gone.
type strayRow struct{ integration, name string }

// Add implements pipeline.Row.
func (r strayRow) Add(tx *ovsdb.Tx, v *ovsdb.View) {
	if isStray(v, r.integration, r.name) {
		tx.DeletePort(v.PortByName(r.name).UUID)
	}
}

// isStray says whether a name is that of a patch of a trunk on the integration bridge that leads nowhere.
func isStray(v *ovsdb.View, integration, name string) bool {
	i, p := v.InterfaceByName(name), v.PortByName(name)
	if i == nil || p == nil || i.Type != "patch" || !hasPrefix(name, parentInner, subInner) {
		return false
	}
	b, peer := v.BridgeOf(p.UUID), i.Options["peer"]
	return b != nil && b.Name == integration && hasPrefix(peer, parentOuter, subOuter) && v.InterfaceByName(peer) == nil
}
