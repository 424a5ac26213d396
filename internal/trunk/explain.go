// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"fmt"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Explain implements extension.Explainer.
func (t *trunks) Explain(o world.Object) []string {
	id, ok := world.PortID(o)
	if !ok {
		return nil
	}
	for _, b := range t.bridges {
		if b.parent.id == id {
			return b.explain()
		}
		if b.trunk == nil {
			continue
		}
		for _, s := range b.trunk.SubPorts {
			if s.PortID == id {
				return []string{fmt.Sprintf("trunk: sub-port of trunk %s, whose VM sends it under VLAN %d through %s", b.trunk.ID, s.SegmentationID, b.name)}
			}
		}
	}
	return nil
}

func (b *bridge) explain() []string {
	switch {
	case b.trunk == nil && !b.answered:
		return []string{"trunk: plugged into " + b.name + "; the server has not told yet whose bridge that is"}
	case b.trunk == nil:
		return []string{"trunk: plugged into " + b.name + ", but the server knows no trunk of this port there"}
	}
	out := []string{fmt.Sprintf("trunk: parent of trunk %s on %s; sub-ports: %d", b.trunk.ID, b.name, len(b.trunk.SubPorts))}
	for _, s := range b.trunk.SubPorts {
		line := fmt.Sprintf("trunk: VLAN %d is sub-port %s", s.SegmentationID, s.PortID)
		if ok, asked := b.bound[s.PortID]; uncarriable(s) {
			line += ", which is not wired: VLANs are 1 to 4094"
		} else if asked && !ok {
			line += ", which the server could not bind"
		} else if !asked {
			line += ", which the server has not bound yet"
		}
		out = append(out, line)
	}
	return out
}
