// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// view looks at the decisions of an agent whose loop is at rest, or is the caller.
func (a *Agent) view() core.View { return a.core.Look(time.Now()) }

func (a *Agent) world() *world.World { return a.view().World }

// open returns whether nothing blocks a scope.
func (a *Agent) open(s gate.Scope) bool { return gate.Open(gate.Blockers(a.view().Facts(s)), s) }

// frames names the functions that the caller is in.
func frames() string { return string(debug.Stack()) }

// What the core does, as it shows.
const (
	brokerUnverified = "the certificate of the broker is not verified: set [oslo_messaging_rabbit] ssl_ca_file"
	switchAdvisories = "this Open vSwitch has published vulnerabilities, see patchbay status and docs/explanation/security-model.md"
	asItWas          = "its last flows and rows stay"
	shutOut          = "nothing passes"
	fdbGrace         = 30 * time.Second // how long forwarding entries may take
	spread           = 2 * time.Second  // over which hosts begin to check after a gap
	maxReasons       = 50               // of one message in the log
)

// sleep waits, or returns ctx's error when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// hung is a connection on which nothing happens.
type hung struct{ Conn }
