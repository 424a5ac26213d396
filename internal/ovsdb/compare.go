// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// RowChange is a row that differs between two views, for people and programs.
type RowChange struct {
	ID     UUID           `json:"-"`
	Change string         `json:"change"` // added, removed or changed
	Table  string         `json:"table"`
	Name   string         `json:"name"`
	Bridge string         `json:"bridge,omitempty"`
	Values []ColumnChange `json:"values,omitempty"`
}

// ColumnChange is a value of it. A pair of a map is called "column:key".
type ColumnChange struct {
	Column string `json:"column"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Compare lists the rows that differ. References between rows are left out, because the rows that they lead to are listed,
// and so is what ovs-vswitchd writes.
func Compare(before, after *View) []RowChange {
	s := before.schema
	bridgeOf := func(port UUID) string {
		for _, v := range []*View{after, before} {
			if b := v.BridgeOf(port); b != nil {
				return b.Name
			}
		}
		return ""
	}
	with := func(has func(*Bridge) []UUID, id UUID) string {
		for _, v := range []*View{after, before} {
			for b := range v.Bridges() {
				if slices.Contains(has(b), id) {
					return b.Name
				}
			}
		}
		return ""
	}
	ofController := func(id UUID) string { return with(func(b *Bridge) []UUID { return b.Controllers }, id) }
	ofMirror := func(id UUID) string { return with(func(b *Bridge) []UUID { return b.Mirrors }, id) }
	ofInterface := func(id UUID) string {
		for _, v := range []*View{after, before} {
			if p := v.PortOf(id); p != nil {
				return bridgeOf(p.UUID)
			}
		}
		return ""
	}
	var out []RowChange
	rows(&out, &s.root, before.root.rows, after.root.rows, func(*OpenVSwitch) (string, string) { return "", "" })
	rows(&out, &s.manager, before.managers.rows, after.managers.rows, func(m *Manager) (string, string) { return m.Target, "" })
	rows(&out, &s.bridge, before.bridges.rows, after.bridges.rows, func(b *Bridge) (string, string) { return b.Name, b.Name })
	rows(&out, &s.controller, before.controllers.rows, after.controllers.rows,
		func(c *Controller) (string, string) { return c.Target, ofController(c.UUID) })
	rows(&out, &s.port, before.ports.rows, after.ports.rows, func(p *Port) (string, string) { return p.Name, bridgeOf(p.UUID) })
	rows(&out, &s.iface, before.interfaces.rows, after.interfaces.rows,
		func(i *Interface) (string, string) { return i.Name, ofInterface(i.UUID) })
	rows(&out, &s.qos, before.qos.rows, after.qos.rows, func(q *QoS) (string, string) { return string(q.UUID), "" })
	rows(&out, &s.mirror, before.mirrors.rows, after.mirrors.rows, func(m *Mirror) (string, string) { return m.Name, ofMirror(m.UUID) })
	rows(&out, &s.queue, before.queues.rows, after.queues.rows, func(q *Queue) (string, string) { return string(q.UUID), "" })
	slices.SortStableFunc(out, func(a, b RowChange) int { return cmp.Compare(a.Bridge, b.Bridge) })
	return out
}

// leftOut are columns that say nothing about what was decided.
func leftOut(column string) bool {
	return slices.Contains([]string{
		"bridges", "manager_options", "ports", "controller", "interfaces", "queues", "mirrors", // references
		"cur_cfg", "ovs_version", "datapath_types", "iface_types", "datapath_id", "ofport", "mtu", "error", "is_connected", // the switch's
		"name", "target", // in the name of the row
	}, column)
}

func rows[T any](out *[]RowChange, t *table[T], before, after map[UUID]*T, name func(*T) (name, bridge string)) {
	ids := maps.Clone(before)
	maps.Copy(ids, after)
	var found []RowChange
	for id, row := range ids {
		c := RowChange{ID: id, Table: t.name, Change: "changed"}
		c.Name, c.Bridge = name(row)
		old, now := before[id], after[id]
		switch {
		case old == nil:
			c.Change, old = "added", new(T)
		case now == nil:
			c.Change, now = "removed", new(T)
		case old == now:
			continue
		}
		for _, column := range t.columnNames() {
			if !leftOut(column) {
				c.Values = append(c.Values, values(column, t.columns[column], old, now)...)
			}
		}
		if c.Change != "changed" || len(c.Values) > 0 {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b RowChange) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	*out = append(*out, found...)
}

func values[T any](name string, c column[T], old, now *T) []ColumnChange {
	before, after := text(name, c.encode(old)), text(name, c.encode(now))
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var out []ColumnChange
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if before[k] != after[k] {
			out = append(out, ColumnChange{k, before[k], after[k]})
		}
	}
	return out
}

// text writes a value of a column for people: a map as its pairs, a set with commas. What is empty, 0 or false is not there.
func text(name string, value any) map[string]string {
	v, err := plain(value, nil)
	if err != nil {
		return map[string]string{name: err.Error()}
	}
	out := map[string]string{}
	kind, elements := members(v)
	if kind == "map" {
		for _, e := range elements {
			if pair, ok := e.([]any); ok && len(pair) == 2 {
				out[name+":"+fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
			}
		}
		return out
	}
	parts := make([]string, len(elements))
	for i, e := range elements {
		parts[i] = fmt.Sprint(e)
	}
	slices.Sort(parts)
	if s := strings.Join(parts, ","); s != "" && s != "0" && s != "false" {
		out[name] = s
	}
	return out
}
