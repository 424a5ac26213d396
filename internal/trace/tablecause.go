// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/tables"
)

// Tables of the integration bridge that refuse packets.
const (
	entry         = 0
	arpSpoof      = 24
	macSpoof      = 25
	baseEgress    = 71
	rulesEgress   = 72
	rulesIngress  = 82
	droppedTable  = 93
	tunnelUnicast = 20
	tunnelFlood   = 22
)

// byTable says what it means that a packet ended where it did.
func (h *Host) byTable(j *Journey) (Verdict, bool) {
	for i := range j.Trace.Steps {
		s := &j.Trace.Steps[i]
		if slices.Contains(s.Errors, noSuchPort) {
			return h.noTunnel(s), true
		}
		if slices.Contains(s.Errors, nativeRouting) {
			return Verdict{Cause: "tunnel", Text: "this host has no route to the other end of the tunnel"}, true
		}
	}
	s := h.refusing(j)
	if s == nil {
		return Verdict{}, false
	}
	if v, ok := h.byRouter(s); ok {
		return v, true
	}
	switch h.kindOf(s.Bridge) {
	case tables.Integration:
		return h.byFilter(j, s)
	case tables.Tunnel:
		return h.byTunnel(j, s)
	case tables.Physical, tables.Integration21:
	}
	return h.byWire(j, s)
}

// refusing finds the step that decided to drop: the last one, and not the table where dropped packets end. A packet that is
// flooded also comes to bridges that have nothing to do with its network.
func (h *Host) refusing(j *Journey) *Step {
	near := j.From
	if !near.Here() {
		near = j.To
	}
	kind, _, _ := h.segment(near)
	wire := kind == "vlan" || kind == "flat"
	ours := h.Ours()
	for i := len(j.Trace.Steps) - 1; i >= 0; i-- {
		s := &j.Trace.Steps[i]
		part := h.kindOf(s.Bridge)
		switch {
		case !slices.Contains(ours, s.Bridge):
		case part == tables.Integration && s.Table == droppedTable:
		case part == tables.Tunnel && (wire || j.From.Here() && j.To.Here()):
		case part == tables.Physical && (!wire || j.From.Here() && j.To.Here()):
		default:
			return s
		}
	}
	return nil
}

// Tables of distributed routing that refuse packets.
const (
	routedTunnel     = 1 // of the integration bridge, packets of other hosts' routers
	routedPhysical   = 2 // the same from physical networks
	answeredTunnel   = 3 // of the integration bridge, packets to this host's router address
	answeredPhysical = 4 // the same from physical networks
	leavingRouter    = 1 // of the tunnel bridge and of physical ones, packets of this host's routers
	keptPriority     = 2 // there, of flows that keep what is for a gateway on the host
	notAskedPriority = 3 // in the table of broadcasts, of flows that keep requests for a gateway on the host
)

// byRouter: a table of distributed routing has no use for the packet, or keeps it on the host.
func (h *Host) byRouter(s *Step) (Verdict, bool) {
	refused := func(otherwise string) (Verdict, bool) {
		return Verdict{Cause: "router", Text: fmt.Sprintf("distributed routing does not send it on in %s: %s", h.place(s), h.Named(s.reason(otherwise)))}, true
	}
	drops := s.Missed || slices.Equal(s.Actions, []string{"drop"})
	switch kind := h.kindOf(s.Bridge); {
	case !drops:
	case kind == tables.Integration && (s.Table == routedTunnel || s.Table == routedPhysical):
		return refused("it was sent by a router of another host, and no port here is routed for that has its address")
	case kind == tables.Integration && (s.Table == answeredTunnel || s.Table == answeredPhysical):
		return refused("it is for this host's router address, and no interface of a router here is in its network")
	case kind != tables.Integration && s.Table == leavingRouter && s.Priority == keptPriority:
		return refused("a router's interface with that address is on every host")
	case kind == tables.Tunnel && s.Table == tunnelFlood && s.Priority == notAskedPriority:
		return refused("a router's interface with that address is on every host, and is not asked for elsewhere")
	}
	return Verdict{}, false
}

func (h *Host) byFilter(j *Journey, s *Step) (Verdict, bool) {
	switch s.Table {
	case rulesEgress:
		return h.refused(j.From, "egress", &j.Packet), true
	case rulesIngress:
		return h.refused(h.filtering(j, s), "ingress", &j.Packet), true
	case baseEgress:
		if s.Priority == 70 {
			return Verdict{
				Cause: "port-security", Text: fmt.Sprintf("port security of %s does not let it pass: %s", j.From, strings.TrimPrefix(s.reason("it must not act as a DHCP server or router"), "the port ")),
				Hints: []string{"switch off port security of the port if its VM is meant to do that"},
			}, true
		}
		return h.spoofed(j), true
	case arpSpoof, macSpoof:
		return h.spoofed(j), true
	case entry:
		if s.Priority == 0 || s.Missed {
			if j.From.Here() {
				return Verdict{Cause: "not-ready", Text: fmt.Sprintf("the filters of %s are not in place, so nothing of it may pass", j.From)}, true
			}
		}
		if p := h.arrived(s); p != nil && p.Type == "patch" && s.Priority <= 2 {
			return Verdict{Cause: "vlan", Text: fmt.Sprintf("this host has no network with that VLAN: nothing takes it over from %s", p.Name)}, true
		}
	}
	return Verdict{}, false
}

