// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"encoding/json"
	"slices"
)

// Trunk is a trunk: a port whose frames carry those of others.
type Trunk struct {
	ID, PortID, Status string
	SubPorts           []SubPort
	stamp
}

// SubPort is one of the others, and the VLAN that its frames have.
type SubPort struct {
	PortID  string `json:"port_id"`
	TrunkID string `json:"trunk_id"`
	Type    string `json:"segmentation_type"`
	VLAN    int    `json:"segmentation_id"`
}

func (s SubPort) object() primitive {
	return whole("SubPort", fields{"port_id": s.PortID, "trunk_id": s.TrunkID, "segmentation_type": s.Type, "segmentation_id": s.VLAN})
}

func (t *Trunk) object() primitive {
	subs := []primitive{}
	for _, sub := range t.SubPorts {
		subs = append(subs, as(sub.object(), "1.0"))
	}
	return whole("Trunk", fields{
		"id": t.ID, "port_id": t.PortID, "name": "", "project_id": "", "admin_state_up": true, "status": t.Status, "sub_ports": subs,
	}.stamped(t.stamp))
}

// CreateTrunk makes a trunk of a port, under an id that the caller chooses.
func (s *Region) CreateTrunk(ctx context.Context, id, parent string, subs ...SubPort) error {
	return s.do(ctx, func() error {
		if s.ports[parent] == nil {
			return notFound("port", parent)
		}
		t := &Trunk{ID: id, PortID: parent, Status: down, stamp: born()}
		s.trunks[t.ID] = t
		s.join(t, subs)
		s.pushedNow("Trunk", "created", t.object())
		return nil
	})
}

// AddSubPorts adds sub-ports to a trunk. Agents are told of the sub-ports alone.
func (s *Region) AddSubPorts(ctx context.Context, id string, subs ...SubPort) error {
	return s.changeTrunk(ctx, id, func(t *Trunk) {
		s.join(t, subs)
		for _, sub := range t.SubPorts[len(t.SubPorts)-len(subs):] {
			s.pushedNow("SubPort", "created", sub.object())
		}
	})
}

// RemoveSubPorts takes sub-ports away.
func (s *Region) RemoveSubPorts(ctx context.Context, id string, ports ...string) error {
	return s.changeTrunk(ctx, id, func(t *Trunk) {
		t.SubPorts = slices.DeleteFunc(t.SubPorts, func(sub SubPort) bool {
			gone := slices.Contains(ports, sub.PortID)
			if gone {
				s.pushedNow("SubPort", "deleted", sub.object())
			}
			return gone
		})
	})
}

func (s *Region) changeTrunk(ctx context.Context, id string, change func(*Trunk)) error {
	return s.do(ctx, func() error {
		t := s.trunks[id]
		if t == nil {
			return notFound("trunk", id)
		}
		t.Status = down
		t.touch()
		change(t)
		return nil
	})
}

func (s *Region) join(t *Trunk, subs []SubPort) {
	for _, sub := range subs {
		sub.TrunkID, sub.Type = t.ID, "vlan"
		t.SubPorts = append(t.SubPorts, sub)
	}
}

// subPortBindings binds sub-ports to the host of their parents, and answers with the ports by trunk.
func (s *Region) subPortBindings(raw json.RawMessage) (any, error) {
	args, err := arguments[struct {
		SubPorts []SubPort `json:"subports"`
	}](raw)
	if err != nil {
		return nil, err
	}
	bound := map[string][]fields{}
	for _, sub := range args.SubPorts {
		t, p := s.trunks[sub.TrunkID], s.ports[sub.PortID]
		if t == nil || p == nil {
			continue
		}
		t.Status = "BUILD"
		parent, b := s.ports[t.PortID], p.active()
		if parent != nil && b.Host != parent.Host() {
			b.Host, b.VIFType, b.Segment, b.details = parent.Host(), unbound, nil, ""
			p.Status = down
			s.hold(p)
			s.bind(p, b)
			s.touched(p)
			s.pushed("Port", p.ID)
		}
		bound[t.ID] = append(bound[t.ID], p.attributes())
	}
	return bound, nil
}

func (s *Region) trunkStatus(raw json.RawMessage) (any, error) {
	args, err := arguments[struct {
		Trunk  string `json:"trunk_id"`
		Status string `json:"status"`
	}](raw)
	if t := s.trunks[args.Trunk]; err == nil && t != nil {
		t.Status = args.Status
	}
	return nil, err
}

// TrunkStatus is the status of a trunk; empty when there is none of that id.
func (s *Region) TrunkStatus(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.trunks[id]; t != nil {
		return t.Status
	}
	return ""
}
