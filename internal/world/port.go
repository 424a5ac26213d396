// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// Port is a Neutron port that is plugged in on this host.
type Port struct {
	ID string
	// VIF is its interface on the integration bridge; nil when it is plugged in somewhere else only.
	VIF *VIF
	// Ancillary is its interface on a bridge that is neither ours nor somebody else's: its owner has marked it as one
	// whose ports we report, and nothing more.
	Ancillary ovsdb.UUID
	// Details is what the server says about it; nil when it has not said anything, or does not know the port.
	Details *neutron.Port
	// Answered: the server has answered, and nothing has happened since that would make the answer old. Asked: the
	// question is on its way.
	Asked, Answered bool
	// Wiring is what follows; [World.Settle] works it out.
	Wiring Wiring
	// Groups are the security groups in force on it, sorted. They lag behind the details while the server is asked about a
	// group: what was in force stays so.
	Groups []string

	askedAt, heard uint64 // when the last question left, and when the details came; see World.news
	doubted        uint64 // when news about it were missed last

	unknown bool // the server's last answer was that it does not know the port
	moved   bool // its binding was active on this host, and is now on another

	shut     ovsdb.UUID // the incarnation that nothing may reach while it waits, see World.IsShut
	filtered ovsdb.UUID // the incarnation on which Groups are in force
	wants    []string   // the groups that should be
	needs    []string   // groups that it keeps from being forgotten
	placed   placing
}

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

// State is what the agent has decided about a port.
type State uint8

// The states of a port.
const (
	// Waiting: something is still missing, and will come.
	Waiting State = iota
	// Elsewhere: plugged in, but not into the integration bridge.
	Elsewhere
	// Ancillary: plugged into a bridge whose ports are only reported.
	Ancillary
	// Moved: its VM has moved to another host, which has taken over. What is left of it here goes.
	Moved
	// Failed: the switch could not make the interface.
	Failed
	// Dead: nothing may pass, for the reason given.
	Dead
	// Down: the administrator switched it off. Nothing may pass.
	Down
	// Wired: traffic of its segment passes.
	Wired
)

// String is the word for the state.
func (s State) String() string {
	return [...]string{"waiting", "elsewhere", "ancillary", "moved", "failed", "dead", "down", "wired"}[s]
}

// Wiring is the decision about a port, with its reason in words.
type Wiring struct {
	State  State
	Reason string
	// Segment is where the port belongs; set for Wired and Down.
	Segment SegmentKey
	// VLAN is the segment's local VLAN on this host.
	VLAN uint16
}

// vif ties an interface row to the port it claims to be.
type vif struct {
	port string
	mac  neutron.MAC
}

// Switch takes changed rows.
func (w *World) Switch(b *ovsdb.Batch) {
	w.View.Apply(b) // first: whatever else fails, it is what the switch is
	for _, d := range b.Interfaces {
		if d.Old != nil {
			w.dropVIF(d.Old.UUID)
		}
	}
	for _, d := range b.Interfaces {
		if d.New != nil {
			w.addVIF(d.New)
		}
		w.touchInterface(d.Old)
		w.touchInterface(d.New)
		if ofport(d.Old) != ofport(d.New) {
			w.renumbered(d)
		}
	}
	for _, d := range b.Ports {
		w.touchPortRow(d.Old)
		w.touchPortRow(d.New)
	}
	for _, d := range b.Bridges {
		w.bridgeChanged(d)
	}
	w.restoreVLANs(b)
}

func (w *World) addVIF(i *ovsdb.Interface) {
	v, ok := vifOf(i)
	if !ok {
		return
	}
	w.vifs[i.UUID] = v
	if w.vifsOf[v.port] == nil {
		w.vifsOf[v.port] = map[ovsdb.UUID]bool{}
	}
	w.vifsOf[v.port][i.UUID] = true
	w.touched[v.port] = true
}

