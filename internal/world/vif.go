// SPDX-License-Identifier: Apache-2.0

package world

import (
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// VIF is the interface through which a port is plugged in: one incarnation of it.
type VIF struct {
	Interface ovsdb.UUID
	Port      ovsdb.UUID
	Name      string
	MAC       neutron.MAC // as the one who plugged it in wrote down
	OFPort    uint32      // 0 while it has none
	Error     string      // why it will not get one
	VM        bool        // a VM is behind it
}

// vif ties an interface row to the port it claims to be.
type vif struct {
	port string
	mac  neutron.MAC
}

// vifTable are the interfaces of all bridges that stand for Neutron ports.
type vifTable struct {
	*common
	rows map[ovsdb.UUID]vif
	of   map[string]map[ovsdb.UUID]bool // by port
}

func (w *vifTable) add(i *ovsdb.Interface) {
	v, ok := vifOf(i)
	if !ok {
		return
	}
	w.rows[i.UUID] = v
	if w.of[v.port] == nil {
		w.of[v.port] = map[ovsdb.UUID]bool{}
	}
	w.of[v.port][i.UUID] = true
	w.touched[v.port] = true
}

func (w *vifTable) drop(id ovsdb.UUID) {
	v, ok := w.rows[id]
	if !ok {
		return
	}
	w.touched[v.port] = true
	delete(w.rows, id)
	if delete(w.of[v.port], id); len(w.of[v.port]) == 0 {
		delete(w.of, v.port)
	}
}

func (w *vifTable) touch(id ovsdb.UUID) {
	if v, ok := w.rows[id]; ok {
		w.touched[v.port] = true
	}
}

func (w *vifTable) touchPortRow(p *ovsdb.Port) {
	if p == nil {
		return
	}
	for _, i := range p.Interfaces {
		w.touch(i)
		w.touchInterface(w.View.Interface(i))
	}
}

// touchInterface has an interface looked at again that may be no port.
func (w *common) touchInterface(i *ovsdb.Interface) {
	if i != nil && w.Config.Filter && w.Config.FailClosed {
		w.mark(InterfaceObject(i.Name))
	}
}

// bridgeChanged looks at the ports that came to a bridge or left it, and has the bridge itself compiled again.
func (w *vifTable) bridgeChanged(d ovsdb.Diff[ovsdb.Bridge]) {
	before, after := map[ovsdb.UUID]bool{}, map[ovsdb.UUID]bool{}
	for br, set := range map[*ovsdb.Bridge]map[ovsdb.UUID]bool{d.Old: before, d.New: after} {
		if br == nil {
			continue
		}
		w.mark(BridgeObject(br.Name))
		for _, p := range br.Ports {
			set[p] = true
		}
	}
	for p := range before {
		if !after[p] {
			w.touchPortRow(w.View.Port(p))
		}
	}
	for p := range after {
		if !before[p] {
			w.touchPortRow(w.View.Port(p))
		}
	}
}

func ofport(i *ovsdb.Interface) int {
	if i == nil || i.OFPort == nil {
		return 0
	}
	return *i.OFPort
}

// vifOf reads an interface that stands for a Neutron port. One without both ids is somebody else's.
func vifOf(i *ovsdb.Interface) (vif, bool) {
	id, address := i.ExternalIDs["iface-id"], i.ExternalIDs["attached-mac"]
	mac, err := neutron.ParseMAC(address)
	return vif{id, mac}, id != "" && err == nil
}

// ofVM says whether a VM is behind an interface: os-vif writes vm-uuid, libvirt vm-id, and the patches of a trunk lead to one.
// DHCP and L3 agents plug in internal ports or one end of a veth, and write neither.
func ofVM(i *ovsdb.Interface) bool {
	return i.ExternalIDs["vm-uuid"] != "" || i.ExternalIDs["vm-id"] != "" || i.Type == "patch"
}

// find finds the interface of a port on the integration bridge, that on an ancillary bridge, and whether there is one on
// any bridge. Of several the one that the switch has made counts, then the one with the lowest name, so that the choice
// does not depend on order.
func (w *vifTable) find(port string) (here *VIF, ancillary ovsdb.UUID, anywhere bool) {
	for id := range w.of[port] {
		v := w.rows[id]
		anywhere = true
		i, p := w.View.Interface(id), w.View.PortOf(id)
		if i == nil || p == nil {
			continue
		}
		br := w.View.BridgeOf(p.UUID)
		if br == nil || br.Name != w.Config.IntegrationBridge {
			if br != nil && br.ExternalIDs["bridge-id"] == br.Name && !slices.Contains(w.Bridges(), br.Name) {
				ancillary = max(ancillary, id)
			}
			continue
		}
		found := &VIF{Interface: id, Port: p.UUID, Name: i.Name, MAC: v.mac, Error: i.Error, VM: ofVM(i)}
		if n := ofport(i); n > 0 {
			found.OFPort = uint32(n)
		} else if n < 0 && found.Error == "" {
			found.Error = "the switch could not open it"
		}
		if here == nil || found.before(here) {
			here = found
		}
	}
	return here, ancillary, anywhere
}

// before says whether an interface counts rather than another one of the same port.
func (v *VIF) before(other *VIF) bool {
	if made := v.OFPort > 0; made != (other.OFPort > 0) {
		return made
	}
	return v.Name < other.Name
}
