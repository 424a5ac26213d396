// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// contain runs work that is about one object. False: it panicked, and whoever is set in Contain has taken that.
func (w *common) contain(o Object, work func()) bool {
	if w.Contain == nil {
		work()
		return true
	}
	return w.Contain(o, work)
}

// mend is contain for what makes up for a failure.
func (w *common) mend(what string, work func()) {
	if w.Mend == nil {
		work()
		return
	}
	w.Mend(what, work)
}

// hold keeps a port as it was before a decision about it failed half-way, if it is plugged in as it was then. Otherwise nothing of what
// was decided is about this interface, and the port is dead until it can be decided about.
func (w *World) hold(id string, before *Port) {
	p := w.ports[id]
	if p == nil {
		return // forgotten by then, or never known: it is looked at again
	}
	what := "holding port " + id
	var here *VIF
	w.mend(what, func() { here, _, _ = w.vifs.find(id) })
	w.Segments.leave(p)
	if before != nil && sameVIF(before.VIF, here) {
		needs, placed := p.needs, p.placed
		*p = *before
		p.needs, p.placed = needs, placed // as they are: what groups count does not go back by itself
		p.undecided = true
		w.mend(what, func() { w.Groups.need(p, before.needs) })
	} else {
		p.VIF, p.Groups, p.filtered, p.wants = here, nil, "", nil
		p.Wiring, p.undecided = Wiring{State: Dead}, false
		if here == nil {
			p.Wiring.State = Waiting
		}
		p.Wiring.Reason = "what to do about it cannot be worked out; the log says why"
	}
	if s := w.Segments.byKey[p.Wiring.Segment]; s != nil && (p.Wiring.State == Wired || p.Wiring.State == Down) {
		s.ports[id] = true
	}
	w.mend(what, func() { w.Groups.place(p) })
	w.mark(PortObject(id))
}

func sameVIF(a, b *VIF) bool {
	return a != nil && b != nil && a.Interface == b.Interface && a.OFPort == b.OFPort
}

// Again has one object worked out and compiled again.
func (w *World) Again(o Object) {
	switch o := o.(type) {
	case PortObject:
		w.touched[string(o)] = true
	case GroupObject:
		w.touchedGroups[string(o)] = true
		if g := w.groups[string(o)]; g != nil {
			for id := range g.ports {
				w.touched[id] = true
			}
		}
		return
	}
	w.dirty[o] = true
}

// Rebuild works out anew what follows from the rows of the switch, after taking a batch of them has failed half-way.
func (w *World) Rebuild() {
	for id := range w.vifs.rows {
		w.vifs.drop(id)
	}
	for i := range w.View.Interfaces() {
		w.vifs.add(i)
	}
	for id := range w.ports {
		w.touched[id] = true
	}
	for id := range w.groups {
		w.touchedGroups[id] = true
	}
	w.everything()
}

// markMentionedStale has everything asked for again that a push names which could not be read. Ids are looked for as text, since the push
// may not even be JSON. What it names and is not known here is nobody's loss.
func (w *World) markMentionedStale(kind neutron.Kind, data []byte) {
	markStale := func(kind neutron.Kind, id string) {
		if t := w.pullStateOf(Item{Kind: kind, ID: id}); t != nil {
			w.seq++
			t.answered, t.since = false, w.seq // an answer on its way may be from before
			w.concerned = append(w.concerned, id)
		}
	}
	members := func(groups []string) {
		for _, id := range groups {
			if r := w.remotes[id]; r != nil && !r.addresses {
				markStale(neutron.KindPort, id)
			}
		}
	}
	for id := range texts(data) {
		switch kind {
		case neutron.KindPort:
			if p := w.ports[id]; p != nil {
				w.markStale(p)
				w.concerned = append(w.concerned, id)
			}
			if m := w.Members.byID[id]; m != nil {
				members(m.groups)
			}
			members([]string{id})
		case neutron.KindNetwork:
			w.markNetworkStale(id)
		case neutron.KindSecurityGroup, neutron.KindSecurityGroupRule:
			markStale(neutron.KindSecurityGroup, id)
			if group := w.Groups.groupOf[id]; group != "" {
				markStale(neutron.KindSecurityGroup, group)
			}
		case neutron.KindAddressGroup:
			if r := w.remotes[id]; r != nil && r.addresses {
				markStale(kind, id)
			}
		}
	}
}

func (w *World) markNetworkStale(id string) {
	for key, s := range w.Segments.byKey {
		if key.Network == id {
			for port := range s.ports {
				w.markStale(w.ports[port])
			}
			w.concerned = append(w.concerned, id)
		}
	}
}

// texts are everything in quotes, each once.
func texts(data []byte) map[string]bool {
	out := map[string]bool{}
	for _, part := range bytes.Split(data, []byte{'"'}) {
		out[string(part)] = true
	}
	delete(out, "")
	return out
}
