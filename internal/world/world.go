// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// Config is what is settled at start.
type Config struct {
	Host string

	IntegrationBridge string
	TunnelBridge      string            // empty without tunnels
	IntPatch          string            // port of the integration bridge towards the tunnel bridge
	TunPatch          string            // port of the tunnel bridge towards the integration bridge
	Physical          map[string]string // bridge of each physical network

	LocalIP     netip.Addr // this host's tunnel endpoint
	TunnelTypes []string
	// L2Population: the server tells which addresses are behind which endpoint. Without it every endpoint gets every
	// broadcast.
	L2Population bool
	ARPResponder bool
	// AntiSpoof: the firewall driver leaves the check of senders to us.
	AntiSpoof bool
}

// Tunnels says whether there are any.
func (c *Config) Tunnels() bool { return len(c.TunnelTypes) > 0 }

// tombstoneLife is how long a deleted port is remembered, so that a late push or reply does not bring it back. Pushes
// overtake each other by seconds; replies are older than their call by the call's timeout at most.
const tombstoneLife = 15 * time.Minute

// World is everything the agent knows. It has one owner; nothing in it is safe for concurrent use.
type World struct {
	Config Config
	// View is the switch as last seen.
	View *ovsdb.View

	ports     map[string]*Port // by id: plugged in here, or still to be reported gone
	vifs      map[ovsdb.UUID]vif
	vifsOf    map[string]map[ovsdb.UUID]bool
	deleted   map[string]time.Time // tombstones, by port id
	segments  map[SegmentKey]*Segment
	vlans     vlans
	endpoints map[Endpoint]bool   // of other hosts, as the server announced them
	tunnels   map[string]Endpoint // by the name of their port, all that there ever were

	touched map[string]bool // ports to look at again
	dirty   map[Object]bool
}

// New returns an empty world.
func New(cfg Config) *World {
	return &World{
		Config: cfg, View: ovsdb.NewView(),
		ports: map[string]*Port{}, vifs: map[ovsdb.UUID]vif{}, vifsOf: map[string]map[ovsdb.UUID]bool{}, deleted: map[string]time.Time{},
		segments: map[SegmentKey]*Segment{}, vlans: newVLANs(), endpoints: map[Endpoint]bool{}, tunnels: map[string]Endpoint{},
		touched: map[string]bool{}, dirty: map[Object]bool{},
	}
}

// ObjectKind is a kind of thing that is compiled on its own.
type ObjectKind uint8

// The kinds of objects.
const (
	KindBridge  ObjectKind = iota + 1 // base flows and rows of a bridge; ID is its name
	KindPort                          // a port plugged in here; ID is Neutron's
	KindSegment                       // a segment with a local VLAN; ID is SegmentKey's text
	KindTunnel                        // an endpoint of a tunnel; ID is Endpoint's text
	KindStation                       // addresses behind an endpoint; ID is the segment's and the address
)

// String is the word for the kind in logs and reasons.
func (k ObjectKind) String() string {
	return [...]string{"", "bridge", "port", "segment", "tunnel", "station"}[k]
}

// Object names something that is compiled on its own. A change costs what its objects cost.
type Object struct {
	Kind ObjectKind
	ID   string
}

// String is the object's name for people.
func (o Object) String() string { return o.Kind.String() + " " + o.ID }

// Compare orders objects by kind, then by id.
func (o Object) Compare(p Object) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), cmp.Compare(o.ID, p.ID))
}

func (w *World) mark(kind ObjectKind, id string) { w.dirty[Object{kind, id}] = true }

func (w *World) markTunnel(e Endpoint) {
	w.tunnels[TunnelName(e)] = e
	w.mark(KindTunnel, e.String())
}

// Settle works out what follows from the news and returns the objects that may have changed, in a stable order: bridges,
// ports, segments, tunnels, stations. An object that is gone is returned too; it compiles to nothing.
func (w *World) Settle() []Object {
	for id := range w.touched {
		w.settlePort(id)
	}
	clear(w.touched)
	w.settleSegments()
	out := make([]Object, 0, len(w.dirty))
	for o := range w.dirty {
		out = append(out, o)
	}
	clear(w.dirty)
	slices.SortFunc(out, Object.Compare)
	return out
}

// Everything names all objects there are, for a compile from nothing.
func (w *World) Everything() []Object {
	for _, name := range w.Bridges() {
		w.mark(KindBridge, name)
	}
	for id := range w.ports {
		w.touched[id] = true
		w.mark(KindPort, id)
	}
	for key, s := range w.segments {
		w.markSegment(key, s)
	}
	for _, e := range w.WantedEndpoints() {
		w.markTunnel(e)
	}
	return w.Settle()
}

// Bridges are those that the agent programs, sorted.
func (w *World) Bridges() []string {
	names := []string{w.Config.IntegrationBridge}
	if w.Config.Tunnels() {
		names = append(names, w.Config.TunnelBridge)
	}
	for _, b := range w.Config.Physical {
		names = append(names, b)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// OFPort is the number of an interface of one of the agent's bridges; 0 when it has none.
func (w *World) OFPort(name string) uint32 {
	i := w.View.InterfaceByName(name)
	if i == nil || i.OFPort == nil || *i.OFPort <= 0 {
		return 0
	}
	return uint32(*i.OFPort)
}

// Expire forgets what is too old to matter.
func (w *World) Expire(now time.Time) {
	for id, at := range w.deleted {
		if now.Sub(at) > tombstoneLife {
			delete(w.deleted, id)
		}
	}
}

// Port returns a port by its id, or nil.
func (w *World) Port(id string) *Port { return w.ports[id] }

// PortIDs lists the ports that are known here, sorted.
func (w *World) PortIDs() []string {
	ids := make([]string, 0, len(w.ports))
	for id := range w.ports {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// active finds the binding of a port that counts.
func active(p *neutron.Port) *neutron.Binding {
	for i := range p.Bindings {
		if p.Bindings[i].Status == "ACTIVE" {
			return &p.Bindings[i]
		}
	}
	return nil
}
