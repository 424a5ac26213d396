// SPDX-License-Identifier: Apache-2.0

// Package localip is the extension local_ip: an address that several ports of a network have, each for its own host. What a port sends to the address
// goes to the port of the same host that is associated with it; on a host without one it goes to whoever has the address in the network.
//
// The server is asked for the associations of ports here, and pushes their changes; the snapshot keeps them. What is known is a set by port (server.go):
// flows follow from it and from how the port is plugged in now, so that they come back with the port and with the switch. This file decides which port
// an address leads to, flows.go translates.
package localip

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// name is that in agent.extensions.
const name = "local_ip"

// LocalIP is the extension. It belongs to the agent's loop.
type LocalIP struct {
	w      *world.World
	static bool // [LOCAL_IP] static_nat

	ports    map[string]*port // of guests, wired here, by id
	recalled map[string]map[string]association
	segments map[world.SegmentKey]*segment
	missing  map[string]bool // ports whose associations are asked for
	touched  map[world.SegmentKey]bool
	dirty    map[world.Object]bool
	warnings []string
}

// port is a port with its associations, by local IP.
type port struct {
	segment world.SegmentKey
	has     map[string]association
	listed  bool // the server has told them
	pushed  bool // one was pushed since they are asked for
}

// association is an address that leads to a port, as far as it can be used.
type association struct {
	Local   netip.Addr `json:"local"`             // the address that clients know
	Fixed   netip.Addr `json:"fixed"`             // that of the port
	Problem string     `json:"problem,omitempty"` // why it cannot be used
}

// segment is what ports of one network here share.
type segment struct {
	ports map[string]bool
	leads map[netip.Addr]string // ports that addresses lead to
}

// New returns the maker of the extension. Static is whether connections are translated without connection tracking, but for ICMP.
func New(static bool) extension.New {
	return func(w *world.World) extension.Extension {
		return &LocalIP{
			w: w, static: static, ports: map[string]*port{}, recalled: map[string]map[string]association{}, segments: map[world.SegmentKey]*segment{},
			missing: map[string]bool{}, touched: map[world.SegmentKey]bool{}, dirty: map[world.Object]bool{},
		}
	}
}

// Name implements extension.Extension.
func (*LocalIP) Name() string { return name }

// Resolve implements extension.Extension.
func (l *LocalIP) Resolve(changed []world.Object) []world.Object {
	for _, o := range changed {
		if id, ok := world.PortID(o); ok {
			l.settle(id)
		} else if o == world.BridgeObject(l.w.Config.IntegrationBridge) {
			l.renumber()
		}
	}
	for key := range l.touched {
		l.choose(key)
	}
	clear(l.touched)
	return extension.TakeDirty(l.dirty)
}

// guest returns the port with an id, if it is a guest's and wired here. Ports of Neutron's own agents neither answer for an address nor use it.
func (l *LocalIP) guest(id string) *world.Port {
	p := l.w.Port(id)
	if p == nil || p.Wiring.State != world.Wired || p.VIF == nil || p.VIF.OFPort == 0 || p.Details == nil || neutron.IsNetworkOwned(p.Details.DeviceOwner) {
		return nil
	}
	return p
}

// settle notes in which network a port is. Associations are asked for when it comes, since those of ports elsewhere are not kept.
func (l *LocalIP) settle(id string) {
	have, p := l.ports[id], l.guest(id)
	if p == nil {
		if have != nil {
			delete(l.ports, id)
			delete(l.missing, id)
			l.leave(id, have.segment)
		}
		return
	}
	if have == nil {
		have = &port{has: world.TakeRecalled(l.w, l.recalled, id)}
		if have.has == nil {
			have.has = map[string]association{}
		}
		l.ports[id], l.missing[id] = have, true
	} else if have.segment != p.Wiring.Segment {
		l.leave(id, have.segment)
	}
	have.segment = p.Wiring.Segment
	if l.segments[have.segment] == nil {
		l.segments[have.segment] = &segment{ports: map[string]bool{}, leads: map[netip.Addr]string{}}
	}
	l.segments[have.segment].ports[id] = true
	l.touched[have.segment] = true
}

