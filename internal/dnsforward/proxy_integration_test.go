// SPDX-License-Identifier: Apache-2.0

//go:build integration

package dnsforward_test

import (
	"context"

	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
)

// noProxy is a metadata proxy that listens nowhere.
type noProxy struct{}

func (noProxy) Give(*metaproxy.Service) {}

func (noProxy) Run(ctx context.Context, tell func(metaproxy.State)) error {
	tell(metaproxy.State{Listening: true})
	<-ctx.Done()
	return ctx.Err()
}
