// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"cmp"
	"iter"
	"maps"
)

// Kind says why a Batch was delivered.
type Kind int

// The kinds of batches.
const (
	// Initial is the first batch with rows: all of them, as inserted.
	Initial Kind = iota + 1
	// Update holds the changes of one or several whole transactions.
	Update
	// Reconnected holds the difference between what was delivered before the connection was lost and what is there now.
	// It is delivered after every reconnect, also when nothing changed.
	Reconnected
	// Disconnected holds no rows. It comes when the connection is lost, and when connecting fails for another reason than
	// before; Err says why. The rows delivered before stay the best knowledge there is.
	Disconnected
)

// String returns the name of the kind.
func (k Kind) String() string {
	switch k {
	case Initial:
		return "initial"
	case Update:
		return "update"
	case Reconnected:
		return "reconnected"
	case Disconnected:
		return "disconnected"
	}
	return "unknown"
}

// Diff is one changed row. Old is nil for a new row, New for a deleted one. Neither may be modified.
type Diff[T any] struct {
	Old, New *T
}

func (d Diff[T]) row() *T {
	if d.New != nil {
		return d.New
	}
	return d.Old
}

// Batch is a consistent step from one state of the database to a later one. In each table deleted rows come first.
type Batch struct {
	// Seq numbers the batches of one Client from 1, without gaps.
	Seq  uint64
	Kind Kind
	Err  error

	OpenVSwitch []Diff[OpenVSwitch]
	Bridges     []Diff[Bridge]
	Ports       []Diff[Port]
	Interfaces  []Diff[Interface]
	Controllers []Diff[Controller]
	Managers    []Diff[Manager]
	QoS         []Diff[QoS]
	Queues      []Diff[Queue]
	Mirrors     []Diff[Mirror]
}

// Len returns the number of changed rows.
func (b *Batch) Len() int {
	return len(b.OpenVSwitch) + len(b.Bridges) + len(b.Ports) + len(b.Interfaces) + len(b.Controllers) + len(b.Managers) +
		len(b.QoS) + len(b.Queues) + len(b.Mirrors)
}

// View is the state of the database after the batches applied to it. It belongs to one goroutine. Lookups cost a map
// access and return nil for what is not there; rows must not be modified.
type View struct {
	schema      *schema
	seq         uint64
	root        store[OpenVSwitch]
	bridges     store[Bridge]
	ports       store[Port]
	interfaces  store[Interface]
	controllers store[Controller]
	managers    store[Manager]
	qos         store[QoS]
	queues      store[Queue]
	mirrors     store[Mirror]
	bridgeOf    map[UUID]UUID // by port
	portOf      map[UUID]UUID // by interface
}

type store[T any] struct {
	rows   map[UUID]*T
	byName map[string]*T
}

// NewView returns an empty view.
func NewView() *View {
	return &View{
		schema:      newSchema(),
		root:        newStore[OpenVSwitch](),
		bridges:     newStore[Bridge](),
		ports:       newStore[Port](),
		interfaces:  newStore[Interface](),
		controllers: newStore[Controller](),
		managers:    newStore[Manager](),
		qos:         newStore[QoS](),
		queues:      newStore[Queue](),
		mirrors:     newStore[Mirror](),
		bridgeOf:    map[UUID]UUID{},
		portOf:      map[UUID]UUID{},
	}
}

func newStore[T any]() store[T] { return store[T]{rows: map[UUID]*T{}, byName: map[string]*T{}} }

