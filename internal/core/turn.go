// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
)

// turn is the step that is being taken: its time, and what it has led to so far.
type turn struct {
	at      time.Time
	effects []effect.Effect
	// wakeAt is when the loop has to go round again; zero: when something happens. It stays from step to step until that time has come.
	wakeAt   time.Time
	progress *effect.Progress
}

// begin begins a step, or goes on with one.
func (t *turn) begin(now time.Time) {
	t.at = now
	if !t.wakeAt.After(now) {
		t.wakeAt = time.Time{}
	}
}

// now returns the time of the step.
func (t *turn) now() time.Time { return t.at }

// start has an effect carried out at the end of the step, after those before it.
func (t *turn) start(e effect.Effect) { t.effects = append(t.effects, e) }

// wakeUp has the loop go round at a time, if that is not zero, or earlier.
func (t *turn) wakeUp(at time.Time) {
	if at.IsZero() || !t.wakeAt.IsZero() && t.wakeAt.Before(at) {
		return
	}
	t.wakeAt = at
}

// take returns what the step has led to.
func (t *turn) take() effect.Effects {
	out := effect.Effects{Do: t.effects, Progress: t.progress, Wake: t.wakeAt}
	t.effects, t.progress = nil, nil
	return out
}
