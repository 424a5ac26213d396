// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
)

// Metadata is what effects use of the metadata proxy: [metaproxy.Proxy].
type Metadata interface {
	// Give gives the proxy what it is to be, and does not wait.
	Give(s *metaproxy.Service)
	// Run is the proxy, until ctx ends. It tells how the proxy is whenever that changes.
	Run(ctx context.Context, tell func(metaproxy.State)) error
}

// Resolver is what effects use of DNS: [resolver.Client].
type Resolver interface {
	// Ask asks for the answer to a question, and waits for it no longer than the question says.
	Ask(ctx context.Context, a resolver.Ask) (resolver.Answer, error)
}

// askResolver asks resolvers.
func (r *Runner) askResolver(ctx context.Context, e effect.AskResolver) effect.Event {
	out := effect.ResolverAnswered{Extension: e.Extension, Bridge: e.Bridge, Conn: e.Conn}
	out.Err = r.try("asking resolvers", func() (err error) {
		out.Answer, err = r.cfg.Resolver.Ask(ctx, e.Ask)
		return err
	})
	out.Answer.Number = e.Ask.Number // also after a panic
	return out
}

// serve gives a service what it is to be, and runs it if it does not run yet.
func (r *Runner) serve(ctx context.Context, e effect.Serve) {
	r.cfg.Metadata.Give(e.Service)
	if !e.Begin {
		return
	}
	r.work.Go(func() {
		err := r.try("serving metadata", func() error {
			return r.cfg.Metadata.Run(ctx, func(s metaproxy.State) { r.put(effect.Served{Extension: e.Extension, State: s}) })
		})
		if ctx.Err() == nil {
			r.put(effect.Served{Extension: e.Extension, Err: err})
		}
	})
}
