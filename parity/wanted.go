// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"maps"
	"regexp"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// leftOnPorts finds what the core writes down on a port, which stays there when the port is admin down.
var leftOnPorts = regexp.MustCompile(`^Port \S+ other_config:(net_uuid|network_type|physical_network|segmentation_id|tag)=`)

// Wanted writes the rows that there are, but for what the core leaves on ports, and the flows and meters that are wanted: sorted lines.
func (n *Names) Wanted(v *ovsdb.View, flows map[string]map[openflow.Key]openflow.Flow, meters []openflow.MeterDesc) []string {
	lines := append(slices.DeleteFunc(n.Rows(v), leftOnPorts.MatchString), n.Meters("br-int", meters)...)
	for bridge, list := range flows {
		lines = append(lines, n.Flows(bridge, slices.Collect(maps.Values(list)))...)
	}
	slices.Sort(lines)
	return lines
}
