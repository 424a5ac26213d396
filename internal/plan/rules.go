// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"strings"
	"sync"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
)

// rules are the host's rules of iptables, read once. From then on the loop writes to a copy of them.
type rules struct {
	agent.Rules
	mu    sync.Mutex
	state *iptables.State
	lines []string
}

// Read implements agent.Rules.
func (r *rules) Read(ctx context.Context) (iptables.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == nil {
		read, err := r.Rules.Read(ctx)
		if err != nil {
			return read, err
		}
		r.state = &read
	}
	return *r.state, nil
}

// Apply implements agent.Rules.
func (r *rules) Apply(_ context.Context, c *iptables.Changes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	after, err := r.state.After(c)
	if err != nil {
		return err
	}
	r.state = &after
	for _, part := range []struct{ program, text string }{
		{"ipset", c.Sets}, {"iptables", c.Rules[0]}, {"ip6tables", c.Rules[1]}, {"ipset", c.Unused},
	} {
		for line := range strings.Lines(part.text) {
			if line != "COMMIT\n" && !strings.HasPrefix(line, "*") {
				r.lines = append(r.lines, part.program+" "+strings.TrimSuffix(line, "\n"))
			}
		}
	}
	return nil
}

// End implements agent.Rules.
func (r *rules) End(context.Context, []iptables.Connections) (int, error) { return 0, nil }
