// SPDX-License-Identifier: Apache-2.0

// Package metaproxy answers the metadata requests of VMs on this host: an HTTP proxy between them and Nova's metadata service.
//
// In: a [Service], which says where to listen and who asks from which address. Out: [State], and requests to Nova that carry the instance's
// identity and its signature. The switch gives every VM a provider address of its own and lets no packet pass that another VM has sent under it, so the source
// address of a connection says who asks. Nothing that a client says about itself reaches Nova.
//
// service.go has what is given, link.go and host.go keep the network device that the proxy listens on, proxy.go answers requests, limit.go bounds them,
// serve.go keeps the listener, leftover.go ends the haproxy of a Python agent that ran before.
package metaproxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// Service is what the proxy is to be: where it listens, and whom it answers. It does not change once it is given.
type Service struct {
	Device  string       // whose address it listens on
	MAC     openflow.MAC // of the device
	Address netip.Prefix // of the device
	Port    uint16
	Clients map[netip.Addr]Client // by provider address
}

// Client is who asks from a provider address.
type Client struct {
	Instance string     // Nova's id
	Project  string     // of the instance's port
	Address  netip.Addr // the VM's own
}

// Listen returns the address and port that the proxy listens on.
func (s *Service) Listen() netip.AddrPort { return netip.AddrPortFrom(s.Address.Addr(), s.Port) }

// String prints everything, in a stable order.
func (s *Service) String() string {
	lines := []string{fmt.Sprintf("metadata at %s on %s %s", s.Listen(), s.Device, s.MAC)}
	for _, ip := range slices.SortedFunc(maps.Keys(s.Clients), netip.Addr.Compare) {
		c := s.Clients[ip]
		lines = append(lines, fmt.Sprintf("\t%s is %s of instance %s, project %s", ip, c.Address, c.Instance, c.Project))
	}
	return strings.Join(lines, "\n")
}

// State is how the proxy is. Reason says why it does not listen.
type State struct {
	Listening bool
	Reason    string
}