// leave takes a port out of its network.
func (l *LocalIP) leave(id string, key world.SegmentKey) {
	delete(l.segments[key].ports, id)
	l.touched[key] = true
}

// renumber has ports that addresses lead to compiled again: patches of the bridge may have other numbers.
func (l *LocalIP) renumber() {
	for _, s := range l.segments {
		for _, id := range s.leads {
			l.dirty[world.PortObject(id)] = true
		}
	}
}

// choose finds the port that each address of a network leads to: of several, the one with the lowest id. If that has changed, all ports of the
// network here are compiled again.
func (l *LocalIP) choose(key world.SegmentKey) {
	s, leads := l.segments[key], map[netip.Addr]string{}
	for id := range s.ports {
		for _, a := range l.ports[id].has {
			if l.problem(id, a) != "" {
				continue
			}
			if best := leads[a.Local]; best == "" || id < best {
				leads[a.Local] = id
			}
		}
	}
	if len(s.ports) == 0 {
		delete(l.segments, key)
	}
	if maps.Equal(leads, s.leads) {
		return
	}
	s.leads = leads
	for id := range s.ports {
		l.dirty[world.PortObject(id)] = true
	}
}

// problem returns why an association of a port cannot be used; "" if it can.
func (l *LocalIP) problem(id string, a association) string {
	if a.Problem != "" {
		return a.Problem
	}
	if p := l.guest(id); p == nil || !slices.ContainsFunc(p.Details.FixedIPs, func(f neutron.FixedIP) bool { return f.IP == a.Fixed }) {
		return fmt.Sprintf("the port does not have the address %s any more", a.Fixed)
	}
	return ""
}

// active returns the associations by which addresses lead to a port, sorted by address.
func (l *LocalIP) active(id string) []association {
	have := l.ports[id]
	if have == nil {
		return nil
	}
	var out []association
	for _, key := range slices.Sorted(maps.Keys(have.has)) {
		a := have.has[key]
		if l.problem(id, a) == "" && l.segments[have.segment].leads[a.Local] == id && !slices.ContainsFunc(out, func(b association) bool { return a.Local == b.Local }) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b association) int { return a.Local.Compare(b.Local) })
	return out
}

// Explain implements extension.Explainer.
func (l *LocalIP) Explain(o world.Object) []string {
	id, ok := world.PortID(o)
	have := l.ports[id]
	if !ok || have == nil {
		return nil
	}
	var out []string
	if !have.listed && len(have.has) == 0 {
		out = append(out, "local_ip: waits for the server to list the port's local IPs")
	}
	leads := l.segments[have.segment].leads
	for _, key := range slices.Sorted(maps.Keys(have.has)) {
		a := have.has[key]
		switch winner := leads[a.Local]; {
		case l.problem(id, a) != "":
			out = append(out, fmt.Sprintf("local_ip: local IP %s is left out: %s", key, l.problem(id, a)))
		case winner != id:
			out = append(out, fmt.Sprintf("local_ip: %s does not lead to the port, because it leads to port %s of this host, whose id is lower", a.Local, winner))
		default:
			out = append(out, fmt.Sprintf("local_ip: %s leads to the port at %s, for ports of its network on this host", a.Local, a.Fixed))
		}
	}
	var others []string
	for _, address := range slices.SortedFunc(maps.Keys(leads), netip.Addr.Compare) {
		if leads[address] != id {
			others = append(others, address.String()+" to port "+leads[address])
		}
	}
	if len(others) > 0 {
		out = append(out, "local_ip: what the port sends is led from "+strings.Join(others, ", from "))
	}
	return out
}

// Warnings implements extension.Warner.
func (l *LocalIP) Warnings() []string {
	out := l.warnings
	l.warnings = nil
	return out
}
