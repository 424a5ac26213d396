// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// watch is how changes that others make to the flows of a bridge come to our notice. It is owned by the loop.
type watch struct {
	dumping bool
	missed  bool // reports were lost
	// early are changes that were reported before the dump was in: some of them are in it, and taking them again, in
	// order, ends in the same.
	early []openflow.FlowUpdate
	// next is when the bridge is dumped again where the switch does not report changes; zero where it does.
	next time.Time
	// fights are flows that somebody keeps changing: they are repaired ever more slowly.
	fights retries[openflow.Key]
}

// observed: the switch reports changes that are not ours, or that reports were lost.
type observed struct {
	bridge  string
	conn    Conn
	updates []openflow.FlowUpdate
	lost    bool
}

const (
	// compareEvery separates dumps of a bridge whose switch does not report changes (Open vSwitch before 3.0).
	compareEvery = time.Minute
	// fightTime is how long a flow has to be left alone for peace.
	fightTime = time.Minute
	// manyDrifts is from how many on they are counted instead of listed.
	manyDrifts = 10
)

// dump reads the flows of a bridge, and on a new connection has changes reported from then on.
func (a *Agent) dump(ctx context.Context, name string, begin bool) {
	b := a.bridge(name)
	b.watch.dumping = true
	conn, maxMeters := b.conn, b.maxMeters // they belong to the loop, and may be gone before the goroutine looks
	a.work.Go(func() {
		e := dumped{bridge: name, conn: conn, maxMeters: maxMeters}
		e.err = a.aside("reading a bridge", func() error { return a.readBridge(ctx, &e, begin) })
		a.inbox.put(e)
	})
}

// readBridge runs beside the loop.
func (a *Agent) readBridge(ctx context.Context, e *dumped, begin bool) (err error) {
	name, conn := e.bridge, e.conn
	if begin {
		// First the reports, then the dump: what happens in between is in both.
		e.unwatched = conn.Monitor(ctx, 1, openflow.Filter{Table: openflow.AllTables}, false)
		a.work.Go(func() {
			if a.aside("following a bridge", func() error { a.follow(name, conn); return nil }) != nil {
				_ = conn.Close() // the supervisor makes a new one
			}
		})
		if err = a.greet(ctx, e); err != nil {
			return err
		}
	}
	e.entries, err = conn.Flows(ctx, openflow.Filter{Table: openflow.AllTables})
	if e.maxMeters > 0 && err == nil {
		e.meters, err = conn.Meters(ctx)
	}
	return err
}

// follow passes on what the switch reports, until the connection ends.
func (a *Agent) follow(name string, conn Conn) {
	for {
		select {
		case <-conn.Done():
			return
		case e := <-conn.Events():
			o := observed{bridge: name, conn: conn}
			switch e := e.(type) {
			case openflow.EventsLost:
				o.lost = true
			case *openflow.MonitorUpdate:
				for _, u := range e.Updates {
					if u.Event == openflow.FlowAdded || u.Event == openflow.FlowDeleted || u.Event == openflow.FlowModified {
						o.updates = append(o.updates, u)
					}
				}
			}
			if o.lost || len(o.updates) > 0 {
				a.inbox.put(o)
			}
		}
	}
}

// flowsObserved takes changes that others made, and has those undone that are not theirs to make.
func (a *Agent) flowsObserved(e observed) {
	b := a.bridge(e.bridge)
	if b.conn != e.conn {
		return
	}
	if b.watch.dumping || !b.tracker.Known() {
		b.watch.early = append(b.watch.early, e.updates...)
	} else {
		a.observe(e.bridge, b, e.updates)
	}
	b.watch.missed = b.watch.missed || e.lost
}

// compared looks at what a dump brought to light that no report did.
func (a *Agent) compared(name string, b *bridge) {
	if a.swept {
		b.tracker.Sweep(ourMark)
	}
	if n := len(b.tracker.Changes()); n > 0 {
		b.repaired += uint64(n)
		a.log.Warn("repairing flows that somebody changed", "bridge", name, "flows", n)
	}
}

func (a *Agent) observe(name string, b *bridge, updates []openflow.FlowUpdate) {
	var drifts []delta.Drift
	for _, u := range updates {
		if d, ok := b.tracker.Observe(u, ourMark); ok {
			drifts = append(drifts, d)
		}
	}
	if len(drifts) == 0 {
		return
	}
	b.repaired += uint64(len(drifts))
	now := time.Now()
	for k, r := range b.watch.fights {
		if now.Sub(r.at) > fightTime {
			b.watch.fights.forget(k)
		}
	}
	for i, d := range drifts {
		wait := time.Duration(0)
		if _, again := b.watch.fights[d.Key]; again {
			wait = b.watch.fights.fail(d.Key, now)
			a.wakeUp(now.Add(wait))
		} else {
			b.watch.fights[d.Key] = retry{at: now} // the first repair is made at once
		}
		switch {
		case wait >= time.Second:
			a.repeats.log(a.log, slog.LevelWarn, "somebody keeps changing a flow of ours, repairing it more slowly",
				"bridge", name, "flow", d.Key.String())
		case i < manyDrifts:
			a.log.Warn("repairing a flow that somebody changed", "bridge", name, "was", d.Event.String(), "flow", d.Key.String(),
				"owner", owner(d), "reason", d.Reason)
		}
	}
	if len(drifts) > manyDrifts {
		a.log.Warn("repairing flows that somebody changed", "bridge", name, "flows", len(drifts))
	}
}

func owner(d delta.Drift) string {
	if d.Owner.Kind == 0 {
		return "none"
	}
	return d.Owner.String()
}

// compareUnwatched dumps bridges again whose switch does not report changes, those whose reports were lost, and those of
// which a change of ours crossed somebody else's.
func (a *Agent) compareUnwatched(ctx context.Context) {
	now := time.Now()
	for name, b := range a.wiring.bridges {
		if b.conn == nil || b.watch.dumping || !b.tracker.Known() || a.wiring.applying {
			continue // while a round is on its way the dump would be compared with what it is about to change
		}
		if due := !b.watch.next.IsZero() && !now.Before(b.watch.next); b.tracker.Unsure() || b.watch.missed || due {
			b.watch.missed = false
			a.dump(ctx, name, false)
		} else {
			a.wakeUp(b.watch.next)
		}
	}
}

// ourMark says whether a flow bears our mark and stays until it is removed.
func ourMark(e openflow.Entry) bool { return e.Cookie() == pipeline.Cookie && leftover(e) }