func (w *World) dropVIF(id ovsdb.UUID) {
	v, ok := w.vifs[id]
	if !ok {
		return
	}
	w.touched[v.port] = true
	delete(w.vifs, id)
	if delete(w.vifsOf[v.port], id); len(w.vifsOf[v.port]) == 0 {
		delete(w.vifsOf, v.port)
	}
}

func (w *World) touchVIF(id ovsdb.UUID) {
	if v, ok := w.vifs[id]; ok {
		w.touched[v.port] = true
	}
}

func (w *World) touchPortRow(p *ovsdb.Port) {
	if p == nil {
		return
	}
	for _, i := range p.Interfaces {
		w.touchVIF(i)
		w.touchInterface(w.View.Interface(i))
	}
}

// touchInterface has an interface looked at again that may be no port.
func (w *World) touchInterface(i *ovsdb.Interface) {
	if i != nil && w.Config.Filter && w.Config.FailClosed {
		w.mark(KindInterface, i.Name)
	}
}

// bridgeChanged looks at the ports that came to a bridge or left it, and has the bridge itself compiled again.
func (w *World) bridgeChanged(d ovsdb.Diff[ovsdb.Bridge]) {
	before, after := map[ovsdb.UUID]bool{}, map[ovsdb.UUID]bool{}
	for br, set := range map[*ovsdb.Bridge]map[ovsdb.UUID]bool{d.Old: before, d.New: after} {
		if br == nil {
			continue
		}
		w.mark(KindBridge, br.Name)
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

// renumbered has everything compiled again that refers to the number of an interface: patches and tunnels are used by
// flows of other objects.
func (w *World) renumbered(d ovsdb.Diff[ovsdb.Interface]) {
	i := d.New
	if i == nil {
		i = d.Old
	}
	if i.Name == w.Config.IntPatch || i.Name == w.Config.TunPatch {
		w.mark(KindBridge, w.Config.IntegrationBridge)
		w.mark(KindBridge, w.Config.TunnelBridge)
	}
	if w.Config.EgressDirect && w.wayOut(i.Name) {
		for id := range w.ports {
			w.mark(KindPort, id)
		}
	}
	for physnet, bridge := range w.Config.Physical {
		if i.Name == IntPatchName(bridge) || i.Name == PhysPatchName(bridge) {
			w.mark(KindBridge, w.Config.IntegrationBridge)
			w.mark(KindBridge, bridge)
			w.markSegments(func(s *Segment) bool { return s.Physnet == physnet })
		}
	}
	if e, ok := w.tunnels[i.Name]; ok {
		w.markTunnel(e)
		w.markSegments(func(s *Segment) bool { return s.Type == e.Type })
	}
}

// wayOut says whether an interface leads from the integration bridge to another bridge of ours.
func (w *World) wayOut(name string) bool {
	if name == w.Config.IntPatch {
		return true
	}
	for _, bridge := range w.Config.Physical {
		if name == IntPatchName(bridge) {
			return true
		}
	}
	return false
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

// findVIF finds the interface of a port on the integration bridge, that on an ancillary bridge, and whether there is one on
// any bridge. Of several the one that the switch has made counts, then the one with the lowest name, so that the choice
// does not depend on order.
func (w *World) findVIF(port string) (here *VIF, ancillary ovsdb.UUID, anywhere bool) {
	for id := range w.vifsOf[port] {
		v := w.vifs[id]
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
		if here == nil || (found.OFPort > 0) != (here.OFPort > 0) && found.OFPort > 0 || found.Name < here.Name {
			here = found
		}
	}
	return here, ancillary, anywhere
}

// settlePort decides anew about a port. See hold for what becomes of one of which that fails.
func (w *World) settlePort(id string) {
	var before *Port
	if p := w.ports[id]; p != nil {
		known := *p
		before = &known
	}
	if !w.contain(Object{KindPort, id}, func() { w.decidePort(id) }) {
		w.hold(id, before)
	}
}

func (w *World) decidePort(id string) {
	here, ancillary, anywhere := w.findVIF(id)
	p := w.ports[id]
	if !anywhere {
		if p != nil {
			delete(w.ports, id)
			w.leave(p)
			p.Wiring = Wiring{}
			w.need(p, nil)
			w.place(p)
			w.mark(KindPort, id)
		}
		return
	}
	if p == nil {
		p = &Port{ID: id, Details: w.recalled.ports[id]}
		w.ports[id] = p
	}
	if here == nil || p.VIF != nil && p.VIF.Interface != here.Interface {
		p.moved = false // that was another incarnation
	}
	p.VIF, p.Ancillary = here, ancillary
	next := w.filtersOf(p, w.decide(p))
	if next.State != Wired && next.State != Down || next.Segment != p.Wiring.Segment {
		w.leave(p)
	}
	if next.State != Waiting {
		p.shut = "" // when it waits again, for its interface, that is another matter
	}
	p.Wiring = next
	if next.State == Wired || next.State == Down {
		w.join(p)
	}
	w.place(p)
	w.mark(KindPort, id)
}

// decide is the whole of the policy: what becomes of a port, given all that is known about it.
func (w *World) decide(p *Port) Wiring {
	d := p.Details
	_, deleted := w.deleted[p.ID]
	switch {
	case p.VIF == nil && p.Ancillary != "":
		return Wiring{State: Ancillary, Reason: "plugged into an ancillary bridge"}
	case p.VIF == nil:
		return Wiring{State: Elsewhere, Reason: "plugged into a bridge that is not the integration bridge"}
	case p.VIF.OFPort == 0 && p.VIF.Error != "":
		return Wiring{State: Failed, Reason: "the switch has no port for it: " + p.VIF.Error}
	case p.VIF.OFPort == 0:
		return Wiring{State: Waiting, Reason: "the switch has not made the interface yet"}
	case deleted:
		return Wiring{State: Dead, Reason: "deleted in Neutron, but still plugged in"}
	case d == nil && !p.Answered && !p.unknown:
		return Wiring{State: Waiting, Reason: "the server has not told about it yet"}
	case d == nil:
		return Wiring{State: Dead, Reason: "the server does not know it"}
	case len(d.BindingLevels) == 0 || d.BindingLevels[len(d.BindingLevels)-1].Segment.Value == nil:
		return Wiring{State: Dead, Reason: "not bound to a segment"}
	}
	binding := active(d)
	if binding == nil {
		return Wiring{State: Dead, Reason: "no active binding on any host"}
	}
	if p.moved {
		return Wiring{State: Moved, Reason: fmt.Sprintf("its VM has moved to host %s", binding.Host)}
	}
	if neutron.IsComputeOwned(d.DeviceOwner) && binding.Host != w.Config.Host && !migrating(binding) {
		return Wiring{State: Dead, Reason: fmt.Sprintf("bound to host %s, not to this one", binding.Host)}
	}
	segment := d.BindingLevels[len(d.BindingLevels)-1].Segment.Value
	key := SegmentKey{Network: d.NetworkID, ID: none}
	if segment.SegmentationID != nil {
		key.ID = *segment.SegmentationID
	}
	if reason := w.cannotCarry(segment); reason != "" {
		return Wiring{State: Dead, Reason: reason}
	}
	if !d.AdminStateUp {
		return Wiring{State: Down, Reason: "switched off by its administrator", Segment: key}
	}
	return Wiring{State: Wired, Reason: "bound to this host", Segment: key}
}

// migrating says whether the active binding names a host that the VM is on its way to.
func migrating(b *neutron.Binding) bool {
	var host string
	return json.Unmarshal(b.Profile["migrating_to"], &host) == nil && host != ""
}

// Missing lists the ports that the server has to be asked about, and marks them as asked.
func (w *World) Missing() []string {
	var ids []string
	for id, p := range w.ports {
		if p.VIF != nil && !p.Asked && !p.Answered {
			w.news++
			p.Asked, p.askedAt = true, w.news
			ids = append(ids, id)
		}
	}
	slices.Sort(ids) // after the choice: this runs after every event, and mostly nothing is missing
	return ids
}

// Ports takes the server's answer to a question about the given ports. A port that was asked for and is not among the
// answers is one that the server does not know.
func (w *World) Ports(asked []string, found []neutron.Port) {
	for i := range found {
		w.learn(&found[i])
	}
	for _, id := range asked {
		if p := w.ports[id]; p != nil {
			// An answer from before news were missed counts, but may be too old: the port is asked about again.
			p.Asked, p.Answered = false, p.askedAt >= p.doubted
			if p.heard < p.askedAt && !slices.ContainsFunc(found, func(d neutron.Port) bool { return d.ID == id }) {
				p.lose() // deleted while nobody listened
			}
			p.unknown = p.Details == nil
			w.touched[id] = true
		}
	}
}

// lose takes that the server has no such port any more. A port without details is not wired from that moment on: other events may ask
// about it before [World.Settle] has worked out the rest, for which the segment stays.
func (p *Port) lose() {
	p.Details = nil
	if p.Wiring.State == Wired || p.Wiring.State == Down {
		p.Wiring.State, p.Wiring.Reason = Dead, "the server does not know it any more"
	}
}

// doubt has a port asked about again.
func (w *World) doubt(p *Port) {
	w.news++
	p.Answered, p.doubted = false, w.news
}

// Unanswered takes back that the ports were asked about: the question failed and will be asked again.
func (w *World) Unanswered(asked []string) {
	for _, id := range asked {
		if p := w.ports[id]; p != nil {
			// An answer to an earlier question may have come meanwhile; it does not count for this one.
			p.Asked, p.Answered = false, false
		}
	}
}

// learn takes what the server says about a port, unless something newer is known. Equal revisions are taken: the server
// changes some fields without counting.
func (w *World) learn(d *neutron.Port) {
	if w.Config.Filter {
		w.learnMember(d.Member())
	}
	p := w.ports[d.ID]
	if p == nil {
		return // not plugged in here; when it is, the server is asked
	}
	if _, gone := w.deleted[d.ID]; gone {
		return
	}
	if p.Details != nil && d.Revision < p.Details.Revision {
		return
	}
	moved := p.moved && !w.boundHere(d) || p.Details != nil && w.boundHere(p.Details) && w.leftBehind(d)
	if !p.Answered || moved != p.moved || !confirms(d, p.Details) {
		w.touched[d.ID] = true
	}
	w.news++
	p.Details, p.moved, p.Answered, p.unknown, p.heard = d, moved, true, false, w.news
}

// confirms says whether the server tells no more than that a port, known before, is up. Every port that is reported comes
// back so, and nothing follows from it.
func confirms(d, before *neutron.Port) bool {
	if before == nil || d.Status != "ACTIVE" {
		return false
	}
	known := *before
	known.Status, known.Revision = d.Status, d.Revision
	return reflect.DeepEqual(&known, d)
}

// boundHere says whether the port's active binding is on this host.
func (w *World) boundHere(p *neutron.Port) bool {
	b := active(p)
	return b != nil && b.Host == w.Config.Host
}

// leftBehind says whether the port's active binding is on another host, and this one's was made inactive: the mark of a
// migration that has come to its end. Before its end the target looks the same, which is why what was before counts.
func (w *World) leftBehind(p *neutron.Port) bool {
	b := active(p)
	return b != nil && b.Host != w.Config.Host && slices.ContainsFunc(p.Bindings, func(b neutron.Binding) bool {
		return b.Host == w.Config.Host && b.Status == "INACTIVE"
	})
}

// Doubt says that news may have been missed: every port, and what its filters need, is asked about again. What is known stays in force meanwhile.
func (w *World) Doubt() {
	w.news++
	w.doubted = w.news
	for _, p := range w.ports {
		w.doubt(p)
	}
	w.doubtFilters()
	for _, s := range w.segments {
		s.fdb.doubt()
	}
}
