// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// timelines holds when each port reached which stage, for the log and for people. It is owned by the loop.
type timelines struct {
	of       map[string]*timeline
	lastPlug time.Time // when a port was plugged in last
}

// timeline is when a port reached which stage. A mark records the time of the event, not of the next report.
type timeline struct {
	plugged, answered, applied time.Time
	reported                   time.Time // up
	state                      string    // as recorded last
}

// markPlugged begins the timeline of a port.
func (t *timelines) markPlugged(port string, now time.Time) {
	if t.of[port] == nil {
		t.of[port], t.lastPlug = &timeline{plugged: now}, now
	}
}

// markAnswered records when the server first told about a port.
func (t *timelines) markAnswered(port string, now time.Time) {
	if l := t.of[port]; l != nil && l.answered.IsZero() {
		l.answered = now
	}
}

// markApplied records when everything that a port wants was first in place, after the server told about it.
func (t *timelines) markApplied(port string, now time.Time) {
	if l := t.of[port]; l != nil && !l.answered.IsZero() && l.applied.IsZero() {
		l.applied = now
	}
}

// restart begins the timeline of a port that is reported up once more, unless that has begun already.
func (t *timelines) restart(port string, now time.Time) {
	if l := t.of[port]; l != nil && l.answered != l.plugged {
		*l = timeline{plugged: now, answered: now, applied: now, state: l.state}
	}
}

// markPlugged begins the timeline of a port when it is plugged in, and ends it when the port is gone.
func (a *Core) markPlugged(port string) {
	if a.world.Port(port) == nil {
		delete(a.timelines.of, port)
	} else {
		a.timelines.markPlugged(port, a.turn.now())
	}
	a.noteDecision(port)
}

// markApplied records that an object is in place.
func (a *Core) markApplied(o world.Object, now time.Time) {
	if o.Kind == world.KindPort {
		a.timelines.markApplied(o.ID, now)
	}
}
