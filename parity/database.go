// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// Database is the switch of a replay: rows in memory, changed by recorded events and by whoever stands for the agent. Every
// method returns the batch that a client of the real database would get. Port numbers are given out as ovs-vswitchd does it;
// those in recorded events are taken over.
type Database struct {
	view  *ovsdb.View
	seq   uint64
	rows  int
	ports map[string]int // the last port number, by bridge
}

// NewDatabase returns a switch without bridges.
func NewDatabase() *Database {
	return &Database{view: ovsdb.NewView(), ports: map[string]int{}}
}

// View is the present state.
func (d *Database) View() *ovsdb.View { return d.view }

func (d *Database) batch() *ovsdb.Batch {
	d.seq++
	kind := ovsdb.Update
	if d.seq == 1 {
		kind = ovsdb.Initial
	}
	return &ovsdb.Batch{Seq: d.seq, Kind: kind}
}

func (d *Database) id() ovsdb.UUID {
	d.rows++
	return ovsdb.UUID(fmt.Sprintf("%08x-0000-4000-8000-00000000db00", d.rows))
}

// Apply changes rows as a recorded event says. Rows deleted and added again under the same name become other rows.
func (d *Database) Apply(changes []RowChange) *ovsdb.Batch {
	b := d.batch()
	for _, c := range changes {
		one := &ovsdb.Batch{}
		switch {
		case c.Table == "Bridge" && c.Deleted:
			d.deleteBridge(one, c.Name)
		case c.Table == "Bridge":
			d.setBridge(one, c.Name, func(br *ovsdb.Bridge) {
				br.DatapathType, br.ExternalIDs = c.DatapathType, c.ExternalIDs
			})
		case c.Deleted:
			d.deletePort(one, c.Name)
		case c.Tag != nil:
			if port := d.view.PortByName(c.Name); port != nil {
				d.setPort(one, d.view.BridgeOf(port.UUID).Name, c.Name, func(p *ovsdb.Port, _ *ovsdb.Interface) {
					p.Tag = c.Tag
					if *c.Tag < 0 {
						p.Tag = nil
					}
				})
			}
		default:
			d.setPort(one, c.Bridge, c.Name, func(_ *ovsdb.Port, i *ovsdb.Interface) {
				i.Type, i.OFPort, i.ExternalIDs = c.Type, c.OFPort, c.ExternalIDs
				if c.Options != nil {
					i.Options = c.Options
				}
			})
		}
		d.add(b, one)
	}
	return b
}

// add makes one change part of a batch and of the present state.
func (d *Database) add(b, one *ovsdb.Batch) {
	one.Seq, one.Kind = b.Seq, b.Kind
	d.view.Apply(one)
	b.Bridges = merge(append(b.Bridges, one.Bridges...), func(r *ovsdb.Bridge) ovsdb.UUID { return r.UUID })
	b.Ports = merge(append(b.Ports, one.Ports...), func(r *ovsdb.Port) ovsdb.UUID { return r.UUID })
	b.Interfaces = merge(append(b.Interfaces, one.Interfaces...), func(r *ovsdb.Interface) ovsdb.UUID { return r.UUID })
}

// merge makes one change of all changes of a row, and puts deleted rows first, as in a real batch.
func merge[T any](diffs []ovsdb.Diff[T], id func(*T) ovsdb.UUID) []ovsdb.Diff[T] {
	at := map[ovsdb.UUID]int{}
	var deleted, kept []ovsdb.Diff[T]
	var all []ovsdb.Diff[T]
	for _, d := range diffs {
		row := d.New
		if row == nil {
			row = d.Old
		}
		if i, ok := at[id(row)]; ok {
			all[i].New = d.New
			continue
		}
		at[id(row)] = len(all)
		all = append(all, d)
	}
	for _, d := range all {
		switch {
		case d.Old == nil && d.New == nil:
		case d.New == nil:
			deleted = append(deleted, d)
		default:
			kept = append(kept, d)
		}
	}
	return append(deleted, kept...)
}

// SetBridge changes a bridge, which is made when there is none of that name, with its own port.
func (d *Database) SetBridge(name string, edit func(*ovsdb.Bridge)) *ovsdb.Batch {
	b, one := d.batch(), &ovsdb.Batch{}
	d.setBridge(one, name, edit)
	d.add(b, one)
	return b
}

