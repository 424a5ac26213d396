// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/tables"
)

// Outcomes of a packet.
const (
	Delivered = "delivered" // to the port it was sent to
	Leaves    = "leaves"    // this host, by a tunnel or a wire
	Answered  = "answered"  // by the switch itself, for the one who was asked
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
	// Ports are the names of interfaces by their numbers in the datapath.
	Ports map[uint32]string
}

// Judge names the steps and says what became of the packet.
func (h *Host) Judge(j *Journey) Verdict {
	h.name(j.Trace.Steps)
	v := h.outcome(j)
	if v.Passes() {
		if lost, ok := h.tooBig(j); ok {
			return lost
		}
		v.Hints = append(v.Hints, h.limits(j)...)
		return v
	}
	return h.cause(j)
}

// limits says which limits a packet is subject to that passes: what is beyond them is dropped, and no trace shows that.
func (h *Host) limits(j *Journey) []string {
	var out []string
	for _, s := range j.Trace.Steps {
		if i := slices.IndexFunc(s.Actions, func(a string) bool { return strings.HasPrefix(a, "meter:") }); i >= 0 {
			text := fmt.Sprintf("it goes through %s in %s", strings.Replace(s.Actions[i], ":", " ", 1), h.place(&s))
			if s.Reason != "" {
				text += ": " + h.Named(s.Reason)
			}
			out = append(out, text+"; packets beyond that are dropped, which no trace shows")
		}
	}
	for _, end := range []struct {
		e    *End
		word string
	}{{j.From, " from it"}, {j.To, " to it"}} {
		if end.e.Port == nil {
			continue
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
func (h *Host) outcome(j *Journey) Verdict {
	left := j.Trace.exits()
	device, vlan := h.behind(j.To.Plug) // of a trunk's port
	if device == nil {
		device = j.To.Plug
	}
	for _, x := range left {
		if i := device; i != nil && x.Remote == "" && x.Header == 0 && j.Ports[x.Port] == i.Name && (vlan == 0 || x.VLAN == vlan) {
			if i.Down != "" {
				return Verdict{Outcome: Dropped, Cause: "link"}
			}
			v := Verdict{Outcome: Delivered, Text: fmt.Sprintf("to %s (%s)", j.To, i.Name)}
			if rule := h.admitting(j.To, "ingress", &j.Packet); rule != "" && j.To.Port.Filtered {
				v.Text += ", by " + rule
			}
			return v
		}
	}
	for _, s := range j.Trace.Steps {
		if h.kindOf(s.Bridge) == tables.Tunnel && s.Table == 21 && j.Packet.Protocol == ARP && s.Priority > 0 {
			return Verdict{Outcome: Answered, Text: fmt.Sprintf("the switch answers for %s, as the server said where it is", j.Packet.Dst)}
		}
	}
	if j.To.Here() {
		return Verdict{Outcome: Dropped}
	}
	return h.leaving(j, left)
}

// leaving says by which way a packet leaves the host.
func (h *Host) leaving(j *Journey, left []Exit) Verdict {
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
		if i := h.named(j.Ports[x.Port]); i != nil {
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
		i := h.named(j.Ports[x.Port])
		if i == nil || x.Header > 0 || i.Type == "internal" || i.Type == "patch" || h.kindOf(i.Bridge) != tables.Physical ||
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
func (h *Host) tooBig(j *Journey) (Verdict, bool) {
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
		if i := h.named(j.Ports[x.Port]); x.Header > 0 && i != nil && i.MTU > 0 && j.Packet.Size+x.Header > i.MTU {
			return lost(i, j.Packet.Size+x.Header, fmt.Sprintf(" (%d of them the tunnel's header)", x.Header))
		}
	}
	return Verdict{}, false
}

const (
	deadVLAN      = 4095
	nativeRouting = "native tunnel routing failed"
	noSuchPort    = "Nonexistent output port"
)

// cause finds out why a packet did not arrive: first what is wrong with the ends themselves, then what stands in the way,
// then what the tables mean.
func (h *Host) cause(j *Journey) Verdict {
	for _, find := range []func(*Journey) (Verdict, bool){
		h.endNotReady, h.blocker, h.otherNetwork, h.byTable, h.wrongVLAN, h.brokenPatch, h.intruder, h.missingFlow,
	} {
		if v, ok := find(j); ok {
			v.Outcome = Dropped
			return v
		}
	}
	v := Verdict{Outcome: Dropped, Cause: "unknown", Text: "no flow sends it on"}
	if n := len(j.Trace.Steps); n > 0 {
		s := j.Trace.Steps[n-1]
		v.Text = fmt.Sprintf("no flow sends it on after %s", h.place(&s))
	}
	return v
}

// place is where a step is: "table 82 RULES_INGRESS of br-int".
func (h *Host) place(s *Step) string {
	name := ""
	if s.Name != "" {
		name = " " + s.Name
	}
	return fmt.Sprintf("table %d%s of %s", s.Table, name, s.Bridge)
}

// endNotReady looks for a port that is not wired, or whose interface carries nothing.
func (h *Host) endNotReady(j *Journey) (Verdict, bool) {
	for _, e := range []*End{j.From, j.To} {
		i, p := e.Plug, e.Port
		switch {
		case p != nil && p.State == "down":
			return Verdict{Cause: "down", Text: fmt.Sprintf("%s is %s", e, cmp.Or(p.Reason, "switched off by its administrator"))}, true
		case p != nil && p.State == "dead":
			return Verdict{Cause: "dead", Text: fmt.Sprintf("%s is dead: %s", e, p.Reason)}, true
		case p != nil && p.State != "wired":
			return Verdict{Cause: "not-ready", Text: fmt.Sprintf("%s is not wired but %s: %s", e, p.State, p.Reason)}, true
		case i != nil && i.OFPort <= 0:
			return Verdict{Cause: "dead", Text: fmt.Sprintf("the switch has no port for interface %s of %s: %s", i.Name, e, cmp.Or(i.Error, "it has not made it"))}, true
		case i != nil && i.Tag == deadVLAN:
			return Verdict{Cause: "dead", Text: fmt.Sprintf("%s is dead: its interface %s is on VLAN 4095, where the agent puts ports that may not speak", e, i.Name)}, true
		case i != nil && i.Down != "":
			return Verdict{Cause: "link", Text: fmt.Sprintf("interface %s of %s %s", i.Name, e, i.Down)}, true
		}
	}
	return Verdict{}, false
}

// blocker looks for a flow that is not the agent's and drops the packet.
func (h *Host) blocker(j *Journey) (Verdict, bool) {
	for i := range j.Trace.Steps {
		if s := &j.Trace.Steps[i]; h.foreign(j.Trace, s) && slices.Equal(s.Actions, []string{"drop"}) {
			return h.notOurs(s, "drops it"), true
		}
	}
	return Verdict{}, false
}

// intruder looks for one that leads the packet astray.
func (h *Host) intruder(j *Journey) (Verdict, bool) {
	for i := range j.Trace.Steps {
		s := &j.Trace.Steps[i]
		if h.foreign(j.Trace, s) {
			return h.notOurs(s, "leads it astray"), true
		}
		if s.State == "different" {
			return Verdict{
				Cause: "foreign-flow", Text: fmt.Sprintf("somebody has changed a flow in %s: %s", h.place(s), h.Named(s.Reason)),
				Hints: []string{"instead it does: " + strings.Join(s.Actions, ",")},
			}, true
		}
	}
	return Verdict{}, false
}

// foreign says whether the flow of a step is nobody's of ours. Without an agent to ask, the cookie tells: all of an agent's
// flows have the same few.
func (h *Host) foreign(t *Trace, s *Step) bool {
	if s.Missed || s.Cookie == patchbayCookie || !slices.Contains(h.Ours(), s.Bridge) {
		return false
	}
	if h.Live {
		return s.State == "foreign" || s.State == "leftover"
	}
	same := 0
	for _, o := range t.Steps {
		if o.Cookie == s.Cookie && o.Bridge == s.Bridge {
			same++
		}
	}
	return s.Cookie == 0 || same == 1
}

func (h *Host) notOurs(s *Step, does string) Verdict {
	return Verdict{
		Cause: "foreign-flow", Text: fmt.Sprintf("a flow in %s that is not the agent's %s", h.place(s), does),
		Hints: []string{fmt.Sprintf("%s: cookie=%#x,table=%d,priority=%d,%s actions=%s", s.Bridge, s.Cookie, s.Table, s.Priority, s.Match, strings.Join(s.Actions, ","))},
	}
}

// patchbayCookie is that of our flows: see package pipeline.
const patchbayCookie = 0x5061746368626179

// otherNetwork: two ports that only a router connects. The way over one that is here is followed, see Across.
func (h *Host) otherNetwork(j *Journey) (Verdict, bool) {
	a, b := j.From.network(), j.To.network()
	if a == "" || b == "" || a == b || j.Packet.DstMAC != j.To.MAC {
		return Verdict{}, false
	}
	return Verdict{
		Cause: "network", Text: fmt.Sprintf("%s is in network %s and %s in network %s: only a router connects them, and none has an interface in the first on this host", j.From, short(a), j.To, short(b)),
		Hints: []string{"to follow the packet to a router elsewhere, give the router's MAC with --dst-mac"},
	}, true
}

// wrongVLAN looks for an end that is on another VLAN than its network.
func (h *Host) wrongVLAN(j *Journey) (Verdict, bool) {
	for _, e := range []*End{j.From, j.To} {
		if e.Plug != nil && e.vlan() != 0 && e.Plug.Tag != e.vlan() {
			return Verdict{
				Cause: "vlan", Text: fmt.Sprintf("interface %s of %s is on VLAN %d, but its network has VLAN %d on this host", e.Plug.Name, e, e.Plug.Tag, e.vlan()),
			}, true
		}
	}
	return Verdict{}, false
}

// brokenPatch looks for a patch between bridges that leads nowhere.
func (h *Host) brokenPatch(j *Journey) (Verdict, bool) {
	for i := range h.Interfaces {
		p := &h.Interfaces[i]
		if p.Type != "patch" {
			continue
		}
		peer := h.named(p.Peer)
		switch {
		case p.Peer == "":
			return Verdict{Cause: "patch", Text: fmt.Sprintf("patch %s of %s has no other end", p.Name, p.Bridge)}, true
		case peer == nil:
			return Verdict{Cause: "patch", Text: fmt.Sprintf("patch %s of %s leads nowhere: its other end %s does not exist", p.Name, p.Bridge, p.Peer)}, true
		case peer.Type != "patch" || peer.Peer != p.Name:
			return Verdict{Cause: "patch", Text: fmt.Sprintf("patch %s of %s leads to %s, which does not lead back but to %s", p.Name, p.Bridge, peer.Name, cmp.Or(peer.Peer, "nothing"))}, true
		}
	}
	if len(j.Trace.Steps) == 0 || j.To.Here() && j.From.Here() {
		return Verdict{}, false
	}
	// The patch is gone on both sides.
	e := j.From
	if !e.Here() {
		e = j.To
	}
	kind, physical, _ := h.segment(e)
	to := h.bridgeOf(tables.Tunnel)
	if kind == "vlan" || kind == "flat" {
		to = ""
		for _, b := range h.Bridges {
			if b.Physical == physical {
				to = b.Name
			}
		}
	}
	for i := range h.Interfaces {
		if p := h.named(h.Interfaces[i].Peer); to == "" || p != nil && h.Interfaces[i].Bridge == to && p.Bridge == h.bridgeOf(tables.Integration) {
			return Verdict{}, false
		}
	}
	return Verdict{Cause: "patch", Text: fmt.Sprintf("no patch leads from %s to %s", h.bridgeOf(tables.Integration), to)}, true
}

// missingFlow looks for a flow that the agent wants in the table where the packet was lost, and that is not there.
func (h *Host) missingFlow(j *Journey) (Verdict, bool) {
	n := len(j.Trace.Steps)
	if n == 0 {
		return Verdict{}, false
	}
	var texts []string
	var where *Step
	for i := n - 1; i >= 0 && where == nil; i-- {
		s := &j.Trace.Steps[i]
		for _, f := range h.Flows {
			if f.Bridge == s.Bridge && f.Table == s.Table && (f.State == "missing" || f.State == "different") {
				where = s
				texts = append(texts, h.wanted(&f))
			}
		}
	}
	if where == nil {
		return Verdict{}, false
	}
	return Verdict{
		Cause: "missing-flow", Text: fmt.Sprintf("flows that the agent wants are missing in %s", h.place(where)), Hints: texts[:min(len(texts), maxHints)],
	}, true
}

func (h *Host) wanted(f *inspect.Flow) string {
	return fmt.Sprintf("%s: %s (%s, for %s)", f.State, f.Text, h.Named(f.Reason), h.Named(f.Owner))
}
