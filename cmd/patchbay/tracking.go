// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// trackConnections says where filters have connections forgotten and limited, and fragments dropped: nowhere without filters that are flows.
func trackConnections(cfg *agent.Config, o *options.Options) (err error) {
	if !cfg.World.Filter || cfg.World.Hybrid {
		return nil
	}
	if cfg.Conntrack, err = conntrack.New(o.OVS.DatapathType, runDir(o)); err != nil {
		return fmt.Errorf("[ovs] datapath_type: %w", err)
	}
	limits := conntrack.NewLimiter(o.OVS.DatapathType, runDir(o), filepath.Join(o.Default.StatePath, "patchbay.ct-limits"))
	limits.DropFragments = o.Patchbay.DropFragments && o.OVS.DatapathType == "netdev"
	cfg.ConntrackLimit = uint32(o.Patchbay.ConntrackLimit) //nolint:gosec // bounded by its type
	cfg.Limits, cfg.DropFragments = limits, limits.DropFragments
	return nil
}
