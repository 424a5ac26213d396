// SPDX-License-Identifier: Apache-2.0

package metaproxy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// Link is a network device as far as the proxy needs it. Its index is 0 if it does not exist.
type Link struct {
	Index     int
	MAC       openflow.MAC
	Up        bool
	Addresses []netip.Prefix // IPv4
}

// Change is something to change about a device: one field is set.
type Change struct {
	MAC    openflow.MAC
	Up     bool
	Add    netip.Prefix
	Delete netip.Prefix
}

// Lacks returns what makes a device as the service needs it, in order. The device is the proxy's alone: other IPv4 addresses go.
func (s *Service) Lacks(l Link) []Change {
	var out []Change
	if l.MAC != s.MAC {
		out = append(out, Change{MAC: s.MAC})
	}
	for _, a := range l.Addresses {
		if a != s.Address {
			out = append(out, Change{Delete: a})
		}
	}
	if !slices.Contains(l.Addresses, s.Address) {
		out = append(out, Change{Add: s.Address})
	}
	if !l.Up {
		out = append(out, Change{Up: true})
	}
	return out
}

// Line returns the change as a command.
func (c Change) Line(device string) string {
	switch {
	case c.MAC != openflow.MAC{}:
		return fmt.Sprintf("ip link set %s address %s", device, c.MAC)
	case c.Add.IsValid():
		return fmt.Sprintf("ip address add %s dev %s", c.Add, device)
	case c.Delete.IsValid():
		return fmt.Sprintf("ip address delete %s dev %s", c.Delete, device)
	}
	return fmt.Sprintf("ip link set %s up", device)
}
