// SPDX-License-Identifier: Apache-2.0

package world

import (
	"maps"
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
	// FilterTables: the integration bridge has the tables of filters, whether ports are filtered or not.
	FilterTables bool
	// Filter: ports are filtered by their security groups, with flows.
	Filter bool
	// Hybrid: rules of iptables, on the Linux bridge that each port is plugged in through, filter in place of flows. It counts only together
	// with Filter.
	Hybrid bool
	// BridgedOnly: with Hybrid, a port that has to be filtered and has no such bridge is not wired.
	BridgedOnly bool
	// FailClosed: packets of an interface of the integration bridge pass only once it is known what it is. It counts only
	// together with Filter.
	FailClosed bool
	// PermittedEtherTypes pass the filters in addition to IP and ARP.
	PermittedEtherTypes []uint16
	// EgressDirect: packets to known addresses are sent to their port instead of being switched.
	EgressDirect bool
}

// Tunnels says whether there are any.
func (c *Config) Tunnels() bool { return len(c.TunnelTypes) > 0 }

// tombstoneLife is how long something deleted is remembered, so that a late push or reply does not bring it back. Pushes
// overtake each other by seconds; replies are older than their call by the call's timeout at most.
const tombstoneLife = 15 * time.Minute

// World is everything the agent knows. It has one owner; nothing in it is safe for concurrent use. Ports are its own; the rest is in
// tables, each with its own state, that know no other table than those they are made over.
type World struct {
	*filters

	Segments *Segments
	Tunnels  *Tunnels
	Groups   *Groups
	Members  *Members
	vifs     *vifTable

	// MaxMeters is how many meters a bridge can have, by its name; a bridge that has not told yet is not in it.
	MaxMeters map[string]uint32
	// MeterIDs are the ids of meters of the integration bridge that extensions have given out, so that no two of them give out the same.
	MeterIDs MeterIDs

	exposed map[string]bool  // see Exposed
	guards  map[string]Guard // see Guard
}

// common is what all tables share: what is settled at start, the switch, the ports, and what is to be worked out.
type common struct {
	Config Config
	// View is the switch as last seen.
	View *ovsdb.View
	// Time is the time of the step that is being taken. The world's owner sets it.
	Time time.Time
	// Contain, if set, runs work about an object and says whether it came to its end: a panic is kept from everything else. Nil stands
	// for a push about objects.
	Contain func(o Object, work func()) bool
	// Mend, if set, is Contain for what makes up for a failure; what says what that is.
	Mend func(what string, work func()) bool

	ports   map[string]*Port // by id: plugged in here, or still to be reported gone
	deleted tombstones
	// seq counts what was heard and asked, so that an answer can be told from what came after the question.
	seq         uint64
	staleSince  uint64              // when messages may have been lost last
	recalled    recalled            // from an earlier run
	confirmed   bool                // see Confirmed
	concerned   []string            // see Concerned
	closed      bool                // see Closed
	rulesGone   bool                // see RulesGone
	tunnelNames map[string]Endpoint // by the names of their port, all that there ever were
	// NewerTunnelNames: the server is of release 25 or later, so that a Python agent here would look for tunnels under the names of these.
	NewerTunnelNames bool

	touched       map[string]bool // ports to look at again
	touchedGroups map[string]bool
	dirty         map[Object]bool
}

// New returns an empty world.
func New(cfg Config) *World {
	c := &common{
		Config: cfg, View: ovsdb.NewView(), ports: map[string]*Port{}, deleted: tombstones{}, tunnelNames: map[string]Endpoint{},
		touched: map[string]bool{}, touchedGroups: map[string]bool{}, dirty: map[Object]bool{},
	}
	f := &filters{common: c, groups: map[string]*group{}, remotes: map[string]*remote{}}
	w := &World{
		filters: f, MaxMeters: map[string]uint32{}, MeterIDs: MeterIDs{}, exposed: map[string]bool{}, guards: map[string]Guard{},
		Segments: &Segments{common: c, byKey: map[SegmentKey]*Segment{}, vlans: newVLANs()},
		Members:  &Members{filters: f, byID: map[string]*member{}, peers: map[Peer][]string{}, ids: newConjunctionIDs()},
		vifs:     &vifTable{common: c, rows: map[ovsdb.UUID]vif{}, of: map[string]map[ovsdb.UUID]bool{}},
	}
	w.Groups = &Groups{filters: f, members: w.Members, groupOf: map[string]string{}}
	w.Tunnels = &Tunnels{common: c, segments: w.Segments, endpoints: map[Endpoint]uint64{}, withdrawn: map[Endpoint]uint64{}, listed: map[string]uint64{}}
	return w
}

