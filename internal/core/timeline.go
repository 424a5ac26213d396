// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// timelines holds when each port reached which stage, for the log and for people.
type timelines struct {
	room
	of       map[string]*timeline
	lastPlug time.Time         // when a port was plugged in last
	took     inspect.Histogram // from plug to the server's answer
}

func newTimelines(r room) timelines {
	return timelines{room: r, of: map[string]*timeline{}, took: inspect.NewHistogram(.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120)}
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

// placed records that an object is in place.
func (t *timelines) placed(o world.Object, now time.Time) {
	if o.Kind == world.KindPort {
		t.markApplied(o.ID, now)
	}
}

// wired counts a port that the server now knows to be up.
func (t *timelines) wired(l *timeline, now time.Time) {
	l.reported = now
	t.took.Observe(now.Sub(l.plugged))
}

// decided begins the timeline of a port when it is plugged in, and ends it when the port is gone. It takes down what was decided about the port,
// if that is new.
func (t *timelines) decided(port string) {
	p := t.world.Port(port)
	if p == nil {
		delete(t.of, port)
		t.log.note(note{kind: kindPort, what: "unplugged", subject: port})
		return
	}
	t.markPlugged(port, t.now())
	if state := fmt.Sprintf("%s, %s", p.Wiring.State, p.Wiring.Reason); t.of[port].state != state {
		t.of[port].state = state
		t.log.note(note{kind: kindPort, what: state, subject: port})
	}
}
