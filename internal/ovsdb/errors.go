// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"errors"
	"fmt"
)

// The errors a caller of Commit branches on, with errors.Is.
var (
	// ErrConflict means that a precondition did not hold; nothing was written. A newer View has come or is on its way.
	ErrConflict = errors.New("precondition failed")
	// ErrConstraint means that the database refused the values; nothing was written, and trying again is useless.
	ErrConstraint = errors.New("constraint violated")
	// ErrTimedOut means that an answer did not come in time. Whether the transaction was committed will be seen in the
	// stream of changes.
	ErrTimedOut = errors.New("timed out")
	// ErrNotApplied means that the transaction was committed, but that ovs-vswitchd did not report in time to have applied
	// it. It is also an ErrTimedOut.
	ErrNotApplied = fmt.Errorf("committed, but not applied by ovs-vswitchd: %w", ErrTimedOut)
	// ErrDisconnected means that there was no connection, or that it was lost before the answer. In the second case the
	// batch Reconnected shows whether the transaction was committed.
	ErrDisconnected = errors.New("not connected to the database")
)

// TxError is a failed transaction: which part of it failed, and how.
type TxError struct {
	Kind   error  // ErrConflict or ErrConstraint
	What   string // the operation, such as "Port 1e4b…: row exists"
	Detail string // the server's words
}

// Error returns all of it in one line.
func (e *TxError) Error() string {
	s := e.Kind.Error() + ": " + e.What
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns the kind.
func (e *TxError) Unwrap() error { return e.Kind }