func (w *common) mark(o Object) { w.dirty[o] = true }

func (w *common) markTunnel(e Endpoint) {
	for _, name := range TunnelNames(e) {
		w.tunnelNames[name] = e
	}
	w.mark(TunnelObject(e))
}

// Resolve works out what follows from the updates and returns the objects that may have changed, in a stable order: bridges,
// ports, segments, tunnels, stations, peers, interfaces. An object that is gone is returned too; it compiles to nothing.
func (w *World) Resolve() []Object {
	// A port may bring in a group about which something is remembered, and a group changes its ports.
	for len(w.touchedGroups)+len(w.touched) > 0 {
		for _, id := range take(&w.touchedGroups) {
			w.contain(GroupObject(id), func() { w.Groups.resolveGroup(id) })
		}
		for _, id := range take(&w.touched) {
			w.settlePort(id)
		}
	}
	w.Segments.resolve()
	w.Groups.resolve()
	out := SortedObjects(w.dirty)
	clear(w.dirty)
	return out
}

// HasChanges returns whether there is something that Resolve has not worked out yet.
func (w *common) HasChanges() bool { return len(w.dirty)+len(w.touched)+len(w.touchedGroups) > 0 }

// take empties a set and returns what was in it, sorted: the first port of a network gets the first local VLAN.
func take(set *map[string]bool) []string {
	out := slices.Sorted(maps.Keys(*set))
	*set = map[string]bool{}
	return out
}

// Everything names all objects there are, for a compile from nothing.
func (w *World) Everything() []Object {
	w.everything()
	return w.Resolve()
}

func (w *World) everything() {
	for _, name := range w.Bridges() {
		w.mark(BridgeObject(name))
	}
	for id := range w.ports {
		w.touched[id] = true
		w.mark(PortObject(id))
	}
	for key, s := range w.Segments.byKey {
		w.Segments.markSegment(key, s)
	}
	for _, e := range w.Tunnels.WantedEndpoints() {
		w.markTunnel(e)
	}
	for _, g := range w.groups {
		for key := range g.segments {
			w.Groups.markGroupOn(g, key)
		}
	}
	for i := range w.View.Interfaces() {
		w.touchInterface(i)
	}
}

// Objects names all objects there are, and changes nothing.
func (w *World) Objects() []Object {
	dirty, touched := w.dirty, w.touched
	w.dirty, w.touched = map[Object]bool{}, map[string]bool{}
	defer func() { w.dirty, w.touched = dirty, touched }()
	w.everything()
	return SortedObjects(w.dirty)
}

// Bridges are those that the agent programs, sorted.
func (w *common) Bridges() []string {
	names := append(slices.Collect(maps.Values(w.Config.Physical)), w.Config.IntegrationBridge)
	if w.Config.Tunnels() {
		names = append(names, w.Config.TunnelBridge)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// OFPort is the number of an interface of one of the agent's bridges; 0 when it has none.
func (w *common) OFPort(name string) uint32 {
	i := w.View.InterfaceByName(name)
	if i == nil || i.OFPort == nil || *i.OFPort <= 0 {
		return 0
	}
	return uint32(*i.OFPort)
}

// Now stands for this moment, for [Tunnels.Sync], [World.PortsAsked] and [Item].
func (w *common) Now() uint64 { return w.seq }

// Missed returns when messages may have been lost last.
func (w *common) Missed() uint64 { return w.staleSince }

// Expire forgets what is too old to matter, and has groups and lists of members asked for again that late messages may have added to.
func (w *filters) Expire(now time.Time) {
	w.deleted.expire(now)
	w.confirm(now)
}

// Deleted returns whether the server said so lately. What it says about the object after that does not count.
func (w *common) Deleted(id string) bool {
	return w.deleted.has(id)
}

// Port returns a port by its id, or nil.
func (w *common) Port(id string) *Port { return w.ports[id] }

// PortIDs lists the ports that are known here, sorted.
func (w *common) PortIDs() []string { return slices.Sorted(maps.Keys(w.ports)) }

// active finds the binding of a port that counts.
func active(p *neutron.Port) *neutron.Binding {
	for i := range p.Bindings {
		if p.Bindings[i].Status == "ACTIVE" {
			return &p.Bindings[i]
		}
	}
	return nil
}
