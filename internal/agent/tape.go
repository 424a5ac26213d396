// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/effect"
)

// tape records the inputs of the core, and what it printed of its effects, for tests that play them again. A nil one records nothing.
type tape struct {
	cfg    core.Config
	saved  *core.Saved
	began  time.Time
	inputs []input
}

// input is a call of [core.Core.Take], or of [core.Core.Step].
type input struct {
	now    time.Time
	events []effect.Event
	step   bool
	out    string
}

func (t *tape) begin(cfg core.Config, saved *core.Saved, now time.Time) {
	if t != nil {
		t.cfg, t.saved, t.began = cfg, saved, now
	}
}

func (t *tape) took(now time.Time, e effect.Event) {
	if t != nil {
		t.inputs = append(t.inputs, input{now: now, events: []effect.Event{e}})
	}
}

// stepped is called before effects are carried out: a round notes in itself what became of it.
func (t *tape) stepped(now time.Time, events []effect.Event, out effect.Effects) {
	if t != nil {
		t.inputs = append(t.inputs, input{now, events, true, out.String()})
	}
}
