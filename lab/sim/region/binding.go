// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"fmt"
	"slices"
)

// bind looks for a segment that the agent of the binding's host can wire. It tells whether there is something to tell.
func (s *Region) bind(p *Port, b *Binding) bool {
	if b.Host == "" || b.VIFType == bound {
		return false
	}
	b.VIFType = failed
	a := s.agents[b.Host]
	if a == nil || !a.Alive() {
		return true
	}
	for _, seg := range s.networks[p.NetworkID].Segments {
		switch seg.NetworkType {
		case "flat", "vlan":
			if _, ok := a.conf.BridgeMappings[seg.PhysicalNetwork]; !ok {
				continue
			}
		case "local":
		default:
			if !slices.Contains(a.conf.TunnelTypes, seg.NetworkType) {
				continue
			}
		}
		b.VIFType, b.Segment = bound, seg
		b.details = fmt.Sprintf(`{"connectivity": "l2", "port_filter": true, "ovs_hybrid_plug": %t, "datapath_type": %q, "bridge_name": %q}`,
			a.conf.HybridPlug, a.conf.DatapathType, a.conf.Bridge)
		break
	}
	return true
}

// OfferBinding adds an inactive binding on another host, as a live migration begins.
func (s *Region) OfferBinding(ctx context.Context, id, host string) error {
	return s.do(ctx, func() error {
		p := s.ports[id]
		if p == nil {
			return notFound("port", id)
		}
		b := &Binding{Host: host, Status: inactive, VIFType: unbound}
		s.bind(p, b)
		p.Bindings = append(p.Bindings, b)
		s.touched(p)
		return nil
	})
}

// ActivateBinding makes the binding on the host the one that counts.
func (s *Region) ActivateBinding(ctx context.Context, id, host string) error {
	return s.do(ctx, func() error {
		p := s.ports[id]
		if p == nil {
			return notFound("port", id)
		}
		for _, b := range p.Bindings {
			if b.Host != host || b.Status != inactive {
				continue
			}
			old := p.active()
			old.Status, old.VIFType, old.Segment, old.details = inactive, unbound, nil, ""
			b.Status, p.Status = active, down
			s.touched(p)
			s.pushed("Port", p.ID)
			return nil
		}
		return notFound("inactive binding on", host)
	})
}

// DropBinding deletes a binding.
func (s *Region) DropBinding(ctx context.Context, id, host string) error {
	return s.do(ctx, func() error {
		p := s.ports[id]
		if p == nil {
			return notFound("port", id)
		}
		p.Bindings = slices.DeleteFunc(p.Bindings, func(b *Binding) bool { return b.Host == host })
		s.touched(p)
		return nil
	})
}
