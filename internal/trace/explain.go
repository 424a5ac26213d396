// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Explanation is a text in sentences and, below, what it is about.
type Explanation struct {
	Sentences []string `json:"sentences"`
	Lists     []List   `json:"lists,omitempty"`
}

// List is a list with a title.
type List struct {
	Title string   `json:"title"`
	Lines []string `json:"lines"`
}

// String is the explanation for people.
func (e Explanation) String() string {
	var b strings.Builder
	for _, s := range e.Sentences {
		b.WriteString(s + "\n")
	}
	for _, l := range e.Lists {
		b.WriteString("\n" + l.Title + "\n")
		for _, line := range l.Lines {
			b.WriteString("  " + line + "\n")
		}
	}
	return b.String()
}

// ExplainPort says why a port is as it is.
func (h *Host) ExplainPort(ref string) (Explanation, error) {
	found := h.candidates(ref)
	switch len(found) {
	case 0:
		return Explanation{}, fmt.Errorf("%q is no port of this host: not by id, name, interface or address", ref)
	case 1:
	default:
		var names []string
		for i := range found {
			names = append(names, h.described(&found[i]))
		}
		return Explanation{}, fmt.Errorf("%q may be %s: say which by its id", ref, strings.Join(names, " or "))
	}
	x := explainer{h: h}
	if found[0].Port == nil {
		x.plug(&found[0])
	} else {
		x.port(&found[0])
	}
	return x.Explanation, nil
}

// explainer writes the explanation of one port.
type explainer struct {
	Explanation
	h *Host
}

func (x *explainer) say(format string, args ...any) {
	x.Sentences = append(x.Sentences, fmt.Sprintf(format, args...))
}

func (x *explainer) port(e *End) {
	p := e.Port
	x.say("Port %s%s is %s: %s.", portName(p), inBrackets(p.ID, portName(p)), p.State, cmp.Or(x.h.Named(p.Reason), "no reason given"))
	x.sayRole(p)
	x.sayPlug(e)
	x.sayNetwork(p)
	x.sayProgress(p)
	x.sayFilters(p)
	if len(p.Notes) > 0 {
		x.Lists = append(x.Lists, List{Title: "besides", Lines: p.Notes})
	}
	if len(p.Rules) > 0 {
		x.Lists = append(x.Lists, List{Title: "iptables rules of its Linux bridge, the first that matches counts; RETURN lets a packet pass", Lines: p.Rules})
	}
	alone := Journey{From: e, To: &End{}}
	if v, ok := alone.endNotReady(); ok && p.State == "wired" {
		x.say("But nothing passes: %s.", v.Text)
	}
	if v, ok := alone.wrongVLAN(); ok && p.State == "wired" {
		x.say("But it is cut off from its network: %s.", v.Text)
	}
	x.sayFlows(p)
}

func inBrackets(id, name string) string {
	if id == name {
		return ""
	}
	return " (" + id + ")"
}

// plug says what the switch's database alone can tell.
func (x *explainer) plug(e *End) {
	i := e.Plug
	x.say("No agent answers; this is what the switch knows of port %s.", i.PortID)
	x.sayPlug(e)
	switch {
	case i.Tag == deadVLAN:
		x.say("It is on VLAN 4095: an agent decided that nothing of it may pass.")
	case i.Tag == 0:
		x.say("It has no VLAN: no agent has wired it yet.")
	case i.Wanted != 0 && i.Wanted != i.Tag:
		x.say("It is on VLAN %d, but its network %s has VLAN %d on this host: somebody has changed it.", i.Tag, i.Network, i.Wanted)
	default:
		x.say("It is on VLAN %d, which stands for network %s (%s) on this host.", i.Tag, i.Network, i.NetworkType)
	}
}

// sayRole says what a port is that is not simply a VM's.
func (x *explainer) sayRole(p *inspect.Port) {
	switch {
	case p.Role == "":
	case p.Role == routerInterface && p.Device != "":
		x.say("It is an interface of router %s.", p.Device)
	default:
		x.say("Its role: %s.", p.Role)
	}
}

