// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Became is what became of a round, apart from the round itself: with it a round that was decided on again becomes what the first one became.
type Became struct {
	Seq       uint64
	RowErrs   []error
	LimitsErr error
	Limited   int
	FlushErrs []error
	Took      time.Duration
	Bundles   []BundleBecame
}

// BundleBecame is what became of a bundle.
type BundleBecame struct {
	Meters        []MeterDone
	MeterErr, Err error
}

// MeterDone is a change of a meter that was made.
type MeterDone struct {
	Command openflow.Command
	ID      uint32
}

// Became returns what became of a round that has run.
func (r *Round) Became() Became {
	b := Became{r.Seq, r.RowErrs, r.LimitsErr, r.Limited, r.FlushErrs, r.Took, make([]BundleBecame, len(r.Bundles))}
	for i := range r.Bundles {
		of := &r.Bundles[i]
		b.Bundles[i] = BundleBecame{MeterErr: of.MeterErr, Err: of.Err}
		for _, c := range of.MetersDone {
			b.Bundles[i].Meters = append(b.Bundles[i].Meters, MeterDone{c.Command, c.Meter.ID})
		}
	}
	return b
}

// Become makes a round that has not run what another one became, without a switch. With err nobody knows what became of it.
func (r *Round) Become(b Became, err error) error {
	r.Seq, r.RowErrs, r.LimitsErr, r.Limited, r.FlushErrs, r.Took, r.Err = b.Seq, b.RowErrs, b.LimitsErr, b.Limited, b.FlushErrs, b.Took, err
	if err != nil {
		return nil //nolint:nilerr // it is the round's
	}
	if len(b.RowErrs) != len(r.Rows) || len(b.FlushErrs) != len(r.Flush) || len(b.Bundles) != len(r.Bundles) {
		return fmt.Errorf("the outcome is of another round: %d transactions, %d zones and %d bundles, and it has %d, %d and %d",
			len(b.RowErrs), len(b.FlushErrs), len(b.Bundles), len(r.Rows), len(r.Flush), len(r.Bundles))
	}
	for i := range r.Bundles {
		to, was := &r.Bundles[i], b.Bundles[i]
		all := slices.Concat(to.MetersIn, to.MetersOut)
		to.leaveOut(r.failed(to.bare))
		to.MeterErr, to.Err = was.MeterErr, was.Err
		for _, done := range was.Meters {
			at := slices.IndexFunc(all, func(c delta.MeterChange) bool { return c.Command == done.Command && c.Meter.ID == done.ID })
			if at < 0 {
				return fmt.Errorf("the outcome is of another round: it has meter %d", done.ID)
			}
			to.MetersDone = append(to.MetersDone, all[at])
		}
	}
	return nil
}

// failed returns the objects whose flows have to wait: their zone was not emptied, or their rows were not written. For rows bare ones do not wait.
func (r *Round) failed(bare map[world.Object]bool) map[world.Object]bool {
	failed := map[world.Object]bool{}
	for i, err := range r.RowErrs {
		_, isPort := world.PortID(r.Owners[i])
		failed[r.Owners[i]] = err != nil && isPort && !bare[r.Owners[i]]
	}
	for i, err := range r.FlushErrs {
		for o, zone := range r.flushFirst {
			failed[o] = failed[o] || err != nil && zone == r.Flush[i]
		}
	}
	return failed
}

// leaveOut takes the flows of what has failed out of a bundle.
func (b *Bundle) leaveOut(failed map[world.Object]bool) {
	before := len(b.Changes)
	b.Changes = slices.DeleteFunc(b.Changes, func(c delta.Change) bool { return failed[c.Owner] })
	if len(b.Changes) < before {
		b.Withheld = true
		b.MetersOut = nil // a flow that is still there may use one of these meters
	}
}
