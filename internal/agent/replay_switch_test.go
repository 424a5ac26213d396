// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/parity"
)

// rows changes the switch's rows as others than the agent did.
func (h *replay) rows(changes []parity.RowChange) {
	h.ovs.mu.Lock()
	gone := false
	for _, c := range changes {
		switch {
		case ofTrunk(c.Name): // made by the agent
		case c.Table == "Bridge" && c.Deleted:
			h.ovs.DeleteBridge(c.Name)
			gone = true
		case c.Table == "Bridge":
			row := h.ovs.bridge(c.Name)
			row["datapath_type"], row["external_ids"] = c.DatapathType, mapValue(c.ExternalIDs)
		case c.Deleted:
			h.ovs.DeletePort(c.Name)
		case c.Tag != nil:
			if row := h.ovs.named("Port", c.Name); row != nil {
				row["tag"] = float64(*c.Tag)
				if *c.Tag < 0 {
					row["tag"] = fake.Set[any]()
				}
			}
		default:
			h.ovs.port(c)
		}
	}
	h.ovs.run()
	h.ovs.mu.Unlock()
	if gone && h.broker != nil {
		h.broker.life.drop()
	}
}

// ofTrunk tells the patches that the agent makes for a trunk; the recorded agent's stand among the rows, too.
func ofTrunk(name string) bool {
	return slices.ContainsFunc([]string{"tpi-", "tpt-", "spi-", "spt-"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

func (o *fakeOVS) named(table, name string) map[string]any {
	for _, row := range o.rows[table] {
		if row["name"] == name {
			return row
		}
	}
	return nil
}

// bridge returns the row of a bridge, which is made with its own port when there is none.
func (o *fakeOVS) bridge(name string) map[string]any {
	if o.named("Bridge", name) == nil {
		o.AddBridge(name, nil)
		o.AddPort(name, name, o.again(name), 0, nil)
		o.named("Interface", name)["type"] = "internal"
	}
	return o.named("Bridge", name)
}

// again counts how often a port of this name was made, so that no row comes a second time.
func (o *fakeOVS) again(name string) int {
	if o.incarnations == nil {
		o.incarnations = map[string]int{}
	}
	o.incarnations[name]++
	return o.incarnations[name]
}

// port makes or changes a port with its interface. What the agent has written on it stays.
func (o *fakeOVS) port(c parity.RowChange) {
	iface := o.named("Interface", c.Name)
	if iface == nil {
		o.bridge(c.Bridge)
		o.AddPort(c.Bridge, c.Name, o.again(c.Name), 0, nil)
		iface = o.named("Interface", c.Name)
	}
	ids := maps.Clone(c.ExternalIDs)
	for _, key := range []string{"bridge_name", "trunk_id", "subport_ids"} {
		delete(ids, key)
		if own, ok := entriesOf(iface["external_ids"])[key]; ok {
			ids[key] = fmt.Sprint(own)
		}
	}
	iface["type"], iface["external_ids"], iface["ofport"] = c.Type, mapValue(ids), fake.Set[any]()
	if c.OFPort != nil {
		iface["ofport"] = float64(*c.OFPort)
	}
	if c.Options != nil {
		iface["options"] = mapValue(c.Options)
	}
}