func (x *explainer) sayPlug(e *End) {
	i := e.Plug
	if i == nil {
		x.say("It is not plugged in on this host.")
		return
	}
	text := fmt.Sprintf("It is plugged in as interface %s, port %d of %s, with MAC %s", i.Name, i.OFPort, i.Bridge, e.MAC)
	if i.OFPort <= 0 {
		text = fmt.Sprintf("It is plugged in as interface %s of %s, which the switch has not been able to make (%s), with MAC %s", i.Name, i.Bridge, cmp.Or(i.Error, "no reason given"), e.MAC)
	}
	var own []string
	for _, a := range x.h.Addresses(e) {
		own = append(own, a.String())
	}
	if len(own) > 0 {
		text += " and " + strings.Join(own, ", ")
	}
	if i.MTU > 0 {
		text += fmt.Sprintf(", MTU %d", i.MTU)
	}
	x.say("%s.", text)
	if i.Down != "" {
		x.say("The interface %s.", i.Down)
	}
}

func (x *explainer) sayNetwork(p *inspect.Port) {
	switch {
	case p.State == "dead" || p.State == "down":
		x.say("Its VLAN is 4095, on which no packet passes.")
	case p.VLAN != 0:
		x.say("Its VLAN is %d, which stands for network %s (%s) on this host and nowhere else.", p.VLAN, p.Network, p.Segment)
	case p.Network != "":
		x.say("It belongs to network %s and has no VLAN yet.", p.Network)
	}
	if n := x.h.network(p.Network); n != nil && len(n.Endpoints) > 0 {
		x.say("Other hosts with the network: %s.", strings.Join(n.Endpoints, ", "))
	}
}

func (x *explainer) sayProgress(p *inspect.Port) {
	t := p.Timeline
	if !t.Plugged.IsZero() {
		text := "It was seen on the switch at " + t.Plugged.Format(time.DateTime)
		for _, stage := range []struct {
			at   time.Time
			what string
		}{{t.Answered, "its details were pulled"}, {t.Applied, "its flows were in place"}, {t.Reported, "it was reported up"}} {
			if !stage.at.IsZero() {
				text += fmt.Sprintf("; after %s %s", stage.at.Sub(t.Plugged).Round(time.Millisecond), stage.what)
			}
		}
		x.say("%s.", text)
	}
	switch {
	case t.Answered.IsZero() && p.Status == "":
		x.say("It waits for its details from the server.")
	case !p.Applied:
		x.say("It waits for its flows and rows to be written to the switch.")
	case p.Reported == "":
		x.say("It waits to be reported to the server.")
	default:
		x.say("The agent reported it %s; the last status from the server is %s.", p.Reported, cmp.Or(p.Status, "unknown"))
	}
}

// sayFilters says what may pass, group by group.
func (x *explainer) sayFilters(p *inspect.Port) {
	switch {
	case !p.Secured:
		x.say("Port security is off: it may send under any address, and everything may pass.")
		return
	case !p.Filtered:
		x.say("Its packets are not filtered by groups.")
		return
	case len(p.Groups) == 0:
		x.say("It has no security group: nothing but ARP, DHCP and neighbour discovery may pass.")
		return
	}
	x.say("It may send under its own addresses only, and what passes is what the rules of its groups allow, and the answers to it:")
	for _, pair := range p.Pairs {
		x.say("By an address pair it may send as %s with %s, too.", pair.MAC, pair.IP)
	}
	for _, id := range p.Groups {
		g := x.h.group(id)
		l := List{Title: "group " + x.h.groupName(id) + inBrackets(id, x.h.groupName(id))}
		switch {
		case g == nil || !g.Known:
			l.Lines = append(l.Lines, "its rules are not pulled yet")
		case len(g.Rules) == 0:
			l.Lines = append(l.Lines, "has no rules")
		default:
			for _, r := range g.Rules {
				l.Lines = append(l.Lines, fmt.Sprintf("%-8s %s  (rule %s)", r.Direction, x.h.Named(r.Text), short(r.ID)))
			}
			slices.Sort(l.Lines)
		}
		x.Lists = append(x.Lists, l)
	}
}