func (d *Database) setBridge(b *ovsdb.Batch, name string, edit func(*ovsdb.Bridge)) {
	old := d.view.BridgeByName(name)
	br := &ovsdb.Bridge{UUID: d.id(), Name: name}
	if old != nil {
		br = clone(old)
		br.OtherConfig, br.ExternalIDs = maps.Clone(old.OtherConfig), maps.Clone(old.ExternalIDs)
	}
	edit(br)
	if old == nil {
		local := 0xfffe
		iface := &ovsdb.Interface{UUID: d.id(), Name: name, Type: "internal", OFPort: &local}
		port := &ovsdb.Port{UUID: d.id(), Name: name, Interfaces: []ovsdb.UUID{iface.UUID}}
		br.Ports = []ovsdb.UUID{port.UUID}
		b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{New: port})
		b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: iface})
	}
	b.Bridges = append(b.Bridges, ovsdb.Diff[ovsdb.Bridge]{Old: old, New: br})
}

func (d *Database) deleteBridge(b *ovsdb.Batch, name string) {
	br := d.view.BridgeByName(name)
	if br == nil {
		return
	}
	for _, id := range br.Ports {
		d.dropPort(b, d.view.Port(id))
	}
	b.Bridges = append(b.Bridges, ovsdb.Diff[ovsdb.Bridge]{Old: br})
}

// SetPort changes a port and its only interface. A port that is not there is made, on the bridge and with the next number.
func (d *Database) SetPort(bridge, name string, edit func(*ovsdb.Port, *ovsdb.Interface)) *ovsdb.Batch {
	b, one := d.batch(), &ovsdb.Batch{}
	d.setPort(one, bridge, name, edit)
	d.add(b, one)
	return b
}

func (d *Database) setPort(b *ovsdb.Batch, bridge, name string, edit func(*ovsdb.Port, *ovsdb.Interface)) {
	oldPort := d.view.PortByName(name)
	var oldIface *ovsdb.Interface
	var port *ovsdb.Port
	var iface *ovsdb.Interface
	if oldPort != nil {
		oldIface = d.view.Interface(oldPort.Interfaces[0])
		port, iface = clone(oldPort), clone(oldIface)
		port.OtherConfig, port.ExternalIDs = maps.Clone(oldPort.OtherConfig), maps.Clone(oldPort.ExternalIDs)
		iface.Options, iface.ExternalIDs = maps.Clone(oldIface.Options), maps.Clone(oldIface.ExternalIDs)
	} else {
		// The bridge of a recorded port may be one that the agent makes later.
		if d.view.BridgeByName(bridge) == nil {
			one := &ovsdb.Batch{}
			d.setBridge(one, bridge, func(*ovsdb.Bridge) {})
			d.add(b, one)
		}
		d.ports[bridge]++
		number := d.ports[bridge]
		iface = &ovsdb.Interface{UUID: d.id(), Name: name, OFPort: &number}
		port = &ovsdb.Port{UUID: d.id(), Name: name, Interfaces: []ovsdb.UUID{iface.UUID}}
		old := d.view.BridgeByName(bridge)
		br := clone(old)
		br.Ports = slices.Sorted(slices.Values(append(slices.Clone(old.Ports), port.UUID)))
		b.Bridges = append(b.Bridges, ovsdb.Diff[ovsdb.Bridge]{Old: old, New: br})
	}
	edit(port, iface)
	if iface.OFPort != nil {
		d.ports[bridge] = max(d.ports[bridge], *iface.OFPort)
	}
	b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{Old: oldPort, New: port})
	b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{Old: oldIface, New: iface})
}

// DeletePort removes a port and its interface.
func (d *Database) DeletePort(name string) *ovsdb.Batch {
	b, one := d.batch(), &ovsdb.Batch{}
	d.deletePort(one, name)
	d.add(b, one)
	return b
}

func (d *Database) deletePort(b *ovsdb.Batch, name string) {
	port := d.view.PortByName(name)
	if port == nil {
		return
	}
	if old := d.view.BridgeOf(port.UUID); old != nil {
		br := clone(old)
		br.Ports = slices.DeleteFunc(slices.Clone(old.Ports), func(id ovsdb.UUID) bool { return id == port.UUID })
		b.Bridges = append(b.Bridges, ovsdb.Diff[ovsdb.Bridge]{Old: old, New: br})
	}
	d.dropPort(b, port)
}

func (d *Database) dropPort(b *ovsdb.Batch, port *ovsdb.Port) {
	for _, id := range port.Interfaces {
		b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{Old: d.view.Interface(id)})
	}
	b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{Old: port})
}

func clone[T any](row *T) *T {
	c := *row
	return &c
}
