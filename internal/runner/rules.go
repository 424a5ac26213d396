// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
)

// Rules is what effects use of iptables: [iptables.Host].
type Rules interface {
	Read(ctx context.Context) (iptables.State, error)
	Apply(ctx context.Context, c *iptables.Changes) error
	// Other returns the program that shows rules of the agent in another back end.
	Other(ctx context.Context) (string, error)
	// End deletes tracked connections, and returns how many there were.
	End(ctx context.Context, all []iptables.Connections) (int, error)
}

// rulesTimeout bounds one effect of iptables: one that hangs would keep all new ports waiting. It is longer than iptables waits for its lock.
const rulesTimeout = time.Minute

// rules carries out an effect of iptables.
func (r *Runner) rules(ctx context.Context, e effect.Effect) effect.Event {
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	switch e := e.(type) {
	case effect.ReadRules:
		out := effect.RulesRead{Asked: e.Other}
		out.Err = r.try("reading iptables rules", func() (err error) {
			if out.State, err = r.cfg.Rules.Read(ctx); err == nil && e.Other {
				out.Other, err = r.cfg.Rules.Other(ctx)
			}
			return err
		})
		return out
	case effect.ApplyRules:
		return effect.RulesApplied{Changes: e.Changes, Err: r.try("writing iptables rules", func() error { return r.cfg.Rules.Apply(ctx, e.Changes) })}
	case effect.EndConnections:
		var out effect.ConnectionsEnded
		out.Err = r.try("deleting tracked connections", func() (err error) {
			out.N, err = r.cfg.Rules.End(ctx, e.Connections)
			return err
		})
		return out
	}
	return nil
}
