// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Rows are the rows of a database, by table, UUID and column. A row has its own UUID, as text, in the column _uuid; a column that is
// not there has no value.
type Rows map[string]map[string]map[string]any

func (r Rows) clone() Rows {
	out := Rows{}
	for table, rows := range r {
		out[table] = map[string]map[string]any{}
		for id, row := range rows {
			out[table][id] = maps.Clone(row)
		}
	}
	return out
}

// Database is an ovsdb-server with the database of Open vSwitch. It takes transactions whole or not at all, removes rows that nothing
// refers to, and tells monitors what changed. It knows no locks and forgets what it told to a connection that is gone: a client that
// comes back gets all rows.
type Database struct {
	RPC

	// Mu guards what follows. Tests may change rows by hand, with the lock, if they call Changed afterwards.
	Mu   sync.Mutex
	Rows Rows
	// AfterCommit, if set, does the part of ovs-vswitchd after a transaction was answered. It is called with the lock.
	AfterCommit func()

	schema       map[string]map[string]kind
	made         int // UUIDs
	transactions int
	monitors     map[*RPCConn]*rowMonitor
}

// rowMonitor is what a connection wants to know, and knows.
type rowMonitor struct {
	name    json.RawMessage
	since   bool // it asked with monitor_cond_since
	columns map[string][]string
	known   Rows
}

// NewDatabase has one row, that of the switch.
func NewDatabase() *Database {
	d := &Database{Rows: Rows{}, schema: schema(), monitors: map[*RPCConn]*rowMonitor{}}
	for table := range d.schema {
		d.Rows[table] = map[string]map[string]any{}
	}
	root := RowID("root")
	d.Rows["Open_vSwitch"][root] = map[string]any{
		"_uuid": root, "ovs_version": "3.1.0", "datapath_types": Set("netdev", "system"), "iface_types": Set("geneve", "gre", "internal", "patch", "vxlan"),
	}
	d.Handle = d.handle
	d.Gone = func(c *RPCConn) {
		d.Mu.Lock()
		defer d.Mu.Unlock()
		delete(d.monitors, c)
	}
	d.Done = func(_ *RPCConn, method string) {
		if method == "transact" && d.AfterCommit != nil {
			d.Mu.Lock()
			defer d.Mu.Unlock()
			d.AfterCommit()
			d.Changed()
		}
	}
	return d
}

// NewID makes the UUID of a row that is new.
func (d *Database) NewID(table string) string {
	d.made++
	return RowID(fmt.Sprint(table, d.made))
}

func (d *Database) handle(c *RPCConn, method string, params []json.RawMessage) (any, string) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	switch {
	case method == "echo":
		return params, ""
	case method == "transact" && len(params) > 0:
		return d.transact(params[1:]), ""
	case method == "monitor_cond_since" && len(params) == 4, method == "monitor_cond" && len(params) == 3:
		return d.monitor(c, method == "monitor_cond_since", params)
	}
	return nil, "unknown method"
}

func (d *Database) monitor(c *RPCConn, since bool, params []json.RawMessage) (any, string) {
	m := &rowMonitor{name: params[1], since: since, columns: map[string][]string{}, known: Rows{}}
	var tables map[string]struct{ Columns []string }
	if err := json.Unmarshal(params[2], &tables); err != nil {
		return nil, err.Error()
	}
	for table, request := range tables {
		for _, column := range request.Columns {
			if d.schema[table][column] == "" {
				return nil, fmt.Sprintf("unknown column %s of table %s", column, table)
			}
		}
		m.columns[table] = request.Columns
	}
	d.monitors[c] = m
	all := d.changes(m, "initial")
	if !since {
		return all, ""
	}
	return []any{false, d.transaction(), all}, ""
}

// transaction is the id of the newest.
func (d *Database) transaction() string { return RowID(fmt.Sprint("transaction ", d.transactions)) }

// Changed tells monitors what is different from what they know. Whoever calls it has the lock.
func (d *Database) Changed() {
	d.transactions++
	for c, m := range d.monitors {
		updates := d.changes(m, "insert")
		if len(updates) == 0 {
			continue
		}
		if m.since {
			c.Notify("update3", m.name, d.transaction(), updates)
		} else {
			c.Notify("update2", m.name, updates)
		}
	}
}

// changes are the differences between what a monitor knows and what is there; from then on it knows.
func (d *Database) changes(m *rowMonitor, appeared string) map[string]map[string]any {
	all := map[string]map[string]any{}
	tell := func(table, id, what string, row any) {
		if all[table] == nil {
			all[table] = map[string]any{}
		}
		all[table][id] = map[string]any{what: row}
	}
	for table, columns := range m.columns {
		for id := range m.known[table] {
			if d.Rows[table][id] == nil {
				tell(table, id, "delete", nil)
			}
		}
		known := map[string]map[string]any{}
		for id, row := range d.Rows[table] {
			before, there := m.known[table][id]
			change := map[string]any{}
			for _, c := range columns {
				if k := d.schema[table][c]; !same(orEmpty(before[c], k), orEmpty(row[c], k)) {
					change[c] = difference(k, orEmpty(before[c], k), orEmpty(row[c], k))
				}
			}
			switch {
			case !there:
				tell(table, id, appeared, change)
			case len(change) > 0:
				tell(table, id, "modify", change)
			}
			known[id] = maps.Clone(row)
		}
		m.known[table] = known
	}
	return all
}

func orEmpty(v any, k kind) any {
	if v == nil {
		return k.empty()
	}
	return v
}

// difference is a change as update2 and update3 tell it: the new value, or of sets and maps what is in one of them only.
func difference(k kind, before, after any) any {
	switch k {
	case set:
		var out []any
		for _, e := range slices.Concat(Elements(before), Elements(after)) {
			if !contains(before, e) || !contains(after, e) {
				out = append(out, e)
			}
		}
		return Set(out...)
	case pairs:
		was, is := Entries(before), Entries(after)
		diff := map[string]any{}
		for key, v := range was {
			if _, stays := is[key]; !stays {
				diff[key] = v
			}
		}
		for key, v := range is {
			if old, there := was[key]; !there || !same(old, v) {
				diff[key] = v
			}
		}
		return mapLike(before, after, diff)
	}
	return after
}

func contains(v, element any) bool {
	return slices.ContainsFunc(Elements(v), func(e any) bool { return same(e, element) })
}