// Apply moves the view on by one batch. Batches are applied in the order in which they were delivered, each once.
func (v *View) Apply(b *Batch) {
	v.seq = b.Seq
	v.root.apply(b.OpenVSwitch, func(r *OpenVSwitch) (UUID, string) { return r.UUID, "" })
	v.bridges.apply(b.Bridges, func(r *Bridge) (UUID, string) { return r.UUID, r.Name })
	v.ports.apply(b.Ports, func(r *Port) (UUID, string) { return r.UUID, r.Name })
	v.interfaces.apply(b.Interfaces, func(r *Interface) (UUID, string) { return r.UUID, r.Name })
	v.controllers.apply(b.Controllers, func(r *Controller) (UUID, string) { return r.UUID, "" })
	v.managers.apply(b.Managers, func(r *Manager) (UUID, string) { return r.UUID, r.Target })
	v.qos.apply(b.QoS, func(r *QoS) (UUID, string) { return r.UUID, "" })
	v.queues.apply(b.Queues, func(r *Queue) (UUID, string) { return r.UUID, "" })
	v.mirrors.apply(b.Mirrors, func(r *Mirror) (UUID, string) { return r.UUID, "" })
	for _, d := range b.Bridges {
		reindex(v.bridgeOf, d, func(r *Bridge) (UUID, []UUID) { return r.UUID, r.Ports })
	}
	for _, d := range b.Ports {
		reindex(v.portOf, d, func(r *Port) (UUID, []UUID) { return r.UUID, r.Interfaces })
	}
}

func (s *store[T]) apply(diffs []Diff[T], key func(*T) (UUID, string)) {
	for _, d := range diffs {
		id, name := key(d.row())
		if d.New != nil {
			s.rows[id] = d.New
			if name != "" {
				s.byName[name] = d.New
			}
			continue
		}
		delete(s.rows, id)
		if at := s.byName[name]; at != nil {
			if atID, _ := key(at); atID == id {
				delete(s.byName, name)
			}
		}
	}
}

// reindex keeps the way from a child row to its parent, touching only the children that came or went.
func reindex[T any](parents map[UUID]UUID, d Diff[T], children func(*T) (UUID, []UUID)) {
	var id UUID
	var before, after []UUID
	if d.Old != nil {
		id, before = children(d.Old)
	}
	if d.New != nil {
		id, after = children(d.New)
	}
	compare(before, after, func(gone UUID) {
		// A child that moved may have been entered under its new parent already.
		if parents[gone] == id {
			delete(parents, gone)
		}
	}, func(added UUID) { parents[added] = id })
}

// compare walks two sorted sets and reports what is only in the first and only in the second.
func compare[E cmp.Ordered](a, b []E, onlyA, onlyB func(E)) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			onlyA(a[0])
			a = a[1:]
		case len(a) == 0 || b[0] < a[0]:
			onlyB(b[0])
			b = b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
}

// Seq returns the number of the last batch applied.
func (v *View) Seq() uint64 { return v.seq }

// Root returns the row of the table Open_vSwitch.
func (v *View) Root() *OpenVSwitch {
	for _, r := range v.root.rows {
		return r
	}
	return nil
}

// Capabilities returns what the state report says about the switch, the zero value before the initial batch.
func (v *View) Capabilities() Capabilities {
	if r := v.Root(); r != nil {
		return r.Capabilities()
	}
	return Capabilities{}
}

// Bridge returns the bridge of this identity.
func (v *View) Bridge(id UUID) *Bridge { return v.bridges.rows[id] }

// BridgeByName returns the bridge that has the name now.
func (v *View) BridgeByName(name string) *Bridge { return v.bridges.byName[name] }

// Bridges ranges over all bridges, in no order.
func (v *View) Bridges() iter.Seq[*Bridge] { return maps.Values(v.bridges.rows) }

// Port returns the port of this identity.
func (v *View) Port(id UUID) *Port { return v.ports.rows[id] }

// PortByName returns the port that has the name now.
func (v *View) PortByName(name string) *Port { return v.ports.byName[name] }

// Ports ranges over all ports of all bridges, in no order.
func (v *View) Ports() iter.Seq[*Port] { return maps.Values(v.ports.rows) }

// BridgeOf returns the bridge that the port is on.
func (v *View) BridgeOf(port UUID) *Bridge { return v.bridges.rows[v.bridgeOf[port]] }

