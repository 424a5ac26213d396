// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Drift is a change that somebody else made to a flow that is ours to decide about.
type Drift struct {
	Key of.Key
	// Event is what was done to the flow.
	Event of.MonitorEvent
	// Owner wants the flow, for Reason. Nil and empty for a flow that bears our mark and that nothing wants.
	Owner  world.Object
	Reason string
}

// Observe takes a change that the switch reports and that is not ours. If it is drift, the next [Tracker.Changes] undo it.
//
// The rule about others: a flow that we want is ours, whoever touches it. So is one that bears our mark and stays until it
// is removed. Anything else is somebody's own, to come and go as it likes.
func (t *Tracker) Observe(u of.FlowUpdate, ours func(of.Entry) bool) (Drift, bool) {
	if !t.known {
		return Drift{}, false // the dump that is on its way tells
	}
	k := u.Entry.Key()
	t.disturbed[k] = true
	switch u.Event {
	case of.FlowAdded, of.FlowModified:
		t.set(k, u.Entry)
	case of.FlowDeleted:
		t.set(k, of.Entry{})
		delete(t.stale, k)
	default:
		return Drift{}, false
	}
	claims := t.want[k]
	switch {
	case len(claims) > 0 && same(claims[0].entry, t.have[k]):
		return Drift{}, false // put back by its remover, or what we are about to do
	case len(claims) > 0 && t.dirty[k]:
		return Drift{}, false // about to be written anyway
	case len(claims) > 0:
		t.dirty[k] = true
		return Drift{k, u.Event, claims[0].owner, claims[0].reason}, true
	case u.Event != of.FlowDeleted && !t.stale[k] && !t.dirty[k] && ours(u.Entry):
		t.dirty[k] = true
		return Drift{Key: k, Event: u.Event}, true
	}
	return Drift{}, false
}

// Unsure says that somebody changed a flow while we were changing it too: only a new dump tells who was last.
func (t *Tracker) Unsure() bool { return t.unsure }
