// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/tables"
)

const (
	deadVLAN      = 4095
	nativeRouting = "native tunnel routing failed"
	noSuchPort    = "Nonexistent output port"
)

// cause finds out why a packet did not arrive: first what is wrong with the ends themselves, then what stands in the way,
// then what the tables mean.
func (j *judge) cause() Verdict {
	for _, find := range []func() (Verdict, bool){
		j.endNotReady, j.blocker, j.otherNetwork, j.byTable, j.wrongVLAN, j.brokenPatch, j.intruder, j.missingFlow,
	} {
		if v, ok := find(); ok {
			v.Outcome = Dropped
			return v
		}
	}
	v := Verdict{Outcome: Dropped, Cause: "unknown", Text: "no flow sends it on"}
	if n := len(j.Trace.Steps); n > 0 {
		s := j.Trace.Steps[n-1]
		v.Text = fmt.Sprintf("no flow sends it on after %s", s.place())
	}
	return v
}

// place is where a step is: "table 82 RULES_INGRESS of br-int".
func (s *Step) place() string {
	name := ""
	if s.Name != "" {
		name = " " + s.Name
	}
	return fmt.Sprintf("table %d%s of %s", s.Table, name, s.Bridge)
}

// endNotReady looks for a port that is not wired, or whose interface carries nothing.
func (j *Journey) endNotReady() (Verdict, bool) {
	for _, e := range []*End{j.From, j.To} {
		i, p := e.Plug, e.Port
		switch {
		case p != nil && p.State == "down":
			return Verdict{Cause: "down", Text: fmt.Sprintf("%s is %s", e, cmp.Or(p.Reason, "admin down"))}, true
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
func (j *judge) blocker() (Verdict, bool) {
	for i := range j.Trace.Steps {
		if s := &j.Trace.Steps[i]; j.foreign(s) && slices.Equal(s.Actions, []string{"drop"}) {
			return notOurs(s, "drops it"), true
		}
	}
	return Verdict{}, false
}

// intruder looks for one that leads the packet astray.
func (j *judge) intruder() (Verdict, bool) {
	for i := range j.Trace.Steps {
		s := &j.Trace.Steps[i]
		if j.foreign(s) {
			return notOurs(s, "leads it astray"), true
		}
		if s.State == "different" {
			return Verdict{
				Cause: "foreign-flow", Text: fmt.Sprintf("somebody has changed a flow in %s: %s", s.place(), j.h.Named(s.Reason)),
				Hints: []string{"instead it does: " + strings.Join(s.Actions, ",")},
			}, true
		}
	}
	return Verdict{}, false
}

// foreign says whether the flow of a step is nobody's of ours. Without an agent to ask, the cookie tells: all of an agent's
// flows have the same few.
func (j *judge) foreign(s *Step) bool {
	if s.Missed || s.Cookie == patchbayCookie || !slices.Contains(j.h.Ours(), s.Bridge) {
		return false
	}
	if j.h.Live {
		return s.State == "foreign" || s.State == "leftover"
	}
	same := 0
	for _, o := range j.Trace.Steps {
		if o.Cookie == s.Cookie && o.Bridge == s.Bridge {
			same++
		}
	}
	return s.Cookie == 0 || same == 1
}

func notOurs(s *Step, does string) Verdict {
	return Verdict{
		Cause: "foreign-flow", Text: fmt.Sprintf("a flow in %s that is not the agent's %s", s.place(), does),
		Hints: []string{fmt.Sprintf("%s: cookie=%#x,table=%d,priority=%d,%s actions=%s", s.Bridge, s.Cookie, s.Table, s.Priority, s.Match, strings.Join(s.Actions, ","))},
	}
}

// patchbayCookie is that of our flows: see package pipeline.
const patchbayCookie = 0x5061746368626179

// otherNetwork: two ports that only a router connects. The way over one that is here is followed, see Across.
func (j *Journey) otherNetwork() (Verdict, bool) {
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
func (j *Journey) wrongVLAN() (Verdict, bool) {
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
func (j *judge) brokenPatch() (Verdict, bool) {
	for i := range j.h.Interfaces {
		p := &j.h.Interfaces[i]
		if p.Type != "patch" {
			continue
		}
		peer := j.h.named(p.Peer)
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
	kind, physical, _ := j.h.segment(e)
	to := j.h.bridgeOf(tables.Tunnel)
	if kind == "vlan" || kind == "flat" {
		to = ""
		for _, b := range j.h.Bridges {
			if b.Physical == physical {
				to = b.Name
			}
		}
	}
	for i := range j.h.Interfaces {
		if p := j.h.named(j.h.Interfaces[i].Peer); to == "" || p != nil && j.h.Interfaces[i].Bridge == to && p.Bridge == j.h.bridgeOf(tables.Integration) {
			return Verdict{}, false
		}
	}
	return Verdict{Cause: "patch", Text: fmt.Sprintf("no patch leads from %s to %s", j.h.bridgeOf(tables.Integration), to)}, true
}

// missingFlow looks for a flow that the agent wants in the table where the packet was lost, and that is not there.
func (j *judge) missingFlow() (Verdict, bool) {
	n := len(j.Trace.Steps)
	if n == 0 {
		return Verdict{}, false
	}
	var texts []string
	var where *Step
	for i := n - 1; i >= 0 && where == nil; i-- {
		s := &j.Trace.Steps[i]
		for _, f := range j.h.Flows {
			if f.Bridge == s.Bridge && f.Table == s.Table && (f.State == "missing" || f.State == "different") {
				where = s
				texts = append(texts, j.h.wanted(&f))
			}
		}
	}
	if where == nil {
		return Verdict{}, false
	}
	return Verdict{
		Cause: "missing-flow", Text: fmt.Sprintf("flows that the agent wants are missing in %s", where.place()), Hints: texts[:min(len(texts), maxHints)],
	}, true
}

func (h *Host) wanted(f *inspect.Flow) string {
	return fmt.Sprintf("%s: %s (%s, for %s)", f.State, f.Text, h.Named(f.Reason), h.Named(f.Owner))
}
