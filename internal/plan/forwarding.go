// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"sync"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
)

// tables are the forwarding tables of the host's devices, read once. From then on the loop writes to a copy of them.
type tables struct {
	agent.Forwarding
	mu    sync.Mutex
	state forwarding.Tables
	lines []string
}

// Read implements agent.Forwarding.
func (t *tables) Read(ctx context.Context, devices []string) (forwarding.Tables, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == nil {
		read, err := t.Forwarding.Read(ctx, devices)
		if err != nil {
			return nil, err
		}
		t.state = read
	}
	return t.state, nil
}

// Change implements agent.Forwarding.
func (t *tables) Change(_ context.Context, c forwarding.Changes) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.lines = t.state.After(c), append(t.lines, c.Lines()...)
	return nil
}

// Watch implements agent.Forwarding. Nothing changes while a plan is made.
func (*tables) Watch(ctx context.Context, _ []string, _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}
