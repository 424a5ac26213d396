// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pull"
)

// receive takes one event. Should that fail, what it leaves undone is done in another way, and the next event is taken.
func (a *Core) receive(e effect.Event) {
	switch e := e.(type) {
	case effect.SwitchChanged:
		if !a.contain(culprit{name: "taking rows of the switch"}, func() { a.switchChanged(e.Batch) }) {
			a.rowsLost(e.Batch)
		}
		return
	case effect.ReportDue:
		a.contain(culprit{name: "reporting the agent's state"}, func() {
			a.world.Expire(a.turn.now())
			a.sendReport()
		})
		return
	}
	a.landed(e)
	if p := (*effect.Panic)(nil); errors.As(effect.Failure(e), &p) {
		a.tally(culprit{name: p.What}, p)
	}
	c := culprit{name: "taking " + nameOf(e)}
	a.contain(culprit{name: "noting events"}, func() { a.note(e) })
	if r, ok := e.(effect.Applied); ok && r.Err != nil {
		a.mend("giving up a round of changes", func() { a.abandonRound(r.Round) })
		return
	}
	if !a.contain(c, func() { a.event(e) }) {
		a.mend("giving up "+nameOf(e), func() { a.abandon(e) })
	}
}

// nameOf is the name of an event for people.
func nameOf(e effect.Event) string {
	if m, ok := e.(effect.Message); ok {
		return "a message of topic " + m.Topic
	}
	return fmt.Sprintf("%T", e)
}

// landed takes that work beside the loop has come to its end, whatever becomes of its outcome.
func (a *Core) landed(e effect.Event) {
	switch e := e.(type) {
	case effect.Registered:
		a.registration.inFlight = false
	case effect.StateReported:
		a.report.inFlight = false
	case effect.Applied:
		a.dataplane.Landed()
	case effect.Saved:
		a.memory.saving = false
	case effect.DatabaseAsked:
		a.database.Probed(e.Err != nil, refused(e.Err), a.turn.now())
	}
}

// abandon gives up an event that could not be taken, as if its outcome had been a failure. It may have been taken half-way.
func (a *Core) abandon(e effect.Event) {
	now := a.turn.now()
	switch e := e.(type) {
	case effect.Message, effect.Broker:
		a.missed()
	case effect.Registered:
		if a.versions == nil {
			a.registration.again(now)
		}
	case effect.BridgeLinked:
		if e.Conn != nil {
			a.hangUp(e.Conn)
		}
	case effect.FlowsRead:
		a.act(a.dataplane.ReadAbandoned(e.Reading))
	case effect.FlowsChanged:
		a.dataplane.EventsLost(e.Bridge)
	case effect.Applied:
		a.abandonRound(e.Round)
	case effect.Pulled:
		a.pulls.Done(e.Batch, pull.Result{}, now)
	case effect.PortsReported:
		a.reports.Fail(e.Batch, now)
	case effect.Saved:
		a.memory.stale = true
	case effect.ConnectionsListed:
		a.zones.Abandoned(e.Found, now)
	case effect.ConnectionsReleased:
		a.zones.Released()
	case effect.Called:
		delete(a.extensions.calls.running, e.CallKey)
		a.extensions.calls.retries.Fail(e.CallKey, now)
	}
}

// missed takes that a message was lost: everything is checked, ever more rarely if that goes on.
func (a *Core) missed() {
	now := a.turn.now()
	c := culprit{name: "messages that were lost"}
	if r, ok := a.contained.retries[c]; ok && now.Sub(r.At) > peace {
		a.contained.retries.Forget(c)
	}
	a.contained.retries.Fail(c, now)
	if a.resyncing.at.IsZero() {
		a.resyncing.at = a.contained.retries[c].At
		a.turn.wakeUp(a.resyncing.at)
	}
}

// rowsLost takes a batch of rows that could not be taken: what follows from all rows is worked out again.
func (a *Core) rowsLost(b *ovsdb.Batch) {
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
