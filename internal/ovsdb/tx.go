// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Tx collects changes that are committed together or not at all. It is built from a View and, besides reading it, touches
// nothing; Commit sends it. A Tx may be committed again after a failure, unless the View it was built from is outdated.
type Tx struct {
	// Owner is for whom the changes are, for people who read them. It may be empty.
	Owner string

	view    *View
	checks  []check
	checked map[string]bool
	ops     []*op
	edits   map[UUID]*op
	bridges map[string]Ref // new in this transaction
	prefix  string         // of the names of new rows, when several transactions are sent as one
	text    []string       // of Printed; nil otherwise
	rows    int
	applied bool
	err     error
}

// check is a precondition.
type check struct {
	what string
	wait wire.Operation
}

// op is one operation, or the update and the mutation of one row.
type op struct {
	what      string
	kind      string // insert, edit or delete
	table     string
	id        UUID // of edit and delete
	ref       Ref  // of insert
	row       wire.Row
	mutations []wire.Mutation
}

// Ref stands for a row: one that exists, or one that a Tx is about to insert.
type Ref struct {
	id UUID
	tx *Tx
	n  int
}

// RefTo refers to a row that exists.
func RefTo(id UUID) Ref { return Ref{id: id} }

// MarshalJSON writes the reference as RFC 7047 does. The name of a new row is known only when the transaction is sent.
func (r Ref) MarshalJSON() ([]byte, error) {
	if r.tx == nil {
		return json.Marshal([2]string{"uuid", string(r.id)})
	}
	return json.Marshal([2]string{"named-uuid", r.name()})
}

func (r Ref) name() string { return r.tx.prefix + "row" + strconv.Itoa(r.n) }

// NewTx returns an empty transaction that relies on what the view shows.
func NewTx(view *View) *Tx {
	return &Tx{view: view, checked: map[string]bool{}, edits: map[UUID]*op{}, bridges: map[string]Ref{}}
}

// Len returns the number of operations, preconditions aside.
func (t *Tx) Len() int { return len(t.ops) }

// WaitApplied lets Commit wait until ovs-vswitchd reports to have applied the transaction, as ovs-vsctl does.
func (t *Tx) WaitApplied() { t.applied = true }

// fail remembers the first mistake in building; Commit returns it.
func (t *Tx) fail(kind error, what, detail string) {
	if t.err == nil {
		t.err = &TxError{Kind: kind, What: what, Detail: detail}
	}
}

func (t *Tx) insert(table string, row wire.Row) Ref {
	t.rows++
	ref := Ref{tx: t, n: t.rows}
	t.ops = append(t.ops, &op{what: table + ": insert", kind: "insert", table: table, ref: ref, row: row})
	return ref
}

// edit returns the operation that changes a row, with the precondition that this incarnation of it still exists.
func (t *Tx) edit(table string, id UUID) *op {
	if o := t.edits[id]; o != nil {
		return o
	}
	t.checkExists(table, id)
	o := &op{what: table + " " + string(id) + ": change", kind: "edit", table: table, id: id, row: wire.Row{}}
	t.ops = append(t.ops, o)
	t.edits[id] = o
	return o
}

func (t *Tx) delete(table string, id UUID) {
	t.checkExists(table, id)
	t.ops = append(t.ops, &op{what: table + " " + string(id) + ": delete", kind: "delete", table: table, id: id})
}

func (t *Tx) checkExists(table string, id UUID) {
	row := wire.Row{"_uuid": wire.UUID{GoUUID: string(id)}}
	t.check(table+" "+string(id)+": row exists", table, wire.WaitConditionEqual, whereUUID(id), []string{"_uuid"}, row)
}

// checkFree is the precondition that no row has the name.
func (t *Tx) checkFree(table, name string) {
	where := []wire.Condition{wire.NewCondition("name", wire.ConditionEqual, name)}
	t.check(table+" "+name+": name is free", table, wire.WaitConditionNotEqual, where, []string{"name"}, wire.Row{"name": name})
}

