// SPDX-License-Identifier: Apache-2.0

package zones

import (
	"errors"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// Limits decides when the limits of tracked connections are set. It has one owner.
type Limits struct {
	limit       uint32 // of connections in each network; 0: none
	due         bool   // networks have come or gone, or the switch is another one
	pruned      bool   // limits of VLANs without a network are gone
	unsupported bool   // by the switch
	retry       pace.Backoff[struct{}]
}

// NewLimits returns limits of so many connections in each network; 0 means that earlier limits go.
func NewLimits(limit uint32) *Limits { return &Limits{limit: limit, retry: pace.Backoff[struct{}]{}} }

// LimitJob gives each zone its limit, and with Prune deletes those of other local VLANs.
type LimitJob struct {
	Want  map[uint16]uint32
	Prune bool
}

// Changed records that networks have come or gone, or that the switch may have lost its limits.
func (l *Limits) Changed() { l.due = true }

// Due returns whether there is a job now. The limits of other VLANs may be deleted only when everything is known: a VLAN that
// ports have from an earlier run may have no network yet.
func (l *Limits) Due(mayPrune bool, now time.Time) bool {
	due := l.due && l.limit > 0 || mayPrune && !l.pruned
	return due && !l.unsupported && !l.retry.Waiting(struct{}{}, now)
}

// Next takes the job for the zones of all networks.
func (l *Limits) Next(zones []uint16, mayPrune bool) *LimitJob {
	l.due = false
	job := &LimitJob{Want: map[uint16]uint32{}, Prune: mayPrune}
	if l.limit > 0 {
		for _, zone := range zones {
			job.Want[zone] = l.limit
		}
	}
	return job
}

// Done takes the outcome of a job. It returns the pause before the next attempt, if there is one.
func (l *Limits) Done(job *LimitJob, err error, now time.Time) time.Duration {
	switch {
	case errors.Is(err, conntrack.ErrNoLimits):
		l.unsupported = true
	case err != nil:
		l.due = true
		return l.retry.Fail(struct{}{}, now)
	default:
		l.retry.Forget(struct{}{})
		l.pruned = job.Prune
	}
	return 0
}

// Deadline returns the time of the next attempt at a job that failed, if that is after now, or zero.
func (l *Limits) Deadline(now time.Time) time.Time {
	if l.retry.Waiting(struct{}{}, now) {
		return l.retry.Next()
	}
	return time.Time{}
}
