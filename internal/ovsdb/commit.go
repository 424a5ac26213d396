// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Result tells what a commit led to.
type Result struct {
	// Seq is the batch in which the changes of the transaction are, or after which they were: a View with this or a later
	// Seq contains them.
	Seq uint64
}

// Commit sends a transaction. An empty one succeeds without asking the server. See the package's errors for what can go
// wrong; ctx bounds the time for the answer and, after WaitApplied, for ovs-vswitchd.
func (c *Client) Commit(ctx context.Context, tx *Tx) (Result, error) {
	if tx.err != nil {
		return Result{}, tx.err
	}
	result, _, err := c.commit(ctx, []*Tx{tx})
	return result, err
}

// CommitAll sends transactions that do not depend on each other as one. When one of them fails, only that one is left out
// and the others are sent again, so that one bad port holds up nobody. It returns an error for each, in order.
func (c *Client) CommitAll(ctx context.Context, txs []*Tx) (Result, []error) {
	errs := make([]error, len(txs))
	var todo []*Tx
	for i, tx := range txs {
		if errs[i] = tx.err; tx.err == nil {
			todo = append(todo, tx)
		}
	}
	set := func(tx *Tx, err error) { errs[slices.Index(txs, tx)] = err }
	for len(todo) > 0 {
		result, failed, err := c.commit(ctx, todo)
		switch {
		case err == nil:
			return result, errs
		case failed != nil:
			set(failed, err)
			todo = slices.DeleteFunc(todo, func(tx *Tx) bool { return tx == failed })
		case errors.Is(err, ErrConstraint) && len(todo) > 1:
			// Found only at the end, by the server, for all together. One by one shows whose it is.
			var last Result
			for _, tx := range todo {
				r, _, err := c.commit(ctx, []*Tx{tx})
				set(tx, err)
				last.Seq = max(last.Seq, r.Seq)
			}
			return last, errs
		default:
			for _, tx := range todo {
				set(tx, err)
			}
			return result, errs
		}
	}
	return Result{}, errs
}

// commit sends transactions as one. It names the one that failed, if one did.
func (c *Client) commit(ctx context.Context, txs []*Tx) (Result, *Tx, error) {
	applied := false
	for i, tx := range txs {
		tx.prefix = "t" + strconv.Itoa(i)
		applied = applied || tx.applied
	}
	all := steps(txs)
	if len(all) == 0 {
		return Result{}, nil, nil
	}
	c.mu.Lock()
	s, root := c.session, c.root
	c.mu.Unlock()
	if s == nil {
		return Result{}, nil, ErrDisconnected
	}
	ops := make([]wire.Operation, len(all), len(all)+2)
	for i, st := range all {
		ops[i] = st.wire
	}
	if applied {
		if root == nil {
			return Result{}, nil, &TxError{Kind: ErrConflict, What: "waiting for ovs-vswitchd", Detail: "no Open_vSwitch row"}
		}
		where := whereUUID(root.UUID)
		ops = append(ops,
			wire.Operation{Op: wire.OperationMutate, Table: "Open_vSwitch", Where: where, Mutations: []wire.Mutation{
				{Column: "next_cfg", Mutator: wire.MutateOperationAdd, Value: 1},
			}},
			wire.Operation{Op: wire.OperationSelect, Table: "Open_vSwitch", Where: where, Columns: []string{"next_cfg"}})
	}
	var done Result
	sending, cancel := c.bound(ctx)
	defer cancel()
	results, err := transact(sending, s, ops, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		done.Seq = c.seq // the server sends a transaction's changes before its answer
	})
	if err != nil {
		return Result{}, nil, fmt.Errorf("committing: %w", err)
	}
	if failed, err := failure(all, results); err != nil {
		return Result{}, failed, err
	}
	if !applied {
		return done, nil, nil
	}
	done, err = c.awaitApplied(ctx, results, done)
	return done, nil, err
}

// bound gives a transaction its time; what ovs-vswitchd makes of it is no part of that.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.cfg.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// failure finds the step that the server refused. A refusal at commit stands behind the results of the operations and
// belongs to no step.
func failure(all []step, results []result) (*Tx, error) {
	for i, r := range results {
		if r.Error == "" {
			continue
		}
		e := &TxError{Kind: ErrConstraint, What: "commit", Detail: r.Error}
		if r.Details != "" {
			e.Detail += ": " + r.Details
		}
		if i >= len(all) {
			return nil, e
		}
		e.What = all[i].what
		if all[i].check && r.Error == "timed out" {
			e.Kind, e.Detail = ErrConflict, ""
		}
		return all[i].tx, e
	}
	if len(results) < len(all) {
		return nil, fmt.Errorf("committing: %d results for %d operations", len(results), len(all))
	}
	return nil, nil
}

// awaitApplied waits until ovs-vswitchd has seen the configuration that the transaction made, across reconnects.
func (c *Client) awaitApplied(ctx context.Context, results []result, done Result) (Result, error) {
	rows := results[len(results)-1].Rows
	if len(rows) != 1 {
		return done, fmt.Errorf("waiting for ovs-vswitchd: no next_cfg in the answer")
	}
	var next int
	if err := json.Unmarshal(rows[0]["next_cfg"], &next); err != nil {
		return done, fmt.Errorf("waiting for ovs-vswitchd: reading next_cfg: %w", err)
	}
	_, err := c.await(ctx, func() bool {
		done.Seq = c.seq
		return c.root != nil && c.root.CurCfg >= next
	})
	switch {
	case errors.Is(err, ErrTimedOut):
		return done, ErrNotApplied
	case err != nil:
		return done, fmt.Errorf("waiting for ovs-vswitchd: %w", err)
	}
	return done, nil
}
