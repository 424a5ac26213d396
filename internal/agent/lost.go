// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// receive takes one event. Should that fail, what it leaves undone is done in another way, and the next event is taken.
func (a *Agent) receive(ctx context.Context, e any) {
	a.landed(e)
	c := culprit{name: "taking " + nameOf(e)}
	a.contain(culprit{name: "noting events"}, func() { a.note(e) })
	if r, ok := e.(*dataplane.Round); ok && r.Err != nil {
		a.mend("giving up a round of changes", func() { a.abandonRound(r) })
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
	case *dataplane.Round:
		a.dataplane.Landed()
	case saved:
		a.memory.saving = false
	case databaseAsked:
		a.database.Probed(e.err != nil, refused(e.err), time.Now())
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
	case dataplane.Reading:
		a.act(a.dataplane.ReadAbandoned(e))
	case observed:
		a.dataplane.EventsLost(e.bridge)
	case *dataplane.Round:
		a.abandonRound(e)
	case pulled:
		a.pulls.Done(e.batch, pull.Result{}, now)
	case portsReported:
		a.reports.Fail(e.batch, now)
	case saved:
		a.memory.stale = true
	case connectionsListed:
		a.zones.Abandoned(e.found, now)
	case connectionsReleased:
		a.zones.Released()
	case called:
		delete(a.extensions.calls.running, e.callKey)
		a.extensions.calls.retries.Fail(e.callKey, now)
	}
}

// missed takes that a message was lost: everything is checked, ever more rarely if that goes on.
func (a *Agent) missed() {
	now := time.Now()
	c := culprit{name: "messages that were lost"}
	if r, ok := a.contained.retries[c]; ok && now.Sub(r.At) > peace {
		a.contained.retries.Forget(c)
	}
	a.contained.retries.Fail(c, now)
	if a.resyncing.at.IsZero() {
		a.resyncing.at = a.contained.retries[c].At
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
			if g, ok := e.Extension.(*guarded); ok {
				g.owes = true
			}
		}
		a.started, a.switchUp = true, true
	})
}