// sayFlows names flows of the port that are not as they should be.
func (x *explainer) sayFlows(p *inspect.Port) {
	l := List{Title: "flows that are not as wanted"}
	for i := range x.h.Flows {
		if f := &x.h.Flows[i]; f.Owner == "port "+p.ID && f.State != "present" {
			l.Lines = append(l.Lines, f.Bridge+": "+x.h.wanted(f))
		}
	}
	if len(l.Lines) > 0 {
		x.Lists = append(x.Lists, l)
	}
}

// LooksLikeFlow says whether the user means a flow and not a port.
func LooksLikeFlow(ref string) bool { return strings.Contains(ref, "=") }

// ExplainFlow says why a flow exists. It is written as ovs-ofctl shows it; bridge narrows it down if it is not empty.
func (h *Host) ExplainFlow(ref, bridge string) (Explanation, error) {
	want, err := openflow.ParseFlow(withoutCounters(ref))
	if err != nil {
		return Explanation{}, err
	}
	match := want.Match.String()
	var x Explanation
	for i := range h.Flows {
		f := &h.Flows[i]
		if f.Table != want.Table || bridge != "" && f.Bridge != bridge {
			continue
		}
		if p, m, ok := priorityAndMatch(f.Text); ok && m == match && p == want.Priority {
			x.Sentences = append(x.Sentences, h.explainFlow(f)...)
		}
	}
	if len(x.Sentences) == 0 {
		return Explanation{}, fmt.Errorf("no bridge of the agent has or wants that flow: table %d, priority %d, %s", want.Table, want.Priority, orAny(match))
	}
	return x, nil
}

func (h *Host) explainFlow(f *inspect.Flow) []string {
	kind := h.kindOf(f.Bridge).Refine(func(table uint8) bool { return h.uses(f.Bridge, table) })
	place := fmt.Sprintf("table %d %s of %s", f.Table, kind.Name(f.Table), f.Bridge)
	out := []string{fmt.Sprintf("%s: %s", f.Bridge, f.Text)}
	if !h.Live {
		return append(out, fmt.Sprintf("It is in %s. No agent answers, so it is not known whose it is.", place))
	}
	switch f.State {
	case "foreign":
		return append(out, fmt.Sprintf("It is in %s and not the agent's: somebody else has put it there, and the agent leaves it alone.", place))
	case "learned":
		return append(out, fmt.Sprintf("It is in %s, and the switch itself has made it from a packet that came by a tunnel: the sender is behind it. It goes after a time.", place))
	case "leftover":
		return append(out, fmt.Sprintf("It is in %s and nothing wants it: an earlier agent has left it, or somebody has put it there under a cookie of their own. It goes when an agent starts and knows everything.", place))
	}
	out = append(out, fmt.Sprintf("It is in %s, for %s, because: %s.", place, h.Named(f.Owner), h.Named(f.Reason)))
	if h.Named(f.Reason) != f.Reason || h.Named(f.Owner) != f.Owner {
		out = append(out, fmt.Sprintf("With ids: %s; %s.", f.Owner, f.Reason))
	}
	switch f.State {
	case "missing":
		out = append(out, "It is not in the switch at the moment; the agent wants it there.")
	case "different":
		out = append(out, "Somebody has changed it: the switch has "+f.Have)
	}
	return out
}

// withoutCounters leaves out what ovs-ofctl prints of a flow's life, so that a line of it can be pasted.
func withoutCounters(flow string) string {
	parts := split(strings.ReplaceAll(strings.TrimSpace(flow), ", ", ","))
	parts = slices.DeleteFunc(parts, func(p string) bool {
		for _, name := range []string{"duration=", "n_packets=", "n_bytes=", "idle_age=", "hard_age=", "send_flow_rem", "reset_counts"} {
			if strings.HasPrefix(p, name) {
				return true
			}
		}
		return false
	})
	return strings.Join(parts, ",")
}