func (t *Tx) check(what, table string, until wire.WaitCondition, where []wire.Condition, columns []string, row wire.Row) {
	if t.checked[what] {
		return
	}
	t.checked[what] = true
	now := 0 // ms to wait for it to become true
	t.checks = append(t.checks, check{what, wire.Operation{
		Op: wire.OperationWait, Table: table, Timeout: &now, Until: string(until), Where: where, Columns: columns, Rows: []wire.Row{row},
	}})
}

func whereUUID(id UUID) []wire.Condition {
	return []wire.Condition{wire.NewCondition("_uuid", wire.ConditionEqual, wire.UUID{GoUUID: string(id)})}
}

// merge sets keys of a map column and leaves all others alone.
func (o *op) merge(column string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	// Insert does not replace a pair whose key is there, so the key goes first.
	o.remove(column, slices.Sorted(maps.Keys(m))...)
	o.mutations = append(o.mutations, wire.Mutation{Column: column, Mutator: wire.MutateOperationInsert, Value: encodeMap(m)})
}

// remove removes keys of a map column, if they are there.
func (o *op) remove(column string, keys ...string) {
	if len(keys) == 0 {
		return
	}
	o.mutations = append(o.mutations, wire.Mutation{Column: column, Mutator: wire.MutateOperationDelete, Value: setOf(keys)})
}

func (o *op) mutate(column string, m wire.Mutator, value any) {
	o.mutations = append(o.mutations, wire.Mutation{Column: column, Mutator: m, Value: value})
}

func setOf[E any](elements []E) wire.OvsSet {
	set := emptySet()
	for _, e := range elements {
		set.GoSet = append(set.GoSet, encodeAtom(e))
	}
	return set
}

// step is an operation as it is sent, with what it means.
type step struct {
	what  string
	check bool
	tx    *Tx
	wire  wire.Operation
}

// steps returns the preconditions first: they are about the database as it was before the transaction.
func steps(txs []*Tx) []step {
	var all []step
	for _, t := range txs {
		for _, c := range t.checks {
			all = append(all, step{c.what, true, t, c.wait})
		}
	}
	for _, t := range txs {
		for _, o := range t.ops {
			for _, w := range o.wire() {
				all = append(all, step{o.what, false, t, w})
			}
		}
	}
	return all
}

func (o *op) wire() []wire.Operation {
	switch o.kind {
	case "insert":
		return []wire.Operation{{Op: wire.OperationInsert, Table: o.table, UUIDName: o.ref.name(), Row: o.row}}
	case "delete":
		return []wire.Operation{{Op: wire.OperationDelete, Table: o.table, Where: whereUUID(o.id)}}
	}
	var ops []wire.Operation
	if len(o.row) > 0 {
		ops = append(ops, wire.Operation{Op: wire.OperationUpdate, Table: o.table, Where: whereUUID(o.id), Row: o.row})
	}
	if len(o.mutations) > 0 {
		ops = append(ops, wire.Operation{Op: wire.OperationMutate, Table: o.table, Where: whereUUID(o.id), Mutations: o.mutations})
	}
	return ops
}

// Printed returns a transaction that has nothing but what JSON returns now. A commit gives new rows other names.
func (t *Tx) Printed() *Tx {
	text, err := t.JSON()
	return &Tx{Owner: t.Owner, text: append([]string{}, text...), err: err}
}

// JSON returns the operations of the transaction as they are sent, the preconditions first.
func (t *Tx) JSON() ([]string, error) {
	if t.text != nil {
		return t.text, t.err
	}
	var out []string
	for _, s := range steps([]*Tx{t}) {
		text, err := json.Marshal(s.wire)
		if err != nil {
			return nil, err
		}
		out = append(out, string(text))
	}
	return out, t.err
}

// verify is the precondition that columns of a row are still as the view shows them.
func verify[T any](t *Tx, tab *table[T], id UUID, row *T, columns []string) {
	what := fmt.Sprintf("%s %s: %v unchanged", tab.name, id, columns)
	if row == nil {
		t.fail(ErrConflict, what, "the row is gone")
		return
	}
	want := wire.Row{}
	for _, name := range columns {
		c, ok := tab.columns[name]
		if !ok {
			t.fail(ErrConstraint, what, "column "+name+" is not read")
			return
		}
		want[name] = c.encode(row)
	}
	t.check(what, tab.name, wire.WaitConditionEqual, whereUUID(id), columns, want)
}
