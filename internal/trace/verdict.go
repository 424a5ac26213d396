// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/tables"
)

// Outcomes of a packet.
const (
	Delivered = "delivered" // to the port it was sent to
	Leaves    = "leaves"    // this host, by a tunnel or a wire
	Answered  = "answered"  // by the switch itself, or by the agent, for the one who was asked
	Dropped   = "dropped"
)

// Verdict is what becomes of a packet, and why.
type Verdict struct {
	Outcome string `json:"outcome"`
	// Cause is a word for why it is dropped: group, port-security, spoofed, dead, down, not-ready, vlan, network, tunnel, patch,
	// router, wire, foreign-flow, missing-flow, mtu, link or unknown.
	Cause string   `json:"cause,omitempty"`
	Text  string   `json:"text"`
	Hints []string `json:"hints,omitempty"`
}

// String is "dropped: no ingress rule …".
func (v Verdict) String() string { return v.Outcome + ": " + v.Text }

// Passes says whether the packet gets as far as this host can tell.
func (v Verdict) Passes() bool { return v.Outcome != Dropped }

// Journey is a packet and the way it took.
type Journey struct {
	From, To *End
	Packet   Packet
	Trace    *Trace
	// Tracked: the packet belongs to a connection that is known already.
	Tracked bool
	// Ports are the names of interfaces by their numbers in the datapath.
	Ports map[uint32]string
}

// judge finds out what became of one packet, from its way and what is known about the host.
type judge struct {
	*Journey
	h *Host
}

// Judge names the steps and says what became of the packet.
func (h *Host) Judge(way *Journey) Verdict {
	h.name(way.Trace.Steps)
	j := &judge{way, h}
	if v, dropped := j.ruleVerdict(j.From, "egress"); dropped { // before it comes to the switch
		return v
	}
	v := j.outcome()
	if !v.Passes() {
		return j.cause()
	}
	if v, dropped := j.ruleVerdict(j.To, "ingress"); dropped && j.To.Here() {
		return v
	}
	if lost, ok := j.tooBig(); ok {
		return lost
	}
	v.Hints = append(v.Hints, j.limits()...)
	return v
}

// limits says which limits a packet is subject to that passes: what is beyond them is dropped, and no trace shows that.
func (j *judge) limits() []string {
	var out []string
	for _, s := range j.Trace.Steps {
		if i := slices.IndexFunc(s.Actions, func(a string) bool { return strings.HasPrefix(a, "meter:") }); i >= 0 {
			text := fmt.Sprintf("it goes through %s in %s", strings.Replace(s.Actions[i], ":", " ", 1), s.place())
			if s.Reason != "" {
				text += ": " + j.h.Named(s.Reason)
			}
			out = append(out, text+"; packets beyond that are dropped, which no trace shows")
		}
	}
	for _, end := range []struct {
		e               *End
		word, direction string
	}{{j.From, " from it", "egress"}, {j.To, " to it", "ingress"}} {
		if end.e.Port == nil {
			continue
		}
		if m := j.throughRules(end.e, end.direction); m != nil {
			out = append(out, fmt.Sprintf("iptables of the Linux bridge of %s lets it pass%s by %s", end.e, end.word, m))
			if m.Unsure != "" {
				out = append(out, m.Unsure)
			}
		}
		for _, note := range end.e.Port.Notes {
			for part := range strings.SplitSeq(note, ": ") {
				for rule := range strings.SplitSeq(part, "; ") {
					if strings.HasPrefix(rule, "at most ") && strings.HasSuffix(rule, " kbit/s"+end.word) {
						out = append(out, fmt.Sprintf("quality of service of %s: %s; packets beyond that are dropped, which no trace shows", end.e, rule))
					}
				}
			}
		}
	}
	return out
}

// outcome is where the packet came out.
func (j *judge) outcome() Verdict {
	left := j.Trace.exits()
	device, vlan := j.h.behind(j.To.Plug) // of a trunk's port
	if device == nil {
		device = j.To.Plug
	}
	for _, x := range left {
		if i := device; i != nil && x.Remote == "" && x.Header == 0 && j.Ports[x.Port] == i.Name && (vlan == 0 || x.VLAN == vlan) {
			if i.Down != "" {
				return Verdict{Outcome: Dropped, Cause: "link"}
			}
			v := Verdict{Outcome: Delivered, Text: fmt.Sprintf("to %s (%s)", j.To, i.Name)}
			if rule := j.admitting(j.To, "ingress"); rule != "" && j.To.Port.Filtered {
				v.Text += ", by " + rule
			}
			return v
		}
	}
	for _, s := range j.Trace.Steps {
		if j.h.kindOf(s.Bridge) == tables.Tunnel && s.Table == 21 && j.Packet.Protocol == ARP && s.Priority > 0 {
			return Verdict{Outcome: Answered, Text: fmt.Sprintf("the switch answers for %s, as the server said where it is", j.Packet.Dst)}
		}
	}
	if v, ok := j.byAgent(); ok {
		return v
	}
	if j.To.Here() {
		return Verdict{Outcome: Dropped}
	}
	return j.leaving(left)
}

