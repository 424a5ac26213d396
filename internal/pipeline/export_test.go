// SPDX-License-Identifier: Apache-2.0

package pipeline

import "github.com/patchbay-sdn/patchbay/internal/ovsdb"

// Described is a row in plain words, for tests that stand in for the database.
type Described struct {
	Bridge, Port, Type string
	Gone               bool
	Tag                *int
	Config             map[string]string
}

// Describe tells what a row wants.
func Describe(row ovsdb.Spec, v *ovsdb.View) Described {
	switch r := row.(type) {
	case ovsdb.BridgeSpec:
		return Described{Bridge: r.Name}
	case ovsdb.PortSpec:
		return Described{Bridge: r.Bridge, Port: r.Name, Type: r.Type}
	case ovsdb.AbsentPort:
		if r.Port != "" {
			r.Name = v.Port(r.Port).Name
		}
		return Described{Bridge: r.Bridge, Port: r.Name, Gone: true}
	case ovsdb.IsolationSpec:
		return Described{Port: v.Port(r.Port).Name, Tag: &r.VLAN}
	case ovsdb.AccessSpec:
		return Described{Port: v.Port(r.Port).Name, Tag: &r.Tag, Config: r.OtherConfig}
	}
	panic("a row of a kind that is not described")
}
