// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"time"
)

// Done takes the outcome of a batch. It returns the claims that the server has confirmed. The others are due again after a pause.
// counts is false for a failure of a batch that was abandoned: nothing follows from it.
func (r *Reporter) Done(b Batch, result Result, now time.Time) (confirmed []Claim, counts bool) {
	if !r.land(b) {
		if result.Failed {
			return nil, false
		}
		r.makeDue(b)
	} else {
		r.pace(b, result, now)
	}
	for _, id := range b.Ports() {
		if result.Failed || slices.Contains(result.FailedUp, id) || slices.Contains(result.FailedDown, id) {
			r.retries.FailCall(id, now, result.Refused || !result.Failed)
			r.unsure[id] = b.Claims[id]
			continue
		}
		c := b.Claims[id]
		r.retries.Forget(id)
		delete(r.unsure, id)
		r.confirm(c)
		confirmed = append(confirmed, c)
		last, wanted := r.since[c.Segment]
		switch {
		case c.Status != Up:
			continue
		case wanted && b.id <= last:
			r.networks[c.Segment] = true // what the server sent for this report may have come before the network was here, or was lost
			continue
		case b.resyncs != r.resyncs:
			continue
		}
		if first := r.requested[c.Segment].IsZero(); c.Tunnelled && (first || b.Update.RefreshTunnels) {
			r.askers[c.Segment] = asker{c.Port, now}
			if first {
				r.requested[c.Segment] = now
			}
		}
		if b.Update.RefreshTunnels {
			delete(r.networks, c.Segment)
			delete(r.since, c.Segment)
		}
	}
	return confirmed, true
}

// Fail takes that a batch has ended and its outcome is lost: its ports are due again after a pause.
func (r *Reporter) Fail(b Batch, now time.Time) {
	r.land(b)
	r.makeDue(b)
	for _, id := range b.Ports() {
		r.retries.Fail(id, now)
		r.unsure[id] = b.Claims[id]
	}
}

func (r *Reporter) makeDue(b Batch) {
	for _, id := range b.Ports() {
		r.due[id] = true
	}
}

// land takes a batch out of flight, and says whether it was: it may have been abandoned before.
func (r *Reporter) land(b Batch) bool {
	_, ok := r.flights[b.id]
	delete(r.flights, b.id)
	return ok
}

// most is how many ports a batch has at most while others are in flight beside it.
const most = 8

// pace takes how the server answered a batch.
func (r *Reporter) pace(b Batch, result Result, now time.Time) {
	switch {
	case result.Refused:
	case result.Failed:
		r.window.Failed()
	case changes(&b):
		r.window.Answered(len(b.Claims), now.Sub(b.sent))
		r.step = min(2*r.step, most)
	}
}

// confirm takes what the server knows of a port.
func (r *Reporter) confirm(c Claim) {
	delete(r.earlier, c.Port)
	count := func(c Claim, n int) {
		if c.Status == Up && c.Tunnelled {
			if r.up[c.Segment] += n; r.up[c.Segment] == 0 {
				delete(r.up, c.Segment)
			}
		}
	}
	count(r.confirmed[c.Port], -1)
	count(c, 1)
	if r.confirmed[c.Port] = c; c.gone() {
		delete(r.confirmed, c.Port)
	}
}
