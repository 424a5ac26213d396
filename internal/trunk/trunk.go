// SPDX-License-Identifier: Apache-2.0

// Package trunk is the extension for trunk ports: a VM with one interface that carries the traffic of several ports, the parent's
// untagged and each sub-port's under a VLAN of its own.
//
// Whoever plugs in the VM (os-vif) makes a bridge of the trunk, tbr-…, and puts the VM's interface there instead of the integration
// bridge. The agent joins the two bridges with a pair of patch ports for the parent and one for each sub-port. The ends on the
// integration bridge bear the ports' ids, so that the core takes them for ports like all others and wires them. The ends on the
// trunk's bridge have the VLANs. That bridge has no flows of ours: it switches by itself.
//
//	VM ── tap ─┐
//	           tbr-…  ── tpt-… ═ tpi-… ──┐ parent
//	                  ── spt-… ═ spi-… ──┤ sub-port, VLAN on the left
//	                                     br-int
//
// The inputs are rows of the database, what the server says about the trunk of a parent (asked for when the parent is there), and
// pushes of sub-ports. The outputs are rows (rows.go), and calls: the server is asked to bind sub-ports to this host before they
// are wired, and told the trunk's status when all rows are in place.
//
// When the VM is gone for [patchGrace] the patches go, and the bridge, if whoever made it has not taken it away, after
// [bridgeGrace].
package trunk

