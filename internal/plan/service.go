// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"sync"

	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
)

// service is the metadata proxy of a plan: it listens nowhere, and notes what its device lacks.
type service struct {
	look func(ctx context.Context, device string) (metaproxy.Link, error)
	mu   sync.Mutex
	last *metaproxy.Service
}

// Give implements agent.Metadata.
func (s *service) Give(to *metaproxy.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = to
}

// Run implements agent.Metadata.
func (*service) Run(ctx context.Context, tell func(metaproxy.State)) error {
	tell(metaproxy.State{Listening: true})
	<-ctx.Done()
	return ctx.Err()
}

// lines returns what makes the device as it is to be, as commands.
func (s *service) lines(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return nil, nil
	}
	link, err := s.look(ctx, s.last.Device)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range s.last.Lacks(link) {
		out = append(out, c.Line(s.last.Device))
	}
	return out, nil
}
