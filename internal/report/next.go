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
	full, repeating := r.count(changes) >= r.window.Size(), r.count(repeats) > 0
	if full && repeating {
		return nil
	}
	var ids []string
	for id := range r.due {
		if wait := full; !r.inFlight(id) {
			if r.again[id] {
				wait = repeating
			}
			if !wait {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// The kinds of batches.
func changes(b *Batch) bool   { return !b.Refresh && !b.again }
func repeats(b *Batch) bool   { return b.again }
func refreshes(b *Batch) bool { return b.Refresh }

// count returns how many batches of a kind are in flight.
func (r *Reporter) count(kind func(*Batch) bool) (n int) {
	for _, b := range r.flights {
		if kind(&b) {
			n++
		}
	}
	return n
}

func (r *Reporter) inFlight(port string) bool {
	for _, b := range r.flights {
		if _, ok := b.Claims[port]; ok {
			return true
		}
	}
	return false
}

// Candidates returns the ports of whose claims Next chooses one for each network to refresh.
func (r *Reporter) Candidates() []string {
	if r.count(refreshes) > 0 || len(r.networks) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(r.confirmed))
	return slices.DeleteFunc(ids, func(id string) bool { return r.confirmed[id].Status != Up })
}

// Next takes the batches to send now. It is given the claims of the ports that Due and Candidates return.
func (r *Reporter) Next(due, candidates []Claim, now time.Time) []Batch {
	r.deadline = time.Time{}
	refresh := len(r.networks) > 0 // the candidates are those of these networks
	l := r.sort(due, now)
	var out []Batch
	send := func(b Batch) bool {
		if len(b.Claims) == 0 {
			return false
		}
		r.sent++
		b.id, b.sent, b.resyncs = r.sent, now, r.resyncs
		r.flights[b.id] = b
		out = append(out, b)
		return true
	}
	for r.count(changes) < r.window.Size() && send(r.fill(&l.changed, r.size(len(l.changed)), l.held)) {
	}
	for len(l.changed) == 0 && r.count(changes) < r.window.Size() && send(r.disable(l)) {
	}
	if len(l.changed) == 0 && r.count(repeats) == 0 {
		b := r.fill(&l.again, r.perReport, l.held)
		b.again = true
		send(b)
	}
	if len(out) > 0 {
		out[0].Repeated = l.repeated
	}
	if r.count(changes) == 0 {
		r.step = 1
	}
	switch {
	case r.count(refreshes) > 0 || len(r.networks) == 0:
	case refresh:
		send(r.refreshBatch(candidates, now))
	default:
		r.waitUntil(now)
	}
	return out
}

// size returns how many of so many ports the next batch has: few while others may be in flight, so that none waits for many, and all if not.
func (r *Reporter) size(ports int) int {
	window := r.window.Size()
	if window == 1 {
		return r.perReport
	}
	free := window - r.count(changes)
	return min(r.perReport, r.step, (ports+free-1)/free)
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

// list is what the server has to be told.
type list struct {
	changed  []Claim // somebody waits for it; ports that go are first
	again    []Claim // the server has the port as ACTIVE
	disabled []Claim // each has a call of its own
	repeated []string
	held     map[world.SegmentKey]bool // networks that a batch waits for, to be in flight beside no other: nothing more of them is sent
}

// sort compares what is true with what the server has confirmed.
func (r *Reporter) sort(due []Claim, now time.Time) *list {
	l := &list{held: map[world.SegmentKey]bool{}}
	var up []Claim
	for _, c := range due {
		r.checkAsker(c, now)
		if r.confirmed[c.Port].Status == Unknown && (c.Status == Up || c.Status == Unknown) {
			r.noteEarlier(c) // also while something holds it: a sub-port waits for its trunk, which may have lost it
		}
		if !c.Applied || r.inFlight(c.Port) || r.waiting(c.Port, now) {
			continue
		}
		status, repeat := c.against(r.confirmed[c.Port])
		if _, unsure := r.unsure[c.Port]; status == Unknown && (unsure || c.gone() && r.earlier[c.Port]) {
			status = c.Status // it may not be what the server has
		}
		if status == Unknown {
			r.nothingDue(c)
			continue
		}
		if repeat {
			l.repeated = append(l.repeated, c.Port)
		}
		switch c.Status = status; {
		case status == AdminDown:
			l.disabled = append(l.disabled, c)
		case status == Down:
			l.changed = append(l.changed, c)
		case c.ServerStatus == "ACTIVE":
			r.again[c.Port] = true
			l.again = append(l.again, c)
		default:
			up = append(up, c)
		}
	}
	l.changed = append(l.changed, up...)
	return l
}

// noteEarlier notes whether an earlier run may have reported a port as up. Before the server has said anything of the port its row tells.
func (r *Reporter) noteEarlier(c Claim) {
	switch {
	case c.ServerStatus == "ACTIVE", c.ServerStatus == "" && c.Marked:
		r.earlier[c.Port] = true
	case c.ServerStatus != "":
		delete(r.earlier, c.Port)
	}
}

// fill takes ports from a list into a batch, at most so many as up and as many as down.
func (r *Reporter) fill(from *[]Claim, most int, held map[world.SegmentKey]bool) Batch {
	b := Batch{Claims: map[string]Claim{}, networks: map[world.SegmentKey]bool{}}
	var rest []Claim
	for _, c := range *from {
		if !b.hasRoom(c.Status, most) || !r.join(&b, c, held) {
			rest = append(rest, c)
			continue
		}
		b.add(c)
	}
	*from = rest
	b.Update.RefreshTunnels = slices.ContainsFunc(b.Update.Up, func(id string) bool { return r.needsEntries(b.Claims[id]) })
	return b
}

// needsEntries says whether the report that a port is up has to have the server send the forwarding entries of its network. At first nobody knows
// what it sent to an earlier run, and later neither, if a report of the port that asked for them failed: the entries that are known may be of that run.
func (r *Reporter) needsEntries(c Claim) bool {
	key, counted := r.network(c)
	if !counted {
		return !r.synced
	}
	_, failed := r.unsure[c.Port]
	_, again := r.since[key]
	return r.requested[key].IsZero() && (!r.synced || c.NoEntries || failed || again && r.first(key))
}

// disable returns the batch of a disabled port.
func (r *Reporter) disable(l *list) Batch {
	b := Batch{Claims: map[string]Claim{}, networks: map[world.SegmentKey]bool{}}
	for i, c := range l.disabled {
		if r.join(&b, c, l.held) {
			b.AdminDown, b.Claims[c.Port] = c.Port, c
			l.disabled = slices.Delete(l.disabled, i, i+1)
			break
		}
	}
	return b
}

// nothingDue takes that the server knows enough of a port.
func (r *Reporter) nothingDue(c Claim) {
	delete(r.due, c.Port)
	if c.gone() {
		r.confirm(c)
		r.retries.Forget(c.Port)
	}
}

// hasRoom says whether a batch may name one more port as up or down.
func (b *Batch) hasRoom(s Status, most int) bool {
	if s == Down {
		return len(b.Update.Down) < most
	}
	return len(b.Update.Up) < most
}

// add names a port in a batch as up or down.
func (b *Batch) add(c Claim) {
	if c.Status == Down {
		b.Update.Down = append(b.Update.Down, c.Port)
	} else {
		b.Update.Up = append(b.Update.Up, c.Port)
	}
	b.Claims[c.Port] = c
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
		if !r.inFlight(c.Port) && b.hasRoom(Up, r.perReport) && !r.waiting(c.Port, now) {
			b.add(c) // the port is counted already, so that this may run beside anything
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
