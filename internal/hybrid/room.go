// SPDX-License-Identifier: Apache-2.0

// Package hybrid decides when the rules of iptables are read and written that filter the ports of Linux bridges, and which ports may be in their
// networks. Package iptables decides what the rules are.
//
// Its inputs are ports and members that changed ([Room.Port], [Room.Peer]) and the outcomes of its jobs ([Room.Read], [Room.Applied],
// [Room.Ended]). Its outputs are one [Job] at a time ([Room.Next]), lines for the log, and the guard of each port in the world
// ([world.World.SetGuard]): package pipeline puts a port into its VLAN when it is admitted. The caller runs the jobs. Nothing in it waits or
// reads the clock.
//
// A room either keeps rules (firewall_driver = iptables_hybrid), or clears away those that an agent with that driver has left: port by
// port, when flows filter the port, and at last what ports share.
package hybrid

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

const (
	// checkPause separates two comparisons when nothing has changed: somebody else may have changed rules.
	checkPause = 2 * time.Minute
	// faultPause is checkPause while rules have no effect, and after members were written without a look at the rules.
	faultPause = 10 * time.Second
)

// Room is the state of the rules of a host. It has one owner.
type Room struct {
	filter *iptables.Filter
	clears bool
	clearing
	groups func(w *world.World) members
	told   map[string]uint64 // what world.Members.Changed said of the groups whose members the filter knows

	phase phase
	news
	checkAt time.Time
	retries pace.Backoff[struct{}]
	trouble

	seen     bool // the rules have been read
	guarded  iptables.Parts
	admitted map[string]bool
	// byFlows are ports that flows of another driver filter.
	byFlows map[string]bool
	// leaving are ports that are not to be filtered any more, and are still in their VLAN as far as the switch has told.
	leaving map[string]bool
	prune   bool // the comparison under way deletes what belongs to no known port
	pruned  bool
	owed    []iptables.Connections
	written uint64
	drifted bool // the comparison under way is one that nothing but the time has called for
}

// news is what has changed since the rules were read last.
type news struct {
	members bool // members of groups
	stale   bool // more than that
	blind   bool // the job under way writes members, and nobody has read what the host has
}

// trouble is why rules may not filter as they should.
type trouble struct {
	failure string // of the last job; empty if it did not fail
	faults  []string
	other   string // the program that shows rules of the agent in another back end
}

// phase is the job under way.
type phase uint8

const (
	idle phase = iota
	reading
	applying
	ending
)

// New returns a room that nothing is known of. With clears it clears away rules, and keeps none.
func New(cfg iptables.Config, clears bool) *Room {
	return &Room{
		filter: iptables.New(cfg), clears: clears, news: news{stale: true, members: true}, retries: pace.Backoff[struct{}]{},
		admitted: map[string]bool{}, leaving: map[string]bool{},
		groups: func(w *world.World) members { return w.Members },
	}
}

// Port takes that a port has changed.
func (r *Room) Port(w *world.World, id string) {
	if r.clears {
		return // which ports are ready is asked when there is time for a job
	}
	if p, ok := iptables.PortOf(w, id); ok {
		if delete(r.leaving, id); r.filter.Set(p) {
			r.stale, r.members = true, true // its rules may refer to other groups
		}
		r.guard(w, id)
		return
	}
	if r.filter.Has(id) {
		r.leaving[id] = true
	} else if w.Port(id) == nil {
		w.SetGuard(id, world.Unseen)
	} else {
		r.guard(w, id)
	}
}

// Inherit takes the ports that flows of another driver filter. They may stay in their networks until they have rules.
func (r *Room) Inherit(w *world.World, filtered map[string]bool) {
	r.byFlows = filtered
	for _, id := range w.PortIDs() {
		r.guard(w, id)
	}
}

// Inherited returns how many ports flows of another driver filter that have no rules yet. These flows have to stay.
func (r *Room) Inherited(w *world.World) (n int) {
	for id := range r.byFlows {
		if p := w.Port(id); !r.clears && !r.admitted[id] && w.InVLAN(p) && w.Bridged(p) {
			n++
		}
	}
	return n
}

// Seen returns whether the rules of the host have been read.
func (r *Room) Seen() bool { return r.seen }

