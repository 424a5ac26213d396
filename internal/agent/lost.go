// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// receive takes one event. Should that fail, what it leaves undone is done in another way, and the next event is taken.
func (a *Agent) receive(ctx context.Context, e any) {
	a.landed(e)
	c := culprit{name: "taking " + nameOf(e)}
	a.contain(culprit{name: "noting events"}, func() { a.note(e) })
	if p, ok := e.(*plan); ok && p.broken != nil {
		a.mend("giving up a round of changes", func() { a.abandonPlan(p) })
		return
	}
	if !a.contain(c, func() { a.event(ctx, e) }) {
		a.mend("giving up "+nameOf(e), func() { a.abandon(ctx, e) })
	}
}

// nameOf is the name of an event for people.
func nameOf(e any) string {
	if m, ok := e.(*messaging.Message); ok {
		return "a message of topic " + m.Topic
	}
	return fmt.Sprintf("%T", e)
}

// landed takes that work beside the loop has come to its end, whatever becomes of its outcome.
func (a *Agent) landed(e any) {
	switch e := e.(type) {
	case reported:
		a.report.inFlight = false
	case *plan:
		a.wiring.applying = false
	case askedAbout:
		if e.check {
			a.ports.checking--
		} else {
			a.ports.asking--
		}
	case itemsAnswered:
		if e.check {
			a.filters.checking--
		} else {
			a.filters.asking--
		}
	case toldAbout:
		if e.report != a.ports.report {
			return // given up before
		}
		if e.check {
			a.ports.refreshing = false
		} else {
			a.ports.telling = false
		}
		for _, id := range e.ports() {
			delete(a.ports.onWay, id)
		}
	case saved:
		a.memory.saving = false
	case databaseAsked:
		a.database.asking = false
	case pulled:
		a.extensions.pulls--
	case failedAside:
		a.tally(culprit{name: e.what}, e.err)
	}
}

// abandon gives up an event that could not be taken, as if its outcome had been a failure. It may have been taken half-way.
func (a *Agent) abandon(ctx context.Context, e any) {
	now := time.Now()
	switch e := e.(type) {
	case *messaging.Message, messaging.Event:
		a.missed()
	case registered:
		if a.versions == nil {
			a.work.Go(func() {
				if sleep(ctx, alivePause) == nil {
					a.register(ctx)
				}
			})
		}
	case linked:
		if e.link.Conn != nil {
			_ = e.link.Conn.Close() // the supervisor makes a new one
		}
	case dumped:
		if b := a.bridge(e.bridge); b.conn == e.conn && b.conn != nil {
			b.watch.dumping = false
			b.tracker.Lost()
			_ = b.conn.Close()
		}
	case observed:
		a.bridge(e.bridge).watch.missed = true
	case *plan:
		a.abandonPlan(e)
	case askedAbout:
		for _, id := range e.ids {
			a.ports.retries.fail(id, now)
		}
		a.world.Unanswered(e.ids)
	case itemsAnswered:
		for _, item := range e.items {
			a.filters.retries.fail(item.String(), now)
		}
		a.world.NoAnswer(e.items)
	case toldAbout:
		for _, id := range e.ports() {
			a.ports.retries.fail(id, now)
			a.ports.changed[id] = true
		}
		a.wakeUp(a.ports.retries.next())
	case synced:
		a.tunnels[e.tunnelType] = tunnelUnsynced
		a.tunnelRetries.fail(e.tunnelType, now)
		a.wakeUp(a.tunnelRetries.next())
	case saved:
		a.memory.stale = true
	case listed:
		a.tracking.running = false
		for zone := range e.zones {
			a.tracking.marked[zone] = marked{at: now.Add(time.Second)}
		}
	case unmarked:
		a.tracking.running = false
	case pulled:
		for _, errand := range e.errands {
			delete(a.extensions.running, errand)
			a.extensions.retries.fail(errand, now)
		}
	case taskEnded:
		delete(a.extensions.running, e.errand)
		a.extensions.retries.fail(e.errand, now)
	}
}

// abandonPlan takes that nobody knows what became of a round of changes: the bridges are read again.
func (a *Agent) abandonPlan(p *plan) {
	a.wiring.seq = max(a.wiring.seq, p.seq)
	for _, o := range p.owners {
		if _, wanted := a.wiring.wants[o]; wanted {
			a.wiring.unsettled[o] = true
		}
	}
	for _, b := range p.bundles {
		maps.Copy(a.tracking.due, b.zones)
		if now := a.bridge(b.name); now.conn == b.conn {
			now.tracker.Lost()
			now.meters.Lost()
			_ = b.conn.Close()
		}
	}
}

// missed takes that a message was lost: everything is checked, ever more rarely if that goes on.
func (a *Agent) missed() {
	now := time.Now()
	c := culprit{name: "messages that were lost"}
	if r, ok := a.contained.retries[c]; ok && now.Sub(r.at) > peace {
		a.contained.retries.forget(c)
	}
	a.contained.retries.fail(c, now)
	if a.resyncing.at.IsZero() {
		a.resyncing.at = a.contained.retries[c].at
		a.wakeUp(a.resyncing.at)
	}
}

// rowsLost takes a batch of rows that could not be taken: what follows from all rows is worked out again.
func (a *Agent) rowsLost(b *ovsdb.Batch) {
	if b.Kind == ovsdb.Disconnected {
		a.switchUp = false
		return
	}
	a.mend("rebuilding from rows", func() {
		if a.world.View.Seq() < b.Seq {
			a.world.View.Apply(b)
		}
		a.world.Rebuild()
		for _, e := range a.extensions.Set {
			if g, ok := e.(*guarded); ok {
				g.owes = true
			}
		}
		a.started, a.switchUp = true, true
	})
}
