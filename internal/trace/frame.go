// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// Flooded is the outcome of a broadcast or multicast: it goes on by one way or several.
const Flooded = "flooded"

// Port returns the port of this host that a word means.
func (h *Host) Port(ref string) (*End, error) {
	switch found := h.candidates(ref); len(found) {
	case 0:
		return nil, fmt.Errorf("%q is no port of this host: not by id, name, interface or address", ref)
	case 1:
		return &found[0], nil
	default:
		var names []string
		for i := range found {
			names = append(names, h.described(&found[i]))
		}
		return nil, fmt.Errorf("%q may be %s: say which by its id", ref, strings.Join(names, " or "))
	}
}

// Device returns the interface through which a port's frames pass, and the tag that they have there: of a trunk's sub-port those of the
// trunk's parent. It returns nil for a port that is not plugged in.
func (h *Host) Device(e *End) (device *Interface, vlan int) {
	if device, vlan = h.behind(e.Plug); device != nil {
		return device, vlan
	}
	return e.Plug, 0
}

// JudgeFrame says what becomes of a frame that a port of this host has sent: the switch's trace of it tells the way.
func (h *Host) JudgeFrame(from *End, p Packet, t *Trace, ports map[uint32]string) Verdict {
	to := h.receiver(from, p.DstMAC)
	if p.Dst.IsValid() {
		to.IP = p.Dst
	}
	j := &judge{&Journey{From: from, To: to, Packet: p, Trace: t, Ports: ports}, h}
	for i := range t.Steps {
		if t.Steps[i].toAgent() {
			h.name(t.Steps)
			return Verdict{Outcome: Answered, Text: "the switch hands it to the agent: " + t.Steps[i].reason(t.Steps[i].place())}
		}
	}
	if mac, err := net.ParseMAC(p.DstMAC); err != nil || mac[0]&1 == 0 {
		return h.Judge(j.Journey)
	}
	h.name(t.Steps)
	if v := j.outcome(); v.Outcome == Answered {
		return v
	}
	if ways := j.ways(); len(ways) > 0 {
		return Verdict{Outcome: Flooded, Text: "to " + strings.Join(ways, ", ")}
	}
	return j.cause()
}

// receiver returns the port of the sender's network with a MAC, or a station somewhere else.
func (h *Host) receiver(from *End, mac string) *End {
	for _, e := range h.candidates(mac) {
		if e.network() == from.network() {
			return &e
		}
	}
	e := h.station(mac, []End{*from})
	return &e
}

// maxWays is how many ways are named.
const maxWays = 6

// ways names where a frame comes out.
func (j *judge) ways() []string {
	var out []string
	for _, x := range j.Trace.exits() {
		name := j.Ports[x.Port]
		switch i := j.h.named(name); {
		case x.Remote != "":
			out = append(out, x.Remote)
		case i == nil || i.Type == "patch" || i.Down != "" || x.Header > 0:
		case i.PortID != "":
			out = append(out, name)
		case i.Type == "internal" && i.Name == i.Bridge:
		default:
			out = append(out, name)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if more := len(out) - maxWays; more > 0 {
		out = append(out[:maxWays], fmt.Sprintf("and %d more", more))
	}
	return out
}
