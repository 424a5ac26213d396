// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// Crossing is the way over a router that has interfaces on this host: into it by one, out of it by another.
type Crossing struct {
	Router string // id
	In     *End   // the interface in the sender's network
	// Out is the interface in the receiver's network, and To the receiver as seen from there; nil when it is not known where the
	// receiver is.
	Out, To *End
}

// Across finds the way over a router to an address of another network than the port's. It returns nil when both are in one
// network, and when no router has an interface in the port's network here.
func (h *Host) Across(from, to *End, address netip.Addr) *Crossing {
	if !from.Here() || to.MAC != "" && (!to.Here() || to.network() == from.network()) {
		return nil
	}
	routed := func(p *inspect.Port) bool {
		return p.Role == routerInterface && slices.ContainsFunc(p.Addresses, func(text string) bool {
			a, err := netip.ParseAddr(text)
			return err == nil && a.Is4() == address.Is4()
		})
	}
	var first *Crossing
	for _, in := range h.ends(func(p *inspect.Port) bool { return routed(p) && p.Network == from.network() }) {
		if from.Port != nil && in.Port.ID == from.Port.ID {
			return nil // the router itself sends it
		}
		for _, out := range h.ends(func(p *inspect.Port) bool {
			return routed(p) && p.Network != from.network() && p.Device == in.Port.Device
		}) {
			if end := h.seenFrom(&out, to); end != nil {
				return &Crossing{Router: in.Port.Device, In: &in, Out: &out, To: end}
			}
		}
		if first == nil {
			first = &Crossing{Router: in.Port.Device, In: &in}
		}
	}
	return first
}

// Asks is the command that asks the router where a packet goes.
func (c *Crossing) Asks(p *Packet) string {
	return fmt.Sprintf("ip netns exec qrouter-%s ip route get %s from %s iif qr-%.11s", c.Router, p.Dst, p.Src, c.In.Port.ID)
}

// routerInterface is the role of a router's port in a network.
const routerInterface = "router interface"

// ends are the ports of this host that are of a kind.
func (h *Host) ends(are func(p *inspect.Port) bool) []End {
	var out []End
	for i := range h.Ports {
		if p := &h.Ports[i]; are(p) {
			e := End{Port: p, Plug: h.plugged(p.ID), MAC: p.MAC, given: p.ID}
			if list := h.Addresses(&e); len(list) > 0 {
				e.IP = list[0]
			}
			out = append(out, e)
		}
	}
	return out
}

// seenFrom is an end as a member of a port's network; nil when nobody here knows it as one.
func (h *Host) seenFrom(p, e *End) *End {
	for _, c := range h.candidates(e.given) {
		if c.network() == p.network() {
			return &c
		}
	}
	if s := h.station(e.given, []End{*p}); s.MAC != "" && !e.Here() {
		return &s
	}
	return nil
}