// byAgent says that a flow of an extension sent the packet to the agent, such as DHCP.
func (j *judge) byAgent() (Verdict, bool) {
	for _, s := range j.Trace.Steps {
		if s.toAgent() {
			return Verdict{Outcome: Answered, Text: cmp.Or(s.Reason, "the agent takes it")}, true
		}
	}
	return Verdict{}, false
}

// toAgent says whether a step hands the packet to the agent, which answers it. In the tables of the extension log it is a copy, and the packet's way is another.
func (s *Step) toAgent() bool {
	if s.Table >= acceptedTable && s.Table <= droppedTable {
		return false
	}
	return slices.ContainsFunc(s.Actions, func(a string) bool { return strings.HasPrefix(strings.ToLower(a), "controller") })
}

// leaving says by which way a packet leaves the host.
func (j *judge) leaving(left []Exit) Verdict {
	var tunnels []Exit
	for _, x := range left {
		if x.Remote != "" {
			tunnels = append(tunnels, x)
		}
	}
	for _, s := range j.Trace.Steps {
		if slices.Contains(s.Errors, nativeRouting) {
			return Verdict{Outcome: Dropped}
		}
	}
	if len(tunnels) == 1 {
		x := tunnels[0]
		kind := ""
		if i := j.h.named(j.Ports[x.Port]); i != nil {
			kind = " over " + i.Type
		}
		return Verdict{Outcome: Leaves, Text: fmt.Sprintf("to %s%s, number %d%s", x.Remote, kind, x.Number, j.sentAs(&x))}
	}
	if len(tunnels) > 1 {
		var to []string
		for _, x := range tunnels {
			to = append(to, x.Remote)
		}
		return Verdict{
			Outcome: Leaves, Text: fmt.Sprintf("to every host of the network, as it is not known where %s is: %s", j.To, strings.Join(to, ", ")),
		}
	}
	for _, x := range left {
		i := j.h.named(j.Ports[x.Port])
		if i == nil || x.Header > 0 || i.Type == "internal" || i.Type == "patch" || j.h.kindOf(i.Bridge) != tables.Physical ||
			!slices.ContainsFunc(j.Trace.Steps, func(s Step) bool { return s.Bridge == i.Bridge }) {
			continue
		}
		if i.Down != "" {
			return Verdict{Outcome: Dropped, Cause: "link"}
		}
		tag := "untagged"
		if x.VLAN != 0 {
			tag = "VLAN " + strconv.Itoa(x.VLAN)
		}
		return Verdict{Outcome: Leaves, Text: fmt.Sprintf("by %s of %s, %s%s", i.Name, i.Bridge, tag, j.sentAs(&x))}
	}
	return Verdict{Outcome: Dropped}
}

// sentAs names the sender's MAC with which a packet leaves, if it is another than its own: that of the host, for packets of a
// distributed router, which is the same on all hosts.
func (j *Journey) sentAs(x *Exit) string {
	if x.From == "" || x.From == j.Packet.SrcMAC {
		return ""
	}
	return ", with sender " + x.From + " in place of " + j.Packet.SrcMAC
}

// Sender is the sender's MAC with which the packet leaves to another host.
func (j *Journey) Sender() string {
	for _, x := range j.Trace.exits() {
		if x.Remote != "" && x.From != "" {
			return x.From
		}
	}
	return j.Packet.SrcMAC
}

// tooBig says whether the packet is larger than an interface on its way takes.
func (j *judge) tooBig() (Verdict, bool) {
	if j.Packet.Size == 0 {
		return Verdict{}, false
	}
	lost := func(i *Interface, size int, why string) (Verdict, bool) {
		return Verdict{
			Outcome: Dropped, Cause: "mtu",
			Text: fmt.Sprintf("a packet of %d bytes%s does not fit through %s, whose MTU is %d", size, why, i.Name, i.MTU),
		}, true
	}
	for _, e := range []*End{j.From, j.To} {
		if i := e.Plug; i != nil && i.MTU > 0 && j.Packet.Size > i.MTU {
			return lost(i, j.Packet.Size, "")
		}
	}
	for _, x := range j.Trace.exits() {
		if i := j.h.named(j.Ports[x.Port]); x.Header > 0 && i != nil && i.MTU > 0 && j.Packet.Size+x.Header > i.MTU {
			return lost(i, j.Packet.Size+x.Header, fmt.Sprintf(" (%d of them the tunnel's header)", x.Header))
		}
	}
	return Verdict{}, false
}
