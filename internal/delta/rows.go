// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Rows is for rows of the database what a [Tracker] is for flows. What the database has is in the view that [Rows.Diff] is given.
type Rows struct {
	want map[world.Object]WantedRows
	// pending owners have rows that may not be as wanted yet.
	pending map[world.Object]bool
}

// WantedRows are the rows that an owner wants.
type WantedRows struct {
	Always []ovsdb.Spec // flows refer to them, so they come first
	Until  []ovsdb.Spec // while flows of the owner are not in place
	After  []ovsdb.Spec // once they are
	// Waiting says what is still to come, in words.
	Waiting string
}

// NewRows returns the rows of a database of which nothing is wanted.
func NewRows() *Rows {
	return &Rows{want: map[world.Object]WantedRows{}, pending: map[world.Object]bool{}}
}

// Want replaces everything that an owner wants. It is pending until Done.
func (r *Rows) Want(owner world.Object, want WantedRows) {
	if len(want.Always)+len(want.Until)+len(want.After) == 0 && want.Waiting == "" {
		delete(r.want, owner)
		delete(r.pending, owner)
		return
	}
	r.want[owner], r.pending[owner] = want, true
}

// Wanted returns what an owner wants.
func (r *Rows) Wanted(owner world.Object) (want WantedRows, ok bool) {
	want, ok = r.want[owner]
	return want, ok
}

// Retry has the rows of an owner compared again. It returns whether it wants any.
func (r *Rows) Retry(owner world.Object) bool {
	_, ok := r.want[owner]
	if ok {
		r.pending[owner] = true
	}
	return ok
}

// Done says that the rows of an owner are as wanted.
func (r *Rows) Done(owner world.Object) { delete(r.pending, owner) }

// Pending returns whether the rows of an owner may not be as wanted yet.
func (r *Rows) Pending(owner world.Object) bool { return r.pending[owner] }

// Owners returns the owners whose rows may not be as wanted yet, sorted.
func (r *Rows) Owners() []world.Object {
	return world.SortedObjects(r.pending)
}

// Diff returns the transaction that an owner still needs. Whether its flows are in place decides which of its rows count.
func (r *Rows) Diff(view *ovsdb.View, owner world.Object, applied bool) *ovsdb.Tx {
	want := r.want[owner]
	tx := ovsdb.DiffRows(view, want.Always...)
	if !applied {
		tx.Add(want.Until...)
	} else if tx.Len() == 0 {
		tx.Add(want.After...)
	}
	return tx
}