// Peer takes that an address of members of groups has changed.
func (r *Room) Peer() { r.members = true }

// guard tells the world what iptables has of a port.
func (r *Room) guard(w *world.World, id string) {
	p := w.Port(id)
	switch {
	case p == nil:
		w.SetGuard(id, world.Unseen)
	case !r.seen || !w.Bridged(p):
	case r.admitted[id]:
		w.SetGuard(id, world.Admitted)
	case r.guarded.Has(id) || r.byFlows[id]:
		w.SetGuard(id, world.Guarded)
	default:
		w.SetGuard(id, world.Unguarded)
	}
}

// Next takes the job that is due; false if none is. Open says whether everything is known that could want a rule, applied whether a port is as wanted.
func (r *Room) Next(w *world.World, now time.Time, open func() bool, applied func(id string) bool) (Job, bool) {
	if r.phase != idle || r.clears && r.done(w) {
		return Job{}, false
	}
	if r.clears {
		r.prune = r.ready(w, now, applied) && open()
	} else {
		r.leave(w)
		r.prune = open() && !r.shutStrays(w)
	}
	switch {
	case r.retries.Waiting(struct{}{}, now):
		return Job{}, false
	case len(r.owed) > 0:
		r.phase = ending
		return Job{End: r.owed}, true
	case r.alike(now) && (r.clears || !r.members):
		return Job{}, false
	}
	if r.members && !r.clears {
		r.tellMembers(w)
	}
	if c, ok := r.filter.NextMembers(); ok && r.alike(now) && len(r.faults) == 0 {
		r.members, r.blind = false, !c.Empty()
		if r.blind {
			r.phase = applying
		}
		return Job{Apply: &c}, r.blind
	}
	other := !now.Before(r.checkAt)
	r.drifted = !r.stale && !r.members && r.prune == r.pruned && !r.filter.Retry()
	r.phase, r.stale, r.members = reading, false, false
	return Job{Read: true, Other: other}, true
}

// alike returns whether nothing but members has changed since the rules were compared, and no comparison is due.
func (r *Room) alike(now time.Time) bool {
	return !r.stale && r.prune == r.pruned && now.Before(r.checkAt)
}

// leave forgets the ports that have left their VLANs.
func (r *Room) leave(w *world.World) {
	for _, id := range slices.Sorted(maps.Keys(r.leaving)) {
		if w.InVLAN(w.Port(id)) {
			continue
		}
		r.filter.Delete(id)
		delete(r.leaving, id)
		delete(r.admitted, id)
		r.stale = true
		r.guard(w, id)
	}
}

// shutStrays takes ports out of their networks of which nothing is known that rules could be made of, and returns whether there are some. Everything is
// known, so nothing will come. Their rules go when they have left.
func (r *Room) shutStrays(w *world.World) (found bool) {
	for _, id := range w.PortIDs() {
		if p := w.Port(id); w.Bridged(p) && w.InVLAN(p) && !r.filter.Has(id) {
			found = true
			if p.Wiring.State == world.Waiting && !w.IsShut(p) {
				w.Shut(id)
			}
		}
	}
	return found
}

// Read takes what the host has, or why it could not be read.
func (r *Room) Read(w *world.World, have iptables.State, other string, asked bool, err error, now time.Time) (out Out) {
	r.phase = idle
	if err != nil {
		r.fail(&out, "iptables rules cannot be read, new ports wait, retrying", err, now)
		return out
	}
	if asked {
		r.other = other
	}
	r.seen, r.guarded = true, have.Guarded()
	r.blame(&out, have.Unbridged)
	c := r.compare(have)
	for _, id := range w.PortIDs() {
		r.guard(w, id)
	}
	r.pruned = r.prune
	if c.Empty() {
		r.finish(&out, w, c, now)
		return out
	}
	if r.drifted {
		out.log(slog.LevelWarn, "iptables rules were changed by another program, restoring them", "rules", lines(&c))
	}
	r.phase = applying
	out.Job = &Job{Apply: &c}
	return out
}

// compare returns what makes a host as wanted that has a state.
func (r *Room) compare(have iptables.State) iptables.Changes {
	switch {
	case !r.clears:
		return r.filter.Next(have, r.prune)
	case r.prune:
		return iptables.Leave(have)
	case have.Ours():
		return r.filter.Next(have, false)
	}
	return iptables.Changes{}
}

