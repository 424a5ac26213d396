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
	acceptedTable = 91 // and 92: of the extension log
	droppedTable  = 93
	tunnelUnicast = 20
	tunnelFlood   = 22
)

// byTable says what it means that a packet ended where it did.
func (j *judge) byTable() (Verdict, bool) {
	for i := range j.Trace.Steps {
		s := &j.Trace.Steps[i]
		if slices.Contains(s.Errors, noSuchPort) {
			return j.noTunnel(s), true
		}
		if slices.Contains(s.Errors, nativeRouting) {
			return Verdict{Cause: "tunnel", Text: "this host has no route to the other end of the tunnel"}, true
		}
	}
	s := j.refusing()
	if s == nil {
		return Verdict{}, false
	}
	if v, ok := j.byRouter(s); ok {
		return v, true
	}
	switch j.h.kindOf(s.Bridge) {
	case tables.Integration:
		return j.byFilter(s)
	case tables.Tunnel:
		return j.byTunnel(s)
	case tables.Physical, tables.Integration21:
	}
	return j.byWire(s)
}

// refusing finds the step that decided to drop: the last one, and not the table where dropped packets end. A packet that is
// flooded also comes to bridges that have nothing to do with its network.
func (j *judge) refusing() *Step {
	near := j.From
	if !near.Here() {
		near = j.To
	}
	kind, _, _ := j.h.segment(near)
	wire := kind == "vlan" || kind == "flat"
	ours := j.h.Ours()
	for i := len(j.Trace.Steps) - 1; i >= 0; i-- {
		s := &j.Trace.Steps[i]
		part := j.h.kindOf(s.Bridge)
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
func (j *judge) byRouter(s *Step) (Verdict, bool) {
	refused := func(otherwise string) (Verdict, bool) {
		return Verdict{Cause: "router", Text: fmt.Sprintf("distributed routing does not send it on in %s: %s", s.place(), j.h.Named(s.reason(otherwise)))}, true
	}
	drops := s.Missed || slices.Equal(s.Actions, []string{"drop"})
	switch kind := j.h.kindOf(s.Bridge); {
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

func (j *judge) byFilter(s *Step) (Verdict, bool) {
	switch s.Table {
	case rulesEgress:
		return j.refused(j.From, "egress"), true
	case rulesIngress:
		return j.refused(j.filtering(s), "ingress"), true
	case baseEgress:
		if s.Priority == 70 {
			return Verdict{
				Cause: "port-security", Text: fmt.Sprintf("port security of %s does not let it pass: %s", j.From, strings.TrimPrefix(s.reason("it must not act as a DHCP server or router"), "the port ")),
				Hints: []string{"switch off port security of the port if its VM is meant to do that"},
			}, true
		}
		return j.spoofed(), true
	case arpSpoof, macSpoof:
		return j.spoofed(), true
	case entry:
		if s.Priority == 0 || s.Missed {
			if j.From.Here() {
				return Verdict{Cause: "not-ready", Text: fmt.Sprintf("the filters of %s are not in place, so nothing of it may pass", j.From)}, true
			}
		}
		if p := j.arrived(s); p != nil && p.Type == "patch" && s.Priority <= 2 {
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
func (j *judge) filtering(s *Step) *End {
	if j.To.Here() {
		return j.To
	}
	for i := range j.h.Ports {
		if s.Owner == "port "+j.h.Ports[i].ID {
			return &End{Port: &j.h.Ports[i], Plug: j.h.plugged(j.h.Ports[i].ID)}
		}
	}
	return j.To
}

// spoofed: the port sends under an address that is not its own.
func (j *judge) spoofed() Verdict {
	e, p := j.From, &j.Packet
	what := p.Src.String()
	if !strings.EqualFold(p.SrcMAC, e.MAC) {
		what = p.SrcMAC + " with " + what
	}
	v := Verdict{Cause: "spoofed", Text: fmt.Sprintf("%s sends under %s, which port security does not let it", e, what)}
	var own []string
	for _, a := range j.h.Addresses(e) {
		own = append(own, a.String())
	}
	text := "its own addresses are " + e.MAC + " with " + strings.Join(own, ", ")
	if e.Port != nil {
		for _, pair := range e.Port.Pairs {
			text += fmt.Sprintf("; and by its address pairs %s with %s", pair.MAC, pair.IP)
		}
	}
	v.Hints = append(v.Hints, text)
	if o := j.owner(p.Src, e); o != "" {
		v.Hints = append(v.Hints, fmt.Sprintf("%s is an address of %s", p.Src, o))
	} else {
		v.Hints = append(v.Hints, "if its VM may use the address, add an allowed address pair to the port")
	}
	return v
}

// owner finds another port with an address.
func (j *judge) owner(a netip.Addr, not *End) string {
	for i := range j.h.Ports {
		p := &j.h.Ports[i]
		if (not.Port == nil || p.ID != not.Port.ID) && p.Network == not.network() && slices.Contains(p.Addresses, a.String()) {
			return "port " + portName(p)
		}
	}
	return ""
}

// arrived is the interface by which the packet came to the bridge of a step.
func (j *judge) arrived(s *Step) *Interface {
	return j.h.numbered(s.Bridge, number(inPort, s.Match))
}

func (j *judge) byTunnel(s *Step) (Verdict, bool) {
	switch s.Table {
	case tunnelFlood, tunnelUnicast:
		if v, ok := j.wrongVLAN(); ok {
			return v, true
		}
		v := Verdict{Cause: "tunnel", Text: fmt.Sprintf("no tunnel of this host leads to where %s is", j.To)}
		if n := j.h.network(j.From.network()); n != nil && len(n.Endpoints) == 0 {
			v.Hints = append(v.Hints, fmt.Sprintf("the server has sent no forwarding entries of other hosts for network %s; it sends them when a port of it is ACTIVE there", short(n.ID)))
		}
		for _, t := range j.h.Tunnels {
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
func (j *judge) noTunnel(s *Step) Verdict {
	to := "the other host"
	ofport := ""
	for _, a := range s.Actions {
		if m := outputTo.FindStringSubmatch(a); m != nil {
			ofport = m[1]
		}
	}
	for _, t := range j.h.Tunnels {
		if t.State == "missing" || fmt.Sprint(t.OFPort) == ofport {
			to = t.Remote
		}
	}
	if j.h.kindOf(s.Bridge) != tables.Tunnel {
		return Verdict{Cause: "patch", Text: fmt.Sprintf("%s sends it to port %s of %s, which does not exist", s.place(), ofport, s.Bridge)}
	}
	return Verdict{Cause: "tunnel", Text: fmt.Sprintf("the tunnel to %s is missing: %s sends it to port %s, which does not exist", to, s.place(), ofport)}
}

// byWire: a physical bridge has no use for the VLAN.
func (j *judge) byWire(s *Step) (Verdict, bool) {
	if !slices.Equal(s.Actions, []string{"drop"}) {
		return Verdict{}, false
	}
	if v, ok := j.wrongVLAN(); ok {
		return v, true
	}
	return Verdict{Cause: "wire", Text: fmt.Sprintf("%s has no network for its VLAN", s.place())}, true
}
