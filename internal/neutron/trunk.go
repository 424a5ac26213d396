// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// TrunkActive is the status of a trunk that is wired with all its sub-ports.
const TrunkActive = "ACTIVE"

// trunkVersion is the version of Trunk in every release since 17.
const trunkVersion = "1.1"

// TrunksOf returns the trunks whose parents are among the ports given.
func (s *Server) TrunksOf(ctx context.Context, ports []string) ([]Trunk, error) {
	found, err := s.bulkPull(ctx, KindTrunk, trunkVersion, map[string]any{"port_id": ports})
	if err != nil {
		return nil, err
	}
	return DecodeAll[Trunk](KindTrunk, found)
}

// BoundSubPort is a sub-port that the server has bound.
type BoundSubPort struct {
	ID  string `json:"id"`
	MAC MAC    `json:"mac_address"`
}

// BindSubPorts has the server bind sub-ports to the host of their trunk, and returns those that it has bound. It takes the trunk
// for being built until its status is reported.
func (s *Server) BindSubPorts(ctx context.Context, subPorts []SubPort) ([]BoundSubPort, error) {
	var bound map[string][]BoundSubPort // by trunk
	if err := s.trunk(ctx, "update_subport_bindings", map[string]any{"subports": subPorts}, &bound); err != nil {
		return nil, err
	}
	var out []BoundSubPort
	for _, ports := range bound {
		out = append(out, ports...)
	}
	return out, nil
}

// TrunkStatus reports how a trunk is.
func (s *Server) TrunkStatus(ctx context.Context, trunk, status string) error {
	return s.trunk(ctx, "update_trunk_status", map[string]any{"trunk_id": trunk, "status": status}, nil)
}

func (s *Server) trunk(ctx context.Context, method string, args, result any) error {
	return s.caller.Call(ctx, messaging.Target{Topic: topicTrunk, Namespace: topicTrunk, Version: "1.0"}, method, args, result)
}
