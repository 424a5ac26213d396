// SPDX-License-Identifier: Apache-2.0

package dvr

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// The keys of calls: the list of router addresses, and the gateway of a subnet.
type (
	listCall    struct{}
	gatewayCall struct{ subnet string }
)

func (listCall) String() string      { return "router addresses" }
func (k gatewayCall) String() string { return "gateway of subnet " + k.subnet }

// errNoAddress: the server took the question and gave this host no address. It is asked again.
var errNoAddress = errors.New("the server has no router address for this host")

// Calls implements extension.Caller. The list is asked for first: it names this host, too, unless the host is new, and then
// asking for its address makes one.
func (r *routing) Calls() []extension.Call {
	var out []extension.Call
	if !r.current || r.mac == (neutron.MAC{}) {
		self := r.w.Config.Host
		out = append(out, extension.Call{Key: listCall{}, Run: func(ctx context.Context, s *neutron.Server) (any, error) {
			all, err := s.DVRAddresses(ctx)
			if err != nil || slices.ContainsFunc(all, func(m neutron.DVRMAC) bool { return m.Host == self }) {
				return all, err
			}
			mac, err := s.DVRAddress(ctx)
			if err == nil && mac == (neutron.MAC{}) {
				err = errNoAddress
			}
			return append(all, neutron.DVRMAC{Host: self, MAC: mac}), err
		}})
	}
	for _, id := range slices.Sorted(maps.Keys(r.subnets)) {
		s := r.subnets[id]
		if gateways, central := r.gateways(s); s.answered || len(gateways) == 1 || len(gateways) == 0 && !central {
			continue
		}
		out = append(out, extension.Call{Key: gatewayCall{id}, Run: func(ctx context.Context, s *neutron.Server) (any, error) {
			return s.DVRGateway(ctx, id)
		}})
	}
	return out
}

// OnCall implements extension.Caller. What failed is still listed.
func (r *routing) OnCall(k extension.Key, result any, err error) {
	if err != nil {
		return
	}
	switch k := k.(type) {
	case listCall:
		r.onList(result.([]neutron.DVRMAC))
	case gatewayCall:
		s := r.subnets[k.subnet]
		if s == nil {
			return
		}
		s.pulled, s.answered = result.(neutron.MAC), true
		r.resolveSubnet(k.subnet)
		s.answered = true // until something changes here, also if there is none
	}
}

// onList takes the router addresses of all hosts. What was sent to all hosts since the call is newer, and complete but for a host that
// has just asked.
func (r *routing) onList(all []neutron.DVRMAC) {
	if r.current {
		all = slices.DeleteFunc(all, func(m neutron.DVRMAC) bool { return m.Host != r.w.Config.Host })
		for mac := range r.macs {
			all = append(all, neutron.DVRMAC{MAC: mac})
		}
	}
	r.learn(all)
	r.current = true
}
