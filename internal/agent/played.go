// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/effect"
)

// Of returns an agent that answers questions about a core whose steps somebody else makes. It is not run.
func Of(c *core.Core, r *core.Recorder) *Agent {
	return &Agent{core: c, recorder: r, inbox: newMailbox[effect.Event](), asked: make(chan func(core.View)), ended: make(chan struct{})}
}

// Answer answers questions about the core as of a time, until ctx ends. The core makes no step meanwhile.
func (a *Agent) Answer(ctx context.Context, now time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case answer := <-a.asked:
			answer(a.core.Look(now))
		}
	}
}
