// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// operation is one of a transaction, as RFC 7047 has it.
type operation struct {
	Op, Table, Until string
	Name             string `json:"uuid-name"`
	Where            [][]any
	Columns          []string
	Row              map[string]any
	Rows             []map[string]any
	Mutations        [][]any
}

// refused is why a transaction fails.
type refused struct {
	Error   string `json:"error"`
	Details string `json:"details"`
}

// transact runs a transaction: all of it, or nothing. The results are those of the server: one for each operation up to the one that
// fails, null for those behind it, and one more if the whole cannot be committed.
func (d *Database) transact(texts []json.RawMessage) []any {
	before := d.Rows.clone()
	results := make([]any, len(texts))
	fail := func(i int, r *refused) []any {
		for table := range d.Rows { // tests hold on to the maps
			clear(d.Rows[table])
			maps.Copy(d.Rows[table], before[table])
		}
		if i == len(results) {
			return slices.Concat(results, []any{r})
		}
		results[i] = r
		return results
	}
	ops, names := make([]operation, len(texts)), map[string]string{}
	for i, text := range texts {
		if err := json.Unmarshal(text, &ops[i]); err != nil {
			return fail(i, &refused{"syntax error", err.Error()})
		}
		if ops[i].Op == "insert" { // rows may refer to others that come later
			names[ops[i].Name] = d.NewID(ops[i].Table)
		}
	}
	for i, op := range ops {
		result, r := d.operate(op, names)
		if r != nil {
			return fail(i, r)
		}
		results[i] = result
	}
	if r := d.check(); r != nil {
		return fail(len(results), r)
	}
	d.collect()
	d.Changed()
	return results
}

func (d *Database) operate(op operation, names map[string]string) (any, *refused) {
	if d.schema[op.Table] == nil {
		return nil, &refused{"syntax error", "No table named " + op.Table + "."}
	}
	found, r := d.where(op)
	if r != nil {
		return nil, r
	}
	for column := range op.Row {
		if d.schema[op.Table][column] == "" {
			return nil, &refused{"unknown column", op.Table + " " + column}
		}
	}
	switch op.Op {
	case "wait":
		return struct{}{}, d.wait(op, found)
	case "select":
		rows := make([]map[string]any, 0, len(found))
		for _, row := range found {
			rows = append(rows, d.project(op.Table, row, op.Columns))
		}
		return map[string]any{"rows": rows}, nil
	case "insert":
		id := names[op.Name]
		row := map[string]any{"_uuid": id}
		for k, v := range op.Row {
			row[k] = resolve(v, names)
		}
		d.Rows[op.Table][id] = row
		return map[string]any{"uuid": Ref(id)}, nil
	case "update":
		for _, row := range found {
			for k, v := range op.Row {
				row[k] = resolve(v, names)
			}
		}
	case "mutate":
		for _, row := range found {
			for _, m := range op.Mutations {
				if r := d.mutate(op.Table, row, m, names); r != nil {
					return nil, r
				}
			}
		}
	case "delete":
		for _, row := range found {
			delete(d.Rows[op.Table], fmt.Sprint(row["_uuid"]))
		}
	default:
		return nil, &refused{"not supported", op.Op}
	}
	return map[string]any{"count": len(found)}, nil
}

func (d *Database) mutate(table string, row map[string]any, m []any, names map[string]string) *refused {
	if len(m) != 3 || d.schema[table][fmt.Sprint(m[0])] == "" {
		return &refused{"unknown column", fmt.Sprint(table, " ", m)}
	}
	column := fmt.Sprint(m[0])
	switch k := d.schema[table][column]; {
	case m[1] == "+=" && k == number:
		n, _ := row[column].(float64)
		by, _ := m[2].(float64)
		row[column] = n + by
	case (m[1] == "insert" || m[1] == "delete") && (k == set || k == pairs || k == optional):
		row[column] = Mutate(row[column], m[1] == "insert", resolve(m[2], names))
	default:
		return &refused{"constraint violation", fmt.Sprint("mutator ", m[1], " of ", table, " ", column)}
	}
	return nil
}

