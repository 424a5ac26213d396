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
	fragments   bool   // are to be dropped
	dropped     bool   // they are
	due         bool   // networks have come or gone, or the switch is another one
	pruned      bool   // limits of VLANs without a network are gone
	unsupported bool   // by the switch
	retry       pace.Backoff[struct{}]
}

// NewLimits returns limits of so many connections in each network; 0 means that earlier limits go. Fragments: whoever sets the limits
// has the switch drop fragments as well.
func NewLimits(limit uint32, fragments bool) *Limits {
	return &Limits{limit: limit, fragments: fragments, retry: pace.Backoff[struct{}]{}}
}

// LimitJob gives each zone its limit, and with Prune deletes those of other local VLANs.
type LimitJob struct {
	Want  map[uint16]uint32
	Prune bool
}

// Changed records that networks have come or gone.
func (l *Limits) Changed() { l.due = true }

// Restarted records that the switch may have lost everything that it was told.
func (l *Limits) Restarted() { l.due, l.dropped = true, false }

// Dropped returns whether the switch has been told to drop fragments.
func (l *Limits) Dropped() bool { return l.dropped }

// Due returns whether there is a job now. The limits of other VLANs may be deleted only when everything is known: a VLAN that
// ports have from an earlier run may have no network yet.
func (l *Limits) Due(mayPrune bool, now time.Time) bool {
	due := l.due && l.fragments && !l.dropped || !l.unsupported && (l.due && l.limit > 0 || mayPrune && !l.pruned)
	return due && !l.retry.Waiting(struct{}{}, now)
}

// Next takes the job for the zones of all networks.
func (l *Limits) Next(zones []uint16, mayPrune bool) *LimitJob {
	l.due = false
	job := &LimitJob{Want: map[uint16]uint32{}, Prune: mayPrune}
	if l.limit > 0 && !l.unsupported {
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
		l.told()
	case err != nil:
		l.due = true
		return l.retry.Fail(struct{}{}, now)
	default:
		l.retry.Forget(struct{}{})
		l.pruned = job.Prune
		l.told()
	}
	return 0
}

// told records that fragments are dropped, unless the switch may have started again since the job began.
func (l *Limits) told() { l.dropped = l.fragments && !l.due }

// Deadline returns the time of the next attempt at a job that failed, if that is after now, or zero.
func (l *Limits) Deadline(now time.Time) time.Time {
	if l.retry.Waiting(struct{}{}, now) {
		return l.retry.Next()
	}
	return time.Time{}
}
