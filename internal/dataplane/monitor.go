// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// monitor is how changes that others make to the flows of a bridge come to our notice.
type monitor struct {
	reading    bool
	failed     bool // reading has, and the connection is given up
	eventsLost bool
	// buffered are changes that were reported before the flows were read: some of them are in what was read, and taking them again,
	// in order, ends in the same.
	buffered []openflow.FlowUpdate
	// next is when the bridge is read again where the switch does not report changes; zero where it does.
	next time.Time
	// contested are flows that somebody keeps changing: they are repaired ever more slowly.
	contested pace.Backoff[openflow.Key]
	repairAt  time.Time // when the first flow is due of those that wait: contested ones, and those of ports that went
}

// wake has flows that wait looked at again at a time, if none are due before.
func (m *monitor) wake(at time.Time) {
	if m.repairAt.IsZero() || at.Before(m.repairAt) {
		m.repairAt = at
	}
}

const (
	// compareEvery separates readings of a bridge whose switch does not report changes (Open vSwitch before 3.0).
	compareEvery = time.Minute
	// contestTime is how long a flow has to be left alone to be contested no more.
	contestTime = time.Minute
	// manyDrifts is from how many on they are counted instead of listed.
	manyDrifts = 10
)

// Observe takes changes that others made to the flows of a bridge. Those are undone that are not theirs to make.
func (d *Dataplane) Observe(name string, conn Conn, updates []openflow.FlowUpdate, lost bool, now time.Time) (out Outcome) {
	b := d.bridges[name]
	if b.conn != conn {
		return out
	}
	if b.monitor.reading || !b.flows.Known() {
		b.monitor.buffered = append(b.monitor.buffered, updates...)
	} else {
		b.observe(&out, name, updates, now)
	}
	b.monitor.eventsLost = b.monitor.eventsLost || lost
	return out
}

// EventsLost takes that changes of a bridge's flows may be unknown: it is read again.
func (d *Dataplane) EventsLost(name string) { d.bridges[name].monitor.eventsLost = true }

// compared takes what was read that nobody had reported.
func (d *Dataplane) compared(out *Outcome, name string, b *bridge) {
	if d.pruned {
		b.flows.Sweep(hasOurCookie)
	}
	if n := len(b.flows.Changes()); n > 0 {
		b.repaired += uint64(n)
		out.log(slog.LevelWarn, false, "repairing flows changed by another program", "bridge", name, "flows", n)
	}
}

func (b *bridge) observe(out *Outcome, name string, updates []openflow.FlowUpdate, now time.Time) {
	var drifts []delta.Drift
	for _, u := range updates {
		if drift, ok := b.flows.Observe(u, hasOurCookie); ok {
			drifts = append(drifts, drift)
		}
	}
	if len(drifts) == 0 {
		return
	}
	b.repaired += uint64(len(drifts))
	for k, r := range b.monitor.contested {
		if now.Sub(r.At) > contestTime {
			b.monitor.contested.Forget(k)
		}
	}
	for i, drift := range drifts {
		wait := time.Duration(0)
		if _, again := b.monitor.contested[drift.Key]; again {
			wait = b.monitor.contested.Fail(drift.Key, now)
		} else {
			b.monitor.contested[drift.Key] = pace.Attempt{At: now} // the first repair is made at once
		}
		switch {
		case wait >= time.Second:
			out.log(slog.LevelWarn, true, "flow changed repeatedly by another program, repairing with backoff", "bridge", name, "flow", drift.Key.String())
		case i < manyDrifts:
			out.log(slog.LevelWarn, false, "repairing a flow changed by another program", "bridge", name, "was", drift.Event.String(), "flow", drift.Key.String(),
				"owner", world.NameOf(drift.Owner), "reason", drift.Reason)
		}
	}
	if len(drifts) > manyDrifts {
		out.log(slog.LevelWarn, false, "repairing flows changed by another program", "bridge", name, "flows", len(drifts))
	}
}

// ToRead takes the bridges to read now: those whose switch does not report changes, those whose reports were lost, and those of
// which a change of ours crossed somebody else's. The caller completes and returns them.
func (d *Dataplane) ToRead(now time.Time) (out []Reading) {
	if d.inFlight {
		return nil // what is read would be compared with what the round is about to change
	}
	for _, name := range slices.Sorted(maps.Keys(d.bridges)) {
		b := d.bridges[name]
		due := !b.monitor.next.IsZero() && !now.Before(b.monitor.next)
		if b.ready() && !b.monitor.reading && (due || b.flows.Unsure() || b.monitor.eventsLost) {
			b.monitor.reading, b.monitor.eventsLost = true, false
			out = append(out, Reading{Bridge: name, Conn: b.conn, MaxMeters: b.maxMeters})
		}
	}
	return out
}

// hasOurCookie returns whether a flow has our cookie and stays until it is removed.
func hasOurCookie(e openflow.Entry) bool { return e.Cookie() == pipeline.Cookie && StaleAgentFlow(e) }
