// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Due returns the ports whose claims Next compares with what the server has confirmed.
func (r *Reporter) Due() []string {
	if r.changing {
		return nil
	}
	return slices.Sorted(maps.Keys(r.due))
}

// Candidates returns the ports of whose claims Next chooses one for each network to refresh.
func (r *Reporter) Candidates() []string {
	if r.refreshing || len(r.networks) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(r.confirmed))
	return slices.DeleteFunc(ids, func(id string) bool { return r.confirmed[id].Status != Up })
}

// Next takes the batches to send now. It is given the claims of the ports that Due and Candidates return.
func (r *Reporter) Next(due, candidates []Claim, now time.Time) []Batch {
	r.deadline = time.Time{}
	var out []Batch
	take := func(b Batch, kind *bool) {
		if ids := b.Ports(); len(ids) > 0 {
			*kind, b.epoch, b.resyncs = true, r.epoch, r.resyncs
			for _, id := range ids {
				r.inFlight[id] = true
			}
			out = append(out, b)
		}
	}
	if !r.changing {
		take(r.changeBatch(due, now), &r.changing)
	}
	if !r.refreshing && len(r.networks) > 0 {
		take(r.refreshBatch(candidates, now), &r.refreshing)
	}
	return out
}

// Deadline returns when Next may return more because of the time alone, or zero. It is as of the last Next.
func (r *Reporter) Deadline() time.Time { return r.deadline }

// waitUntil moves the deadline forward.
func (r *Reporter) waitUntil(at time.Time) {
	if r.deadline.IsZero() || at.Before(r.deadline) {
		r.deadline = at
	}
}

// waiting says whether a report of a port failed a moment ago.
func (r *Reporter) waiting(port string, now time.Time) bool {
	if !r.retries.Waiting(port, now) {
		return false
	}
	r.waitUntil(r.retries[port].At)
	return true
}

// changeBatch returns a batch of what the server has not confirmed. A disabled port has a call of its own, after the others.
func (r *Reporter) changeBatch(due []Claim, now time.Time) Batch {
	b := Batch{Claims: map[string]Claim{}}
	var disabled Claim
	for _, c := range due {
		if !c.Applied || r.inFlight[c.Port] || r.waiting(c.Port, now) {
			continue
		}
		status, repeat := c.against(r.confirmed[c.Port])
		if status == Unknown && r.unsure[c.Port] {
			status = c.Status // it may not be what the server has
		}
		if status == Unknown {
			r.nothingDue(c)
			continue
		}
		if repeat {
			b.Repeated = append(b.Repeated, c.Port)
		}
		if c.Status = status; status != AdminDown {
			b.add(c, r.perReport)
		} else if disabled.Port == "" {
			disabled = c
		}
	}
	if len(b.Claims) == 0 && disabled.Port != "" {
		b.AdminDown, b.Claims[disabled.Port] = disabled.Port, disabled
	}
	b.Update.RefreshTunnels = slices.ContainsFunc(b.Update.Up, func(id string) bool { return !r.synced || b.Claims[id].NoEntries })
	return b
}

// nothingDue takes that the server knows enough of a port.
func (r *Reporter) nothingDue(c Claim) {
	delete(r.due, c.Port)
	if c.gone() {
		delete(r.confirmed, c.Port)
		r.retries.Forget(c.Port)
	}
}

// add names a port in a batch as up or down, unless the batch names as many already.
func (b *Batch) add(c Claim, most int) {
	ids := &b.Update.Up
	if c.Status == Down {
		ids = &b.Update.Down
	}
	if len(*ids) < most {
		*ids = append(*ids, c.Port)
		b.Claims[c.Port] = c
	}
}

// against returns the status that the server has to be told of a port, or Unknown if there is none, and whether the server has
// confirmed the same status before.
func (c *Claim) against(before Claim) (s Status, repeat bool) {
	same := c.Status == before.Status && c.Interface == before.Interface
	switch {
	case c.Status == Up && same && (c.takenDown(before) || c.onNewTunnels(before)):
		return Up, true
	case same, c.Status == Down && before.Status == Down, c.gone() && before.Status == Unknown:
		return Unknown, false
	case c.Status == Up && before.Status == Up:
		return Down, false // plugged in anew: the server has to see the port go down before it comes up
	}
	return c.Status, false
}

func (c *Claim) gone() bool { return c.Status == Down && c.Interface == "" }

// takenDown says whether the server has put down a port after it was reported up, as it does when the port is bound anew to the
// same host. No other component reports the port as up, so the agent reports it again.
func (c *Claim) takenDown(before Claim) bool {
	return c.Revision > before.Revision && (c.ServerStatus == "DOWN" || c.ServerStatus == "BUILD")
}

// onNewTunnels says whether a port that was reported up is on another tunnelled segment since. The server sends the segment's
// forwarding entries only if the port is reported again.
func (c *Claim) onNewTunnels(before Claim) bool { return c.Tunnelled && c.Segment != before.Segment }

// refreshBatch returns a batch of one port for each network to refresh.
func (r *Reporter) refreshBatch(candidates []Claim, now time.Time) Batch {
	b := Batch{Claims: map[string]Claim{}, Refresh: true}
	chosen := map[world.SegmentKey]bool{}
	for _, c := range candidates {
		before := r.confirmed[c.Port]
		if c.Status != Up || before.Status != Up || c.Interface != before.Interface || chosen[c.Segment] || !r.networks[c.Segment] {
			continue
		}
		chosen[c.Segment] = true
		if !r.inFlight[c.Port] && !r.waiting(c.Port, now) {
			b.add(c, r.perReport)
		}
	}
	if len(chosen) == 0 {
		clear(r.networks) // the reports of their ports are still to come, and have the server send the entries
	}
	if len(b.Update.Up) > 0 && !r.checks.Take(now) {
		r.waitUntil(r.checks.Next())
		return Batch{}
	}
	b.Update.RefreshTunnels = true
	return b
}

// Done takes the outcome of a batch. It returns the claims that the server has confirmed. The others are due again after a pause.
// counts is false for a failure of a batch that was abandoned: nothing follows from it.
func (r *Reporter) Done(b Batch, result Result, now time.Time) (confirmed []Claim, counts bool) {
	if b.epoch != r.epoch {
		if result.Failed {
			return nil, false
		}
		r.makeDue(b)
	}
	r.land(b)
	for _, id := range b.Ports() {
		if result.Failed || slices.Contains(result.FailedUp, id) || slices.Contains(result.FailedDown, id) {
			r.retries.FailCall(id, now, result.Refused || !result.Failed)
			r.unsure[id] = true
			continue
		}
		c := b.Claims[id]
		r.retries.Forget(id)
		delete(r.unsure, id)
		if r.confirmed[id] = c; c.gone() {
			delete(r.confirmed, id)
		}
		confirmed = append(confirmed, c)
		if c.Status != Up || b.resyncs != r.resyncs {
			continue
		}
		if c.Tunnelled && r.requested[c.Segment].IsZero() {
			r.requested[c.Segment] = now
		}
		if b.Update.RefreshTunnels {
			delete(r.networks, c.Segment)
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
		r.unsure[id] = true
	}
}

func (r *Reporter) makeDue(b Batch) {
	for _, id := range b.Ports() {
		r.due[id] = true
	}
}

// land takes a batch out of flight, unless it was abandoned before.
func (r *Reporter) land(b Batch) {
	if b.epoch != r.epoch {
		return
	}
	if b.Refresh {
		r.refreshing = false
	} else {
		r.changing = false
	}
	for _, id := range b.Ports() {
		delete(r.inFlight, id)
	}
}
