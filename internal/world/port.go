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
	// Answered: the server has answered, and nothing has happened since that would make the answer old.
	Answered bool
	// Wiring is what follows; [World.Resolve] works it out.
	Wiring Wiring
	// Groups are the security groups in force on it, sorted. They lag behind the details while the server is asked about a
	// group: what was in force stays so.
	Groups []string

	// since is when it was plugged in, or when the question left that was answered last: an answer to an earlier one does not count.
	// heard is when the details came. See common.seq.
	since, heard uint64
	staleSince   uint64 // when messages about it may have been lost last

	unknown bool // the server's last answer was that it does not know the port
	moved   bool // its binding was active on this host, and is now on another

	undecided bool       // see Undecided
	shut      ovsdb.UUID // the incarnation that nothing may reach while it waits, see World.IsShut
	filtered  ovsdb.UUID // the incarnation on which Groups are in force
	wants     []string   // the groups that should be
	needs     []string   // groups that it keeps from being forgotten
	placed    placing
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

// Switch takes changed rows.
func (w *World) Switch(b *ovsdb.Batch) {
	w.View.Apply(b) // first: whatever else fails, it is what the switch is
	for _, d := range b.Interfaces {
		if d.Old != nil {
			w.vifs.drop(d.Old.UUID)
		}
	}
	for _, d := range b.Interfaces {
		if d.New != nil {
			w.vifs.add(d.New)
		}
		w.touchInterface(d.Old)
		w.touchInterface(d.New)
		if ofport(d.Old) != ofport(d.New) {
			w.renumbered(d)
		}
	}
	for _, d := range b.Ports {
		w.vifs.touchPortRow(d.Old)
		w.vifs.touchPortRow(d.New)
	}
	for _, d := range b.Bridges {
		w.vifs.bridgeChanged(d)
	}
	w.Segments.restoreVLANs(b)
}

// renumbered has everything compiled again that refers to the number of an interface: patches and tunnels are used by
// flows of other objects.
func (w *World) renumbered(d ovsdb.Diff[ovsdb.Interface]) {
	i := d.New
	if i == nil {
		i = d.Old
	}
	if i.Name == w.Config.IntPatch || i.Name == w.Config.TunPatch {
		w.mark(BridgeObject(w.Config.IntegrationBridge))
		w.mark(BridgeObject(w.Config.TunnelBridge))
	}
	if w.Config.EgressDirect && w.wayOut(i.Name) {
		for id := range w.ports {
			w.mark(PortObject(id))
		}
	}
	for physnet, bridge := range w.Config.Physical {
		if i.Name == IntPatchName(bridge) || i.Name == PhysPatchName(bridge) {
			w.mark(BridgeObject(w.Config.IntegrationBridge))
			w.mark(BridgeObject(bridge))
			w.Segments.markWhere(func(s *Segment) bool { return s.Physnet == physnet })
		}
	}
	if e, ok := w.tunnelNames[i.Name]; ok {
		w.markTunnel(e)
		w.Segments.markWhere(func(s *Segment) bool { return s.Type == e.Type })
	}
}