// blame takes the reasons why rules have no effect.
func (r *Room) blame(out *Out, unbridged []string) {
	var faults []string
	if !r.clears {
		faults = slices.Clone(unbridged)
	}
	if r.other != "" {
		faults = append(faults, r.other+" shows rules of the agent too, and the kernel asks both: delete those that it shows")
	}
	for _, f := range faults {
		if !slices.Contains(r.faults, f) {
			out.log(slog.LevelError, "iptables rules have no effect or other rules conflict with them, new ports wait", "reason", f)
		}
	}
	r.faults = faults
}

// Applied takes what became of rules to write.
func (r *Room) Applied(w *world.World, c *iptables.Changes, err error, now time.Time) (out Out) {
	r.phase = idle
	if err != nil {
		r.blind = false
		r.filter.Done(*c, err)
		var refused *iptables.RefusedError
		if errors.As(err, &refused) {
			if id := r.filter.Hold(refused.Line, err.Error()); id != "" {
				out.log(slog.LevelError, "iptables-restore rejected a rule, keeping the current rules of the port, retrying", "port", id, "err", err)
				r.stale = true
				return out
			}
		}
		r.fail(&out, "iptables rules cannot be written, new ports wait, retrying", err, now)
		return out
	}
	n := lines(c)
	r.written += uint64(n)
	if n > 0 {
		out.log(slog.LevelInfo, "iptables rules written", "lines", n)
	}
	r.finish(&out, w, *c, now)
	return out
}

// finish takes that the host is as wanted.
func (r *Room) finish(out *Out, w *world.World, c iptables.Changes, now time.Time) {
	r.filter.Done(c, nil)
	r.retries.Forget(struct{}{})
	r.failure = ""
	pause := checkPause
	if len(r.faults) > 0 || r.blind {
		pause = faultPause
	}
	if at := now.Add(pause); !r.blind || at.Before(r.checkAt) {
		r.checkAt = at // members that come and go all the time do not put it off
	}
	r.blind = false
	if r.clears {
		if r.prune {
			r.cleared = true
			w.SetRulesGone()
			out.log(slog.LevelInfo, "rules of the iptables_hybrid driver deleted, flows filter all ports")
		}
		return
	}
	if len(r.faults) == 0 {
		for _, id := range r.filter.Ports() {
			if r.filter.Applied(id) {
				r.admitted[id] = true
				r.guard(w, id)
			}
		}
	}
	if len(c.Connections) > 0 {
		r.owed = append(r.owed, c.Connections...)
		r.phase = ending
		out.Job = &Job{End: slices.Clone(r.owed)}
	}
}

// Ended takes what became of connections to delete.
func (r *Room) Ended(n int, err error, now time.Time) (out Out) {
	r.phase = idle
	if err != nil {
		r.fail(&out, "tracked connections cannot be deleted, retrying", err, now)
		return out
	}
	r.owed = nil
	r.retries.Forget(struct{}{})
	r.failure = ""
	if n > 0 {
		out.log(slog.LevelInfo, "tracked connections deleted, no rule allows them any more", "connections", n)
	}
	return out
}

func (r *Room) fail(out *Out, message string, err error, now time.Time) {
	r.failure = err.Error()
	r.stale = true
	wait := r.retries.Fail(struct{}{}, now)
	out.log(slog.LevelWarn, message, "err", err, "after", wait)
}

// Abandoned takes that nobody knows what became of the job under way.
func (r *Room) Abandoned(now time.Time) {
	r.phase, r.stale, r.blind = idle, true, false
	r.retries.Fail(struct{}{}, now)
}

// WakeAt returns the next time after now at which there may be a job, or zero.
func (r *Room) WakeAt(now time.Time) time.Time {
	switch {
	case r.phase != idle:
		return time.Time{}
	case r.retries.Waiting(struct{}{}, now):
		return r.retries[struct{}{}].At
	case r.cleared:
		return time.Time{}
	}
	at := r.checkAt
	for _, since := range r.settling {
		if until := since.Add(revalidation); !at.After(now) || until.Before(at) {
			at = until
		}
	}
	if !at.After(now) {
		return time.Time{}
	}
	return at
}