// where finds the rows of an operation. Only equality is known.
func (d *Database) where(op operation) ([]map[string]any, *refused) {
	var found []map[string]any
	for _, id := range slices.Sorted(maps.Keys(d.Rows[op.Table])) {
		row, match := d.Rows[op.Table][id], true
		for _, c := range op.Where {
			if len(c) != 3 || c[1] != "==" {
				return nil, &refused{"not supported", fmt.Sprint("condition ", c)}
			}
			match = match && same(d.column(op.Table, row, fmt.Sprint(c[0])), c[2])
		}
		if match {
			found = append(found, row)
		}
	}
	return found, nil
}

// column is a value as it is sent.
func (d *Database) column(table string, row map[string]any, name string) any {
	if name == "_uuid" {
		return Ref(fmt.Sprint(row["_uuid"]))
	}
	return orEmpty(row[name], d.schema[table][name])
}

func (d *Database) project(table string, row map[string]any, columns []string) map[string]any {
	out := map[string]any{}
	for _, c := range columns {
		out[c] = d.column(table, row, c)
	}
	return out
}

// wait compares rows with those that are found. Nobody waits for them to become so: that has timed out.
func (d *Database) wait(op operation, found []map[string]any) *refused {
	equal := len(found) == len(op.Rows)
	for _, row := range found {
		have := d.project(op.Table, row, op.Columns)
		equal = equal && slices.ContainsFunc(op.Rows, func(want map[string]any) bool {
			for _, c := range op.Columns {
				if !same(orEmpty(want[c], d.schema[op.Table][c]), have[c]) {
					return false
				}
			}
			return true
		})
	}
	if equal != (op.Until == "==") {
		return &refused{"timed out", "\"wait\" timed out"}
	}
	return nil
}

// check finds references to rows that are not there, and names that are there twice.
func (d *Database) check() *refused {
	for _, ref := range references() {
		for id, row := range d.Rows[ref.table] {
			for _, to := range ref.rows(row) {
				if d.Rows[ref.to][to] == nil {
					return &refused{"referential integrity violation", fmt.Sprintf("%s %s refers by %s to %s %s, which is not there", ref.table, id, ref.column, ref.to, to)}
				}
			}
		}
	}
	for table := range d.schema {
		names := map[string]bool{}
		for _, row := range d.Rows[table] {
			if name := Text(row["name"]); unique(table) && names[name] {
				return &refused{"constraint violation", fmt.Sprintf("two rows of %s have the name %s", table, name)}
			} else if unique(table) {
				names[name] = true
			}
		}
	}
	return nil
}

// collect removes rows that nothing refers to, and weak references to what is removed.
func (d *Database) collect() {
	for removed := true; removed; {
		removed = false
		used := map[string]bool{}
		for _, ref := range references() {
			for _, row := range d.Rows[ref.table] {
				for _, to := range ref.rows(row) {
					used[to] = true
				}
			}
		}
		for table, rows := range d.Rows {
			for id := range rows {
				if !kept(table) && !used[id] {
					delete(rows, id)
					removed = true
				}
			}
		}
	}
	for _, ref := range weak() {
		for _, row := range d.Rows[ref.table] {
			for _, to := range ref.rows(row) {
				if d.Rows[ref.to][to] == nil {
					row[ref.column] = Mutate(row[ref.column], false, Ref(to))
				}
			}
		}
	}
}

// rows are those that the column of a row refers to.
func (r reference) rows(row map[string]any) []string {
	v := row[r.column]
	if _, isMap := tagged(v, "map"); !isMap {
		return Refs(v)
	}
	var out []string
	for _, to := range Entries(v) {
		out = append(out, RefOf(to))
	}
	return out
}

// resolve replaces the names of new rows by their identities.
func resolve(v any, names map[string]string) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	if len(list) == 2 && list[0] == "named-uuid" {
		return Ref(names[fmt.Sprint(list[1])])
	}
	out := make([]any, len(list))
	for i := range list {
		out[i] = resolve(list[i], names)
	}
	return out
}