// wayOut says whether an interface leads from the integration bridge to another bridge of ours.
func (w *common) wayOut(name string) bool {
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

// settlePort decides anew about a port. See hold for what becomes of one of which that fails.
func (w *World) settlePort(id string) {
	var before *Port
	if p := w.ports[id]; p != nil {
		known := *p
		before = &known
	}
	if !w.contain(PortObject(id), func() { w.decidePort(id) }) {
		w.hold(id, before)
	} else if p := w.ports[id]; p != nil {
		p.undecided = false
	}
}

// Undecided returns whether the last decision about the port failed: its wiring is of earlier details, and what follows from both together is
// right for neither. Nil is a port that is not known.
func (p *Port) Undecided() bool { return p != nil && p.undecided }

func (w *World) decidePort(id string) {
	here, ancillary, anywhere := w.vifs.find(id)
	p := w.ports[id]
	if !anywhere {
		if p != nil {
			delete(w.ports, id)
			w.Segments.leave(p)
			p.Wiring = Wiring{}
			w.Groups.need(p, nil)
			w.Groups.place(p)
			w.mark(PortObject(id))
		}
		return
	}
	if p == nil {
		w.seq++
		p = &Port{ID: id, Details: w.recalled.ports[id], since: w.seq}
		w.ports[id] = p
	}
	if here == nil || p.VIF != nil && p.VIF.Interface != here.Interface {
		p.moved = false // that was another incarnation
	}
	p.VIF, p.Ancillary = here, ancillary
	next := w.filtersOf(p, w.decide(p))
	if next.State != Wired && next.State != Down || next.Segment != p.Wiring.Segment {
		w.Segments.leave(p)
	}
	if next.State != Waiting {
		p.shut = "" // when it waits again, for its interface, that is another matter
	}
	p.Wiring = next
	if next.State == Wired || next.State == Down {
		w.Segments.join(p)
	}
	w.Groups.place(p)
	w.mark(PortObject(id))
}

// decide is the whole of the policy: what becomes of a port, given all that is known about it.
func (w *common) decide(p *Port) Wiring {
	d := p.Details
	deleted := w.deleted.has(p.ID)
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
		return Wiring{State: Waiting, Reason: "bulk_pull of the port is not answered yet"}
	case d == nil:
		return Wiring{State: Dead, Reason: "the server does not know it"}
	case d.SegmentOn(w.Config.Host) == nil:
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
	segment := d.SegmentOn(w.Config.Host)
	key := SegmentKey{Network: d.NetworkID, ID: none}
	if segment.SegmentationID != nil {
		key.ID = *segment.SegmentationID
	}
	if reason := w.cannotCarry(segment); reason != "" {
		return Wiring{State: Dead, Reason: reason}
	}
	if !d.AdminStateUp {
		return Wiring{State: Down, Reason: "admin down", Segment: key}
	}
	return Wiring{State: Wired, Reason: "bound to this host", Segment: key}
}

// migrating says whether the active binding names a host that the VM is on its way to.
func migrating(b *neutron.Binding) bool {
	var host string
	return json.Unmarshal(b.Profile["migrating_to"], &host) == nil && host != ""
}

// Missing lists the ports that the server has to be asked about, sorted.
func (w *World) Missing() []string {
	var ids []string
	for id, p := range w.ports {
		if p.VIF != nil && !p.Answered {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids) // after the choice: this runs after every event, and mostly nothing is missing
	return ids
}

// Since returns the moment from which on questions about the port count.
func (p *Port) Since() uint64 { return p.since }

// Ports takes the server's answer to a question about the given ports that was asked right now. See [World.PortsAsked].
func (w *World) Ports(asked []string, found []neutron.Port) { w.PortsAsked(w.seq, asked, found) }

// PortsAsked takes the server's answer to a question about the given ports, that was asked at a moment. A port that was asked for
// and is not among the answers is one that the server does not know. A port that was plugged in anew since waits for the answer to a
// later question: this one may be about what it was before it was deleted. Nor does the answer to a question count that is older than
// one that was answered.
func (w *World) PortsAsked(at uint64, asked []string, found []neutron.Port) {
	for i := range found {
		if p := w.ports[found[i].ID]; p == nil || p.since <= at {
			w.learn(&found[i])
		} else if w.Config.Filter {
			w.Members.learn(found[i].Member())
		}
	}
	for _, id := range asked {
		if p := w.ports[id]; p != nil && p.since <= at {
			// An answer from before messages were lost counts, but may be too old: the port is asked about again.
			p.since, p.Answered = at, at >= p.staleSince
			if !slices.ContainsFunc(found, func(d neutron.Port) bool { return d.ID == id }) {
				if p.heard <= at {
					p.lose() // deleted while nobody listened
					w.Members.leave(id, at)
				} else if p.Details != nil {
					p.Answered = false // pushed since: it came to be, or that was late
				}
			}
			p.unknown = p.Details == nil
			w.touched[id] = true
		}
	}
}

// lose takes that the server has no such port any more. A port without details is not wired from that moment on: other events may ask
// about it before [World.Resolve] has worked out the rest, for which the segment stays.
func (p *Port) lose() {
	p.Details = nil
	if p.Wiring.State == Wired || p.Wiring.State == Down {
		p.Wiring.State, p.Wiring.Reason = Dead, "the server does not know it any more"
	}
}

// Absent says whether the server, when it was asked, did not know the port.
func (p *Port) Absent() bool { return p.unknown }

// markStale has a port asked about again.
func (w *World) markStale(p *Port) {
	w.seq++
	p.Answered, p.staleSince = false, w.seq
}

// learn takes what the server says about a port, unless something newer is known. Equal revisions are taken: the server
// changes some fields without counting. A push is no answer: it may be older than one that nobody here cared for at the time.
func (w *World) learn(d *neutron.Port) {
	if w.Config.Filter {
		w.Members.learn(d.Member())
	}
	p := w.ports[d.ID]
	if p == nil {
		return // not plugged in here; when it is, the server is asked
	}
	if w.deleted.has(d.ID) {
		return
	}
	if p.Details != nil && d.Revision < p.Details.Revision {
		return
	}
	moved := p.moved && !w.boundHere(d) || p.Details != nil && w.boundHere(p.Details) && w.leftBehind(d)
	if !p.Answered || moved != p.moved || !confirms(d, p.Details) {
		w.touched[d.ID] = true
	}
	w.seq++
	p.Details, p.moved, p.unknown, p.heard = d, moved, false, w.seq
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
func (w *common) boundHere(p *neutron.Port) bool {
	b := active(p)
	return b != nil && b.Host == w.Config.Host
}

// leftBehind says whether the port's active binding is on another host, and this one's was made inactive: the mark of a
// migration that has come to its end. Before its end the target looks the same, which is why what was before counts.
func (w *common) leftBehind(p *neutron.Port) bool {
	b := active(p)
	return b != nil && b.Host != w.Config.Host && slices.ContainsFunc(p.Bindings, func(b neutron.Binding) bool {
		return b.Host == w.Config.Host && b.Status == "INACTIVE"
	})
}

// Resync marks everything as stale, since messages may have been lost: every port, and what its filters need, is asked about again. What is known stays in force meanwhile.
func (w *World) Resync() {
	w.seq++
	w.staleSince = w.seq
	for _, p := range w.ports {
		w.markStale(p)
	}
	w.markFiltersStale()
	for _, s := range w.Segments.byKey {
		s.fdb.markStale()
	}
}
