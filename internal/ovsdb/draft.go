// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// draft is a view with changes that are not applied yet.
type draft struct {
	roots       drafted[OpenVSwitch]
	bridges     drafted[Bridge]
	ports       drafted[Port]
	interfaces  drafted[Interface]
	controllers drafted[Controller]
	managers    drafted[Manager]
	qos         drafted[QoS]
	queues      drafted[Queue]
	mirrors     drafted[Mirror]
}

// drafted is one table of it. Rows are those before; changed rows are copies, nil for one that is gone.
type drafted[T any] struct {
	table   *table[T]
	rows    map[UUID]*T
	changed map[UUID]*T
}

func newDrafted[T any](t *table[T], rows map[UUID]*T) drafted[T] {
	return drafted[T]{t, rows, map[UUID]*T{}}
}

func newDraft(v *View) *draft {
	s := v.schema
	return &draft{
		newDrafted(&s.root, v.root.rows), newDrafted(&s.bridge, v.bridges.rows), newDrafted(&s.port, v.ports.rows),
		newDrafted(&s.iface, v.interfaces.rows), newDrafted(&s.controller, v.controllers.rows),
		newDrafted(&s.manager, v.managers.rows), newDrafted(&s.qos, v.qos.rows), newDrafted(&s.queue, v.queues.rows),
		newDrafted(&s.mirror, v.mirrors.rows),
	}
}

func (d *draft) change(o *op, id UUID, names map[string]UUID) error {
	switch o.table {
	case d.roots.table.name:
		return d.roots.change(o, id, names)
	case d.bridges.table.name:
		return d.bridges.change(o, id, names)
	case d.ports.table.name:
		return d.ports.change(o, id, names)
	case d.interfaces.table.name:
		return d.interfaces.change(o, id, names)
	case d.controllers.table.name:
		return d.controllers.change(o, id, names)
	case d.managers.table.name:
		return d.managers.change(o, id, names)
	case d.qos.table.name:
		return d.qos.change(o, id, names)
	case d.queues.table.name:
		return d.queues.change(o, id, names)
	case d.mirrors.table.name:
		return d.mirrors.change(o, id, names)
	}
	return fmt.Errorf("table %s is not read", o.table)
}

func (d *draft) taken(table, name string) bool {
	switch table {
	case d.bridges.table.name:
		return d.bridges.any(func(b *Bridge) bool { return b.Name == name })
	case d.ports.table.name:
		return d.ports.any(func(p *Port) bool { return p.Name == name })
	}
	return false
}

// collect removes rows that nothing refers to any more, as the database does.
func (d *draft) collect() {
	bridges, ports, interfaces, controllers, mirrors := map[UUID]bool{}, map[UUID]bool{}, map[UUID]bool{}, map[UUID]bool{}, map[UUID]bool{}
	enter := func(set map[UUID]bool, ids []UUID) {
		for _, id := range ids {
			set[id] = true
		}
	}
	for _, r := range d.roots.all() {
		enter(bridges, r.Bridges)
	}
	d.bridges.keep(bridges)
	for _, b := range d.bridges.all() {
		enter(ports, b.Ports)
		enter(controllers, b.Controllers)
		enter(mirrors, b.Mirrors)
	}
	d.ports.keep(ports)
	d.controllers.keep(controllers)
	d.mirrors.keep(mirrors)
	d.unmirror(ports)
	for _, p := range d.ports.all() {
		enter(interfaces, p.Interfaces)
	}
	d.interfaces.keep(interfaces)
}

// unmirror takes ports that are gone out of mirrors.
func (d *draft) unmirror(ports map[UUID]bool) {
	gone := func(id UUID) bool { return !ports[id] }
	for id, m := range d.mirrors.all() {
		left := *m
		left.SelectSrc, left.SelectDst = slices.DeleteFunc(slices.Clone(m.SelectSrc), gone), slices.DeleteFunc(slices.Clone(m.SelectDst), gone)
		if gone(m.Output) {
			left.Output = ""
		}
		if len(left.SelectSrc) != len(m.SelectSrc) || len(left.SelectDst) != len(m.SelectDst) || left.Output != m.Output {
			d.mirrors.changed[id] = &left
		}
	}
}

