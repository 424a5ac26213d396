// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// regLooked is the register in which a packet that leaves a port says how far it is with being logged: not yet, now, or looked at.
const regLooked = of.Reg1

const (
	lookNow = 1
	looked  = 2
)

// Priorities of flows that log.
const (
	aboveDelivery = 110 // in table 73: above the flows that send packets on to another port of the host
	anyRule       = 2   // in table 91: below the flows of all rules
	loggedDrop    = 53
)

// LogAccepted adds the flows that hand a port's first packets of connections to an action, whose rules are of one of the groups. The packets go
// on as without them.
//
// Tables, priorities and matches are those of the Python agent's extension log, with three exceptions. A packet that a port sends is looked at in table 73 before
// it is decided where it goes, since those to another port of the host do not come through table 91; so flows of table 91 match a register,
// and send nothing on. Rules about members of a group match the id that the flow has written which allowed the packet. Rules about an address
// group are such rules.
func (w *Want) LogAccepted(in *world.World, p *world.Port, groups []string, act of.Action) {
	c := compiler{w: in}
	f := c.filtersOf(p)
	out := false
	for _, group := range groups {
		rules := in.Groups.Rules(group)
		for i := range rules {
			f.logRule(group, &rules[i], act)
			out = out || rules[i].Direction == world.Egress
		}
	}
	if out {
		f.add(fwAcceptOrIngress, aboveDelivery, "new connections that are let out are looked at for the log", of.Match{f.port(), fresh(), of.Num(regLooked, 0)},
			of.Set(regLooked, of.Uint(lookNow)), of.To(fwAcceptedEgress), of.Set(regLooked, of.Uint(looked)), of.To(fwAcceptOrIngress))
		f.add(fwAcceptedEgress, anyRule, "new connections that are not logged", of.Match{f.port(), of.Num(regLooked, lookNow)})
	}
	w.take(&c.want)
}

// LogDropped adds the flow that hands what a port's filters drop to an action, in both directions.
func (w *Want) LogDropped(in *world.World, p *world.Port, act of.Action) {
	c := compiler{w: in}
	f := c.filtersOf(p)
	f.add(fwDropped, loggedDrop, "what is dropped is logged", of.Match{f.port()}, act)
	w.take(&c.want)
}

func (w *Want) take(other *Want) {
	w.Flows = append(w.Flows, other.Flows...)
	if other.Err != nil {
		w.Err = other.Err
	}
}

// logRule adds the flows that log what a rule allows.
func (f *filters) logRule(group string, r *world.Rule, act of.Action) {
	all, priority := matches(of.Match{f.port()}, r), plain+uint16(r.Offset())
	if r.Remote != "" {
		id := f.w.Members.ConjunctionID(conjunctionOf(group, r))
		if id == 0 {
			return
		}
		const isNew = 1 // see states
		all = []of.Match{{etherTypeOf(r.IPVersion), f.port(), of.Num(regAllowed, uint64(id+2*uint32(r.Offset())+isNew))}}
		priority = conjunctive
	}
	table := uint8(fwAcceptedIngress)
	if r.Direction == world.Egress {
		table = fwAcceptedEgress
	}
	for _, m := range all {
		if r.Direction == world.Egress {
			m = m.With(of.Num(regLooked, lookNow))
		}
		f.add(table, priority, "logged: "+because(group, r), m, act)
	}
}