// InterfacesOn returns the interfaces of all ports of a bridge.
func (v *View) InterfacesOn(b *Bridge) []*Interface {
	var out []*Interface
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

// SingleInterfaces returns the interfaces of a bridge that are ports of their own: those of a bond are not.
func (v *View) SingleInterfaces(bridge string) []*Interface {
	b := v.BridgeByName(bridge)
	if b == nil {
		return nil
	}
	var out []*Interface
	for _, id := range b.Ports {
		if p := v.Port(id); p != nil && len(p.Interfaces) == 1 {
			if i := v.Interface(p.Interfaces[0]); i != nil && i.Name == p.Name {
				out = append(out, i)
			}
		}
	}
	return out
}

// Interface returns the interface of this identity.
func (v *View) Interface(id UUID) *Interface { return v.interfaces.rows[id] }

// InterfaceByName returns the interface that has the name now.
func (v *View) InterfaceByName(name string) *Interface { return v.interfaces.byName[name] }

// Interfaces ranges over all interfaces of all bridges, in no order.
func (v *View) Interfaces() iter.Seq[*Interface] { return maps.Values(v.interfaces.rows) }

// PortOf returns the port that the interface belongs to.
func (v *View) PortOf(iface UUID) *Port { return v.ports.rows[v.portOf[iface]] }

// Controller returns the controller of this identity.
func (v *View) Controller(id UUID) *Controller { return v.controllers.rows[id] }

// QoS returns the QoS row of this identity.
func (v *View) QoS(id UUID) *QoS { return v.qos.rows[id] }

// AllQoS ranges over all QoS rows, in no order.
func (v *View) AllQoS() iter.Seq[*QoS] { return maps.Values(v.qos.rows) }

// Queue returns the queue of this identity.
func (v *View) Queue(id UUID) *Queue { return v.queues.rows[id] }

// Queues ranges over all queues, in no order.
func (v *View) Queues() iter.Seq[*Queue] { return maps.Values(v.queues.rows) }

// MirrorsOn returns the mirrors of a bridge, in the order of their identities.
func (v *View) MirrorsOn(b *Bridge) []*Mirror {
	var out []*Mirror
	for _, id := range b.Mirrors {
		if m := v.mirrors.rows[id]; m != nil {
			out = append(out, m)
		}
	}
	return out
}

// advance decodes updates against the view, applies them and returns them as a batch. Whole says that updates are a dump
// of all there is, not the changes since.
func (v *View) advance(updates tableUpdates, whole bool) (*Batch, error) {
	b := &Batch{}
	err := decode(&v.schema.root, updates, whole, v.root.rows, &b.OpenVSwitch)
	err = cmp.Or(err, decode(&v.schema.bridge, updates, whole, v.bridges.rows, &b.Bridges))
	err = cmp.Or(err, decode(&v.schema.port, updates, whole, v.ports.rows, &b.Ports))
	err = cmp.Or(err, decode(&v.schema.iface, updates, whole, v.interfaces.rows, &b.Interfaces))
	err = cmp.Or(err, decode(&v.schema.controller, updates, whole, v.controllers.rows, &b.Controllers))
	err = cmp.Or(err, decode(&v.schema.manager, updates, whole, v.managers.rows, &b.Managers))
	err = cmp.Or(err, decode(&v.schema.qos, updates, whole, v.qos.rows, &b.QoS))
	err = cmp.Or(err, decode(&v.schema.queue, updates, whole, v.queues.rows, &b.Queues))
	err = cmp.Or(err, decode(&v.schema.mirror, updates, whole, v.mirrors.rows, &b.Mirrors))
	if err != nil {
		return nil, err
	}
	b.Seq = v.seq + 1
	v.Apply(b)
	return b, nil
}

func decode[T any](t *table[T], updates tableUpdates, whole bool, known map[UUID]*T, into *[]Diff[T]) (err error) {
	if whole {
		*into, err = t.resync(updates, known)
	} else {
		*into, err = t.changes(updates, known)
	}
	return err
}
