// SPDX-License-Identifier: Apache-2.0

// Package quiet is an extension as an example: a port whose interface has a tag sends no IPv4 multicasts. Its inputs
// are the ports of the world and the external_ids of their interfaces; its output is a flow of table 0. No agent loads it.
// docs/tutorial/first-extension.md explains it line by line.
package quiet

import (
	"net/netip"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// New returns the maker of the extension. Tag is the key in external_ids of an interface, as an option would set it.
func New(tag string) extension.New {
	return func(w *world.World) extension.Extension { return &quiet{w, tag} }
}

type quiet struct {
	w   *world.World
	tag string
}

// Name implements extension.Extension.
func (*quiet) Name() string { return "quiet" }

// Resolve implements extension.Extension. It returns nothing: a port is compiled whenever its interface changes, and the extension knows
// nothing besides.
func (*quiet) Resolve([]world.Object) []world.Object { return nil }

// Compile implements extension.Extension.
func (q *quiet) Compile(o world.Object, want *pipeline.Want) {
	p := q.tagged(o)
	if p == nil {
		return
	}
	want.Flow(q.w.Config.IntegrationBridge, "a quiet port sends no multicasts", of.Flow{
		Table: 0, Priority: 300, // without actions: dropped
		Match: of.Match{of.FromPort(p.VIF.OFPort), of.Num(of.EthType, 0x0800), of.IP(of.IPv4Dst, netip.MustParsePrefix("224.0.0.0/4"))},
	})
}

// Explain implements extension.Explainer, which is optional.
func (q *quiet) Explain(o world.Object) []string {
	if q.tagged(o) == nil {
		return nil
	}
	return []string{"quiet: sends no IPv4 multicasts, because its interface has the tag " + q.tag}
}

// tagged returns the port that an object is, if the port is wired and its interface has the tag.
func (q *quiet) tagged(o world.Object) *world.Port {
	id, ok := world.PortID(o)
	if !ok {
		return nil
	}
	p := q.w.Port(id)
	if p == nil || p.Wiring.State != world.Wired {
		return nil // gone, or not ready: its OpenFlow port number may be unknown
	}
	if i := q.w.View.Interface(p.VIF.Interface); i == nil || i.ExternalIDs[q.tag] != "true" {
		return nil
	}
	return p
}
