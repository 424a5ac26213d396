// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/fdb"
	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
)

// extensions makes those that the options name, in their order, after those that have an option of their own. Names that
// Patchbay does not have were refused before; see options.Extensions.
func extensions(o *options.Options) []extension.New {
	devices, _ := o.FDB.Devices() // checked before
	makers := map[string]extension.New{"qos": qos.New, "fdb": fdb.New(devices)}
	var out []extension.New
	if o.Agent.DistributedRouting {
		out = append(out, dvr.New)
	}
	if o.OVS.TrunkEnabled {
		out = append(out, trunk.New)
	}
	for _, name := range o.Agent.Extensions {
		if m := makers[name]; m != nil {
			out = append(out, m)
		}
	}
	return out
}