import (
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

const name = "trunk"

const (
	// patchGrace is how long a VM may be unplugged before its ports are unwired: a VM that is reset is plugged in again.
	patchGrace = 6 * time.Second
	// bridgeGrace is how long a trunk's bridge may be without a VM. It is made before the VM is plugged in.
	bridgeGrace = time.Minute
)

// trunks is the extension. It belongs to the agent's loop.
type trunks struct {
	w   *world.World
	now func() time.Time

	bridges  map[string]*bridge // of trunks, by name
	parents  map[string]string  // bridges by parent
	strays   map[string]*stray  // by name
	recalled map[string]memory  // from an earlier run, by parent

	touched  map[string]bool // bridges to look at again
	suspects map[string]bool // interfaces that may be strays
	busy     map[string]bool // bridges about which something is to be asked or done
}

// bridge is the bridge of a trunk, and what is known of the trunk.
type bridge struct {
	name   string
	parent parent
	life   uint64 // counts incarnations of the parent's interface

	trunk *neutron.Trunk // nil while nobody has told
	// confirmed: by the server, in this run. answered: nothing happened since that would make the answer old.
	confirmed, answered bool
	// seq counts what was heard, so that an answer can be told from what came after the question.
	seq   uint64
	macs  map[string]neutron.MAC // of sub-ports, by id
	bound map[string]bool        // sub-ports that the server was asked to bind in this life, and whether it did

	complete bool // its rows are as wanted
	due      bool // the status is to be reported
	moved    bool // its VM is on another host now

	empty                 time.Time // since when there is no VM
	patchesGo, bridgeGoes bool      // for long enough
}

// stray is a patch port of the integration bridge that leads nowhere: its trunk's bridge is gone.
type stray struct {
	since time.Time
	goes  bool // for long enough
}

// New makes the extension.
func New(w *world.World) extension.Extension { return newTrunks(w, func() time.Time { return w.Time }) }

func newTrunks(w *world.World, now func() time.Time) *trunks {
	return &trunks{
		w: w, now: now, bridges: map[string]*bridge{}, parents: map[string]string{}, strays: map[string]*stray{}, recalled: map[string]memory{},
		touched: map[string]bool{}, suspects: map[string]bool{}, busy: map[string]bool{},
	}
}

// Name implements extension.Extension.
func (*trunks) Name() string { return name }

// Kinds implements extension.PushHandler. Pushes of trunks say nothing that the rows do not: a trunk matters here when its bridge
// is made.
func (*trunks) Kinds() []neutron.Kind { return []neutron.Kind{neutron.KindSubPort} }

// OnRows implements extension.RowHandler.
func (t *trunks) OnRows(b *ovsdb.Batch) {
	for _, d := range b.Bridges {
		for _, row := range []*ovsdb.Bridge{d.Old, d.New} {
			if row != nil && isBridge(row.Name) {
				t.touched[row.Name] = true
			}
		}
	}
	for _, d := range b.Ports {
		if d.New != nil {
			for _, id := range d.New.Interfaces {
				t.look(t.w.View.Interface(id))
			}
		}
	}
	for _, d := range b.Interfaces {
		t.look(d.Old)
		t.look(d.New)
	}
}

// look has an interface looked at that came, changed or went.
func (t *trunks) look(i *ovsdb.Interface) {
	if i == nil {
		return
	}
	t.touchBridgeOf(i)
	if isPatch(i.Name) {
		peer := i.Options["peer"]
		t.suspects[i.Name], t.suspects[peer] = true, true
		t.touchBridgeOf(t.w.View.InterfaceByName(peer))
	}
}

func (t *trunks) touchBridgeOf(i *ovsdb.Interface) {
	if i == nil {
		return
	}
	if p := t.w.View.PortOf(i.UUID); p != nil {
		if b := t.w.View.BridgeOf(p.UUID); b != nil && isBridge(b.Name) {
			t.touched[b.Name] = true
		}
	}
}

// OnPush implements extension.PushHandler. Pushes of sub-ports have no revisions: if they do not fit what is known, or cross an answer,
// the server is asked.
func (t *trunks) OnPush(p *neutron.Push) error {
	subs, err := neutron.DecodeAll[neutron.SubPort](p.Kind, p.Objects)
	for _, sub := range subs {
		b := t.bridges[bridgeName(sub.TrunkID)]
		if b == nil {
			continue // on another host
		}
		t.touched[b.name] = true
		b.seq++
		at := -1
		if b.trunk != nil {
			at = slices.IndexFunc(b.trunk.SubPorts, func(s neutron.SubPort) bool { return s.PortID == sub.PortID })
		}
		switch {
		case p.Event == neutron.Deleted && at >= 0 && b.trunk.SubPorts[at] == sub: // at once, whatever the server is asked
			b.trunk.SubPorts = slices.Delete(b.trunk.SubPorts, at, at+1)
			b.forget(sub.PortID)
			b.due = true
		case !b.confirmed || !b.answered: // the answer to come has it
		case p.Event == neutron.Created && at < 0:
			b.trunk.SubPorts = append(b.trunk.SubPorts, sub)
			b.due = true
		default:
			b.answered = false
		}
	}
	return err
}

func (b *bridge) forget(subPort string) {
	delete(b.bound, subPort)
	delete(b.macs, subPort)
}

// Resync implements extension.Resyncer. A sub-port that the server did not bind gets another chance.
func (t *trunks) Resync() {
	for name, b := range t.bridges {
		b.seq++
		b.answered = false
		maps.DeleteFunc(b.bound, func(_ string, ok bool) bool { return !ok })
		t.touched[name] = true
	}
}

// Resolve implements extension.Extension.
func (t *trunks) Resolve(changed []world.Object) []world.Object {
	for _, o := range changed {
		id, ok := world.PortID(o)
		if !ok {
			continue
		}
		if at, ok := t.parents[id]; ok {
			if p := t.w.Port(id); p != nil && p.Wiring.State == world.Moved {
				t.bridges[at].moved = true // until the VM is unplugged here
				t.touched[at] = true
			}
		}
	}
	var out []world.Object
	for name := range t.touched {
		t.resolve(name)
		out = append(out, own.Object(ownKey(name)))
		if b := t.bridges[name]; b != nil {
			if p := t.w.Port(b.parent.id); p != nil && p.VIF == nil {
				out = append(out, world.PortObject(p.ID)) // see joining
			}
		}
	}
	for name := range t.suspects {
		before := t.strays[name]
		if !isStray(t.w.View, t.w.Config.IntegrationBridge, name) {
			delete(t.strays, name)
		} else if before == nil {
			t.strays[name] = &stray{since: t.now()}
		}
		if before != nil {
			out = append(out, own.Object(ownKey(name)))
		}
	}
	clear(t.touched)
	clear(t.suspects)
	return out
}

// own names the extension's own objects by what they are in the switch.
const own extension.Objects[ownKey] = name

// ownKey is the name of a trunk's bridge or of a stray patch port: their prefixes tell them apart.
type ownKey string

// resolve works out anew what follows for a bridge.
func (t *trunks) resolve(name string) {
	b, row := t.bridges[name], t.w.View.BridgeByName(name)
	if row == nil {
		if b != nil {
			delete(t.parents, b.parent.id)
		}
		delete(t.bridges, name)
		delete(t.busy, name)
		return
	}
	if b == nil {
		b = &bridge{name: name, macs: map[string]neutron.MAC{}}
		t.bridges[name] = b
	}
	p, occupied := parentOn(t.w.View, row)
	if b.parent.iface != p.iface || b.parent.id != p.id {
		t.plugged(b, p)
	}
	switch {
	case occupied:
		b.empty, b.patchesGo, b.bridgeGoes = time.Time{}, false, false
	case b.empty.IsZero():
		b.empty = t.now()
	}
	b.complete = false
	if want, ok := t.wanted(b); ok && b.confirmed {
		tx := ovsdb.DiffRows(t.w.View, want)
		_, err := tx.JSON()
		b.complete = err == nil && tx.Len() == 0
	}
	if t.busy[name] = b.busy(); !t.busy[name] {
		delete(t.busy, name)
	}
}

// plugged begins a new life of the bridge: with a VM, another incarnation of it, or none. What is known of the trunk stays in force,
// and is asked for again; its sub-ports have to be bound again.
func (t *trunks) plugged(b *bridge, p parent) {
	delete(t.parents, b.parent.id)
	b.parent, b.answered, b.bound, b.due, b.moved = p, false, map[string]bool{}, true, false
	b.life++
	b.seq++
	if p.id == "" {
		return
	}
	t.parents[p.id] = b.name
	if b.trunk != nil && b.trunk.PortID != p.id {
		b.trunk, b.confirmed = nil, false
	}
	if m := world.TakeRecalled(t.w, t.recalled, p.id); m.Trunk != "" && b.trunk == nil && bridgeName(m.Trunk) == b.name {
		b.trunk = &neutron.Trunk{ID: m.Trunk, PortID: p.id, SubPorts: slices.Clone(m.SubPorts)}
		maps.Copy(b.macs, m.MACs)
	}
}

// learn takes what the server says about the trunk; nil if the parent has none that could be on this bridge.
func (b *bridge) learn(now *neutron.Trunk) {
	b.answered = true
	if now == nil {
		b.trunk, b.confirmed = nil, false // what is there stays: it cannot be told whose it is
		return
	}
	var before []neutron.SubPort
	if b.trunk != nil {
		before = b.trunk.SubPorts
	}
	for _, s := range before {
		if !slices.Contains(now.SubPorts, s) {
			b.due = true
			b.forget(s.PortID)
		}
	}
	b.due = b.due || now.Status != neutron.TrunkActive
	b.trunk, b.confirmed = now, true
}

// unbound lists the sub-ports that the server has to bind to this host.
func (b *bridge) unbound() []neutron.SubPort {
	if !b.confirmed || !b.answered || b.parent.id == "" || b.moved {
		return nil
	}
	var out []neutron.SubPort
	for _, s := range b.trunk.SubPorts {
		if _, asked := b.bound[s.PortID]; !asked && carriable(s) {
			out = append(out, s)
		}
	}
	return out
}

// reportable says whether the trunk is all in place and the server has to be told. If the server could not bind a sub-port it knows
// by itself how the trunk is.
func (b *bridge) reportable() bool {
	if !b.due || !b.complete || !b.answered || len(b.unbound()) > 0 || b.parent.id == "" || b.moved {
		return false
	}
	return !slices.Contains(slices.Collect(maps.Values(b.bound)), false) && !slices.ContainsFunc(b.trunk.SubPorts, uncarriable)
}

// carriable says whether a patch port can stand for the sub-port. The tag of the VM's bridge would be 0 or 4095 otherwise, which is
// where untagged packets and those of dead ports are, or a number that the database refuses together with all rows of the trunk.
func carriable(s neutron.SubPort) bool { return world.IsVLAN(s.SegmentationID) }

func uncarriable(s neutron.SubPort) bool { return !carriable(s) }

func (b *bridge) busy() bool {
	return !b.empty.IsZero() || b.unanswered() || len(b.unbound()) > 0 || b.reportable()
}

func (b *bridge) unanswered() bool { return b.parent.id != "" && !b.answered }

// joining says whether a port's VM is on a trunk's bridge, and the port will be on the integration bridge: nobody has said that it has no trunk.
// Without that the port would count as one of another bridge, and be reported down.
func (t *trunks) joining(id string) bool {
	b, p := t.bridges[t.parents[id]], t.w.Port(id)
	return b != nil && p != nil && p.VIF == nil && b.empty.IsZero() && !b.moved && (!b.answered || b.trunk != nil)
}

// wanted is what a bridge wants of the database, if anything.
func (t *trunks) wanted(b *bridge) (ovsdb.Spec, bool) {
	switch {
	case !b.empty.IsZero():
		return unjoined(t.w.Config.IntegrationBridge, b.name, b.bridgeGoes), b.patchesGo || b.bridgeGoes
	case b.trunk == nil || b.parent.id == "" || b.moved:
		return nil, false
	}
	return t.joined(b), true
}

// Compile implements extension.Extension.
func (t *trunks) Compile(o world.Object, want *pipeline.Want) {
	if id, ok := world.PortID(o); ok && t.joining(id) {
		want.Waiting = "the patch ports of its trunk are not there yet"
	}
	key, ok := own.Key(o)
	if !ok {
		return
	}
	id := string(key)
	if b := t.bridges[id]; b != nil {
		if row, ok := t.wanted(b); ok {
			want.Rows = append(want.Rows, row)
		}
	}
	if s := t.strays[id]; s != nil && s.goes {
		want.Rows = append(want.Rows, noStray(t.w.Config.IntegrationBridge, id))
	}
}
