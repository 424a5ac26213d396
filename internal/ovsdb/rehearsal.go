// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
)

// Rehearsal takes the place of a Client where nothing may be written: transactions change a copy of the rows, and come
// back as batches as if the database and ovs-vswitchd had done their part. New interfaces get port numbers and new bridges
// datapath ids, all of which are made up.
type Rehearsal struct {
	// OnCommit, if set, is told what a commit changed, before anybody else.
	OnCommit func(*Batch)

	queue   queue
	changes chan *Batch

	mu     sync.Mutex
	view   *View
	made   int // rows
	ports  int // numbers
	owners map[UUID]string
}

// firstMadeUp is the number of the first new port, and below it are those that follow: the highest that a switch gives.
const firstMadeUp = 0xfeff

// NewRehearsal begins with the rows of the first batch of a Client.
func NewRehearsal(initial *Batch) *Rehearsal {
	r := &Rehearsal{
		queue: queue{ready: make(chan struct{}, 1)}, changes: make(chan *Batch), view: NewView(), ports: firstMadeUp,
		owners: map[UUID]string{},
	}
	r.view.Apply(initial)
	r.queue.push(initial)
	return r
}

// ReadAll runs a client until it has the rows, and returns them: what a Rehearsal begins with.
func ReadAll(ctx context.Context, c interface {
	Run(ctx context.Context)
	Changes() <-chan *Batch
},
) (*Batch, error) {
	ctx, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { defer close(over); c.Run(ctx) }()
	defer func() { stop(); <-over }()
	select {
	case b, ok := <-c.Changes():
		switch {
		case !ok:
			return nil, context.Cause(ctx)
		case b.Kind == Disconnected:
			return nil, b.Err
		}
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Changes returns the stream of batches; the first is the one it began with.
func (r *Rehearsal) Changes() <-chan *Batch { return r.changes }

// Run delivers them until ctx ends.
func (r *Rehearsal) Run(ctx context.Context) { r.queue.pump(ctx, r.changes) }

// CommitAll makes the changes of transactions, each of which succeeds or fails by itself.
func (r *Rehearsal) CommitAll(_ context.Context, txs []*Tx) (Result, []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := make([]error, len(txs))
	d := newDraft(r.view)
	for i, tx := range txs {
		tx.prefix = "t" + strconv.Itoa(i)
		errs[i] = tx.err
		if tx.err == nil {
			errs[i] = r.commit(d, tx)
		}
	}
	d.collect()
	r.assignNumbers(d)
	b := d.batch()
	b.Seq, b.Kind = r.view.seq+1, Update
	r.view.Apply(b)
	if r.OnCommit != nil {
		r.OnCommit(b)
	}
	r.queue.push(b)
	return Result{Seq: b.Seq}, errs
}

func (r *Rehearsal) commit(d *draft, tx *Tx) error {
	names := map[string]UUID{} // rows may refer to others that come later
	for _, o := range tx.ops {
		if o.kind != "insert" {
			continue
		}
		if name, _ := o.row["name"].(string); name != "" && d.taken(o.table, name) {
			return &TxError{Kind: ErrConflict, What: o.table + " " + name + ": name is free"}
		}
		r.made++
		names[o.ref.name()] = UUID(fmt.Sprintf("00000000-0000-0000-0000-%012x", r.made))
	}
	for _, o := range tx.ops {
		id := o.id
		if o.kind == "insert" {
			id = names[o.ref.name()]
		}
		if err := d.change(o, id, names); err != nil {
			return fmt.Errorf("rehearsing %s: %w", o.what, err)
		}
		r.owners[id] = tx.Owner
	}
	return nil
}

// assignNumbers does the part of ovs-vswitchd: numbers in the order in which rows were made.
func (r *Rehearsal) assignNumbers(d *draft) {
	for id, b := range d.bridges.changed {
		if b != nil && d.bridges.rows[id] == nil && b.DatapathID == "" {
			b.DatapathID = fmt.Sprintf("%016x", r.made)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.interfaces.changed)) {
		if i := d.interfaces.changed[id]; i != nil && d.interfaces.rows[id] == nil && i.OFPort == nil {
			n := r.ports
			r.ports--
			i.OFPort = &n
		}
	}
}

// MadeUp says whether a port number stands for one that the switch has not given yet.
func (r *Rehearsal) MadeUp(ofport int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ofport > r.ports && ofport <= firstMadeUp
}

// Owner tells for whom a row was changed last.
func (r *Rehearsal) Owner(id UUID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owners[id]
}

// Look shows the rows as they are now.
func (r *Rehearsal) Look(at func(*View)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at(r.view)
}

// Whole returns the rows of a view as a client that connects gets them: what another agent over the same database begins with.
func Whole(v *View) *Batch {
	return &Batch{
		Seq: 1, Kind: Initial, OpenVSwitch: appeared(v.root), Bridges: appeared(v.bridges), Ports: appeared(v.ports),
		Interfaces: appeared(v.interfaces), Controllers: appeared(v.controllers), Managers: appeared(v.managers),
		QoS: appeared(v.qos), Queues: appeared(v.queues), Mirrors: appeared(v.mirrors),
	}
}

func appeared[T any](s store[T]) []Diff[T] {
	out := make([]Diff[T], 0, len(s.rows))
	for _, row := range s.rows {
		out = append(out, Diff[T]{New: row})
	}
	return out
}
