// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/runner"
)

// What effects are carried out on.
type (
	// Conn is what the agent uses of *openflow.Conn.
	Conn = effect.Conn
	// Link is the state of a connection to a bridge: a new one, or why there is none.
	Link = runner.Link
	// Conntrack is what the agent uses of connection tracking. A zone is a local VLAN.
	Conntrack = runner.Conntrack
	// Limits is what the agent uses of limits of tracked connections. A zone is a local VLAN.
	Limits = dataplane.Limiter
	// Rules is what the agent uses of iptables.
	Rules = runner.Rules
	// Forwarding is what the agent uses of forwarding tables of devices.
	Forwarding = runner.Forwarding
	// Metadata is what the agent uses of the metadata proxy.
	Metadata = runner.Metadata
	// Resolver is what the agent uses of DNS.
	Resolver = runner.Resolver
	// Progress is how far the agent has come.
	Progress = effect.Progress
	// Records are lines of an extension's log.
	Records = effect.WriteRecords
)