// reason is the agent's, or what stands for it without one.
func (s *Step) reason(otherwise string) string {
	if s.Reason == "" {
		return otherwise
	}
	return s.Reason
}

// filtering finds the end whose filters a step belongs to.
func (h *Host) filtering(j *Journey, s *Step) *End {
	if j.To.Here() {
		return j.To
	}
	for i := range h.Ports {
		if s.Owner == "port "+h.Ports[i].ID {
			return &End{Port: &h.Ports[i], Plug: h.plugged(h.Ports[i].ID)}
		}
	}
	return j.To
}

// spoofed: the port sends under an address that is not its own.
func (h *Host) spoofed(j *Journey) Verdict {
	e, p := j.From, &j.Packet
	what := p.Src.String()
	if !strings.EqualFold(p.SrcMAC, e.MAC) {
		what = p.SrcMAC + " with " + what
	}
	v := Verdict{Cause: "spoofed", Text: fmt.Sprintf("%s sends under %s, which port security does not let it", e, what)}
	var own []string
	for _, a := range h.Addresses(e) {
		own = append(own, a.String())
	}
	text := "its own addresses are " + e.MAC + " with " + strings.Join(own, ", ")
	if e.Port != nil {
		for _, pair := range e.Port.Pairs {
			text += fmt.Sprintf("; and by its address pairs %s with %s", pair.MAC, pair.IP)
		}
	}
	v.Hints = append(v.Hints, text)
	if o := h.owner(p.Src, e); o != "" {
		v.Hints = append(v.Hints, fmt.Sprintf("%s is an address of %s", p.Src, o))
	} else {
		v.Hints = append(v.Hints, "if its VM may use the address, add an allowed address pair to the port")
	}
	return v
}

// owner finds another port with an address.
func (h *Host) owner(a netip.Addr, not *End) string {
	for i := range h.Ports {
		p := &h.Ports[i]
		if (not.Port == nil || p.ID != not.Port.ID) && p.Network == not.network() && slices.Contains(p.Addresses, a.String()) {
			return "port " + portName(p)
		}
	}
	return ""
}

// arrived is the interface by which the packet came to the bridge of a step.
func (h *Host) arrived(s *Step) *Interface {
	return h.numbered(s.Bridge, number(inPort, s.Match))
}

func (h *Host) byTunnel(j *Journey, s *Step) (Verdict, bool) {
	switch s.Table {
	case tunnelFlood, tunnelUnicast:
		if v, ok := h.wrongVLAN(j); ok {
			return v, true
		}
		v := Verdict{Cause: "tunnel", Text: fmt.Sprintf("no tunnel of this host leads to where %s is", j.To)}
		if n := h.network(j.From.network()); n != nil && len(n.Endpoints) == 0 {
			v.Hints = append(v.Hints, fmt.Sprintf("the server has told of no other host with network %s; it does when a port of it is ACTIVE there", short(n.ID)))
		}
		for _, t := range h.Tunnels {
			if t.State != "up" {
				v.Hints = append(v.Hints, fmt.Sprintf("the %s tunnel to %s is %s %s", t.Type, t.Remote, t.State, t.Error))
			}
		}
		return v, true
	case 3, 4, 6:
		return Verdict{Cause: "network", Text: "no port of this host is in the network with that number"}, true
	case entry:
		return Verdict{Cause: "tunnel", Text: "packets that come in there belong to no tunnel that this host knows"}, true
	}
	return Verdict{}, false
}

// noTunnel: a flow sends to a port that is not there.
func (h *Host) noTunnel(s *Step) Verdict {
	to := "the other host"
	ofport := ""
	for _, a := range s.Actions {
		if m := outputTo.FindStringSubmatch(a); m != nil {
			ofport = m[1]
		}
	}
	for _, t := range h.Tunnels {
		if t.State == "missing" || fmt.Sprint(t.OFPort) == ofport {
			to = t.Remote
		}
	}
	if h.kindOf(s.Bridge) != tables.Tunnel {
		return Verdict{Cause: "patch", Text: fmt.Sprintf("%s sends it to port %s of %s, which does not exist", h.place(s), ofport, s.Bridge)}
	}
	return Verdict{Cause: "tunnel", Text: fmt.Sprintf("the tunnel to %s is missing: %s sends it to port %s, which does not exist", to, h.place(s), ofport)}
}

// byWire: a physical bridge has no use for the VLAN.
func (h *Host) byWire(j *Journey, s *Step) (Verdict, bool) {
	if !slices.Equal(s.Actions, []string{"drop"}) {
		return Verdict{}, false
	}
	if v, ok := h.wrongVLAN(j); ok {
		return v, true
	}
	return Verdict{Cause: "wire", Text: fmt.Sprintf("%s has no network for its VLAN", h.place(s))}, true
}
