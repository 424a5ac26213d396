// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Described is a row in plain words, for tests that stand in for the database.
type Described struct {
	Bridge, Port, Type string
	Gone               bool
	Tag                *int
	Config             map[string]string
}

// Describe tells what a row wants.
func Describe(row Row, v *ovsdb.View) Described {
	switch r := row.(type) {
	case bridgeRow:
		return Described{Bridge: r.name}
	case patchRow:
		return Described{Bridge: r.bridge, Port: r.name, Type: "patch"}
	case tunnelRow:
		return Described{Bridge: r.bridge, Port: r.name, Type: r.to.Type}
	case noTunnelRow:
		return Described{Bridge: r.bridge, Port: r.name, Gone: true}
	case noPortRow:
		return Described{Port: v.Port(r.port).Name, Gone: true}
	case apartRow:
		tag := world.DeadVLAN
		return Described{Port: v.Port(r.port).Name, Tag: &tag}
	case bindingRow:
		tag := int(r.vlan)
		return Described{Port: v.Port(r.port).Name, Tag: &tag, Config: r.config}
	}
	panic("a row of a kind that is not described")
}