func (d *draft) batch() *Batch {
	return &Batch{
		OpenVSwitch: d.roots.diffs(), Bridges: d.bridges.diffs(), Ports: d.ports.diffs(), Interfaces: d.interfaces.diffs(),
		Controllers: d.controllers.diffs(), Managers: d.managers.diffs(), QoS: d.qos.diffs(), Queues: d.queues.diffs(),
		Mirrors: d.mirrors.diffs(),
	}
}

func (d *drafted[T]) all() map[UUID]*T {
	out := maps.Clone(d.rows)
	maps.Copy(out, d.changed)
	maps.DeleteFunc(out, func(_ UUID, row *T) bool { return row == nil })
	return out
}

func (d *drafted[T]) any(is func(*T) bool) bool {
	for _, row := range d.all() {
		if is(row) {
			return true
		}
	}
	return false
}

func (d *drafted[T]) keep(referred map[UUID]bool) {
	for id := range d.all() {
		if !referred[id] {
			d.changed[id] = nil
		}
	}
}

func (d *drafted[T]) diffs() []Diff[T] {
	var out []Diff[T]
	for id, row := range d.changed {
		if old := d.rows[id]; (old != nil || row != nil) && !reflect.DeepEqual(old, row) {
			out = append(out, Diff[T]{old, row})
		}
	}
	d.table.sort(out)
	return out
}

func (d *drafted[T]) change(o *op, id UUID, names map[string]UUID) error {
	if o.kind == "delete" {
		d.changed[id] = nil
		return nil
	}
	row := d.changed[id]
	if row == nil {
		row = new(T)
		if old := d.rows[id]; old != nil {
			*row = *old
		} else if o.kind != "insert" {
			return &TxError{Kind: ErrConflict, What: o.what, Detail: "the row is gone"}
		}
		*d.table.uuid(row) = id
	}
	for name, value := range o.row {
		v, err := plain(value, names)
		if err == nil {
			err = d.set(row, name, v)
		}
		if err != nil {
			return err
		}
	}
	for _, m := range o.mutations {
		v, err := plain(m.Value, names)
		if err == nil {
			err = d.mutate(row, m, v)
		}
		if err != nil {
			return err
		}
	}
	d.changed[id] = row
	return nil
}

// set gives a column a value in the notation of RFC 7047.
func (d *drafted[T]) set(row *T, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	c, ok := d.table.columns[name]
	if !ok {
		return nil // not read
	}
	return c.decode(row, &scanner{text: text})
}

func (d *drafted[T]) mutate(row *T, m wire.Mutation, value any) error {
	c, ok := d.table.columns[m.Column]
	if !ok {
		return nil
	}
	before, err := plain(c.encode(row), nil)
	if err != nil {
		return err
	}
	kind, have := members(before)
	_, change := members(value)
	// Keys decide in maps, and a set of keys deletes from a map too.
	key := func(e any) string {
		if pair, ok := e.([]any); ok && kind == "map" && len(pair) == 2 {
			e = pair[0]
		}
		return fmt.Sprint(e)
	}
	index := map[string]bool{}
	for _, e := range have {
		index[key(e)] = true
	}
	switch m.Mutator {
	case wire.MutateOperationInsert:
		for _, e := range change {
			if !index[key(e)] {
				have = append(have, e)
			}
		}
	case wire.MutateOperationDelete:
		gone := map[string]bool{}
		for _, e := range change {
			gone[key(e)] = true
		}
		have = slices.DeleteFunc(have, func(e any) bool { return gone[key(e)] })
	default:
		return fmt.Errorf("mutator %s is not known", m.Mutator)
	}
	return d.set(row, m.Column, []any{kind, have})
}

// plain turns a value into JSON's own types, with the names of new rows replaced by their identities.
func plain(value any, names map[string]UUID) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return resolve(v, names), nil
}

func resolve(v any, names map[string]UUID) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	if len(list) == 2 && list[0] == "named-uuid" {
		name, _ := list[1].(string)
		if id, ok := names[name]; ok {
			name = string(id)
		}
		return []any{"uuid", name}
	}
	for i := range list {
		list[i] = resolve(list[i], names)
	}
	return list
}

// members are the elements of a set or the pairs of a map; a value by itself is a set of one.
func members(v any) (kind string, elements []any) {
	if list, ok := v.([]any); ok && len(list) == 2 && (list[0] == "set" || list[0] == "map") {
		elements, _ = list[1].([]any)
		return list[0].(string), elements
	}
	return "set", []any{v}
}
