// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Push takes a push about objects. Most are about ports of other hosts and are dropped after a look at their ids. Each object counts
// alone: one that cannot be read holds up no other, and what is known here of it stays in force and is asked for again.
func (w *World) Push(push *neutron.Push, now time.Time) error {
	w.concerned, w.Members.strangers.kept = w.concerned[:0], false
	var errs []error
	for _, o := range push.Objects {
		var err error
		if !w.contain(nil, func() { err = w.push(push.Kind, o, push.Event, now) }) {
			err = fmt.Errorf("%s %s: taking it failed", push.Kind, push.Event)
		}
		if err != nil {
			w.markMentionedStale(push.Kind, o.Data)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (w *World) push(kind neutron.Kind, o neutron.Primitive, event neutron.Event, now time.Time) error {
	switch {
	case kind == neutron.KindPort:
		return w.pushPort(o, event, now)
	case kind == neutron.KindNetwork:
		return w.pushNetwork(o, event)
	case !w.Config.Filter:
	case kind == neutron.KindSecurityGroup:
		return w.Groups.pushGroup(o, event, now)
	case kind == neutron.KindSecurityGroupRule:
		return w.Groups.pushRule(o, event, now)
	case kind == neutron.KindAddressGroup:
		return w.Members.pushAddressGroup(o, event, now)
	}
	return nil
}

func (w *World) pushPort(o neutron.Primitive, event neutron.Event, now time.Time) error {
	if event == neutron.Deleted {
		return w.pushDeletedPort(o, now)
	}
	concern := w.mayConcern(o.Data)
	switch {
	case concern == ourPort:
		d := &neutron.Port{}
		if err := o.Decode(neutron.KindPort, d); err != nil {
			return err
		}
		if p := w.ports[d.ID]; p != nil && p.unknown {
			w.markStale(p) // it came to be, or what it was before it was deleted is told late: only the server knows
		}
		before := w.Members.byID[d.ID] != nil
		if w.learn(d); w.ports[d.ID] != nil || w.Members.byID[d.ID] != nil {
			w.concerned = append(w.concerned, d.ID)
		}
		w.Members.pushed(d.ID, before)
	case !w.Config.Filter:
		w.Members.strangers.kept = true // not even that
	case concern == aMember, w.Members.passed != nil:
		m := &neutron.Member{}
		if err := o.Decode(neutron.KindPort, m); err != nil {
			return err
		}
		before := w.Members.byID[m.ID] != nil
		if w.Members.learn(m); w.Members.byID[m.ID] != nil {
			w.concerned = append(w.concerned, m.ID)
		}
		w.Members.pushed(m.ID, before)
	default:
		w.Members.strangers.keep(o.Data)
	}
	return nil
}

func (w *World) pushDeletedPort(o neutron.Primitive, now time.Time) error {
	var head struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(o.Data, &head); err != nil {
		return fmt.Errorf("reading a pushed port: %w", err)
	}
	p := w.ports[head.ID]
	if p != nil || w.Config.Filter {
		w.deleted.add(head.ID, now)
	}
	if p != nil || w.Members.byID[head.ID] != nil {
		w.concerned = append(w.concerned, head.ID)
	}
	w.Members.drop(head.ID)
	if p != nil {
		p.lose()
		w.touched[head.ID] = true
	}
	return nil
}

// concern is what a pushed port may be to us.
type concern uint8

const (
	nothing concern = iota
	aMember         // of a group that rules refer to
	ourPort         // plugged in here
)

// mayConcern says what data could be: one of the ids in it is that of a port that is plugged in here or of a member of a
// group that rules refer to, or it is in such a group. Most pushes are about other ports, and this costs a fraction of
// reading them. Keys are plain text, as Python writes them.
func (w *World) mayConcern(data []byte) concern {
	found := nothing
	for rest := data; ; {
		i := bytes.Index(rest, []byte(`"id"`))
		if i < 0 {
			break
		}
		rest = bytes.TrimLeft(rest[i+len(`"id"`):], " \t\r\n:")
		id, ok := leadingText(rest)
		switch {
		case !ok, w.ports[string(id)] != nil, bytes.IndexByte(id, '\\') >= 0: // an id that is no text may be anybody's
			return ourPort
		case w.Members.byID[string(id)] != nil:
			found = aMember
		}
	}
	if found != nothing || len(w.remotes) == 0 {
		return found
	}
	const key = `"security_group_ids"`
	i := bytes.Index(data, []byte(key))
	if i < 0 {
		return nothing
	}
	rest := data[i+len(key):]
	end := bytes.IndexByte(rest, ']')
	if end < 0 {
		return aMember
	}
	for rest = rest[:end]; ; {
		i := bytes.IndexByte(rest, '"')
		if i < 0 {
			return nothing
		}
		id, ok := leadingText(rest[i:])
		if !ok || w.remotes[string(id)] != nil || bytes.IndexByte(id, '\\') >= 0 {
			return aMember
		}
		rest = rest[i+len(id)+2:]
	}
}

// leadingText is the text in quotes at the beginning, raw.
func leadingText(data []byte) ([]byte, bool) {
	if len(data) == 0 || data[0] != '"' {
		return nil, false
	}
	end := bytes.IndexByte(data[1:], '"')
	if end < 0 {
		return nil, false
	}
	return data[1 : 1+end], true
}

// pushNetwork looks whether the segments of a network are still those that its ports are wired to. The server changes a
// segmentation id without a word about the ports, so these have to be asked for again.
func (w *World) pushNetwork(o neutron.Primitive, event neutron.Event) error {
	if event == neutron.Deleted {
		return nil // its ports go first
	}
	var n neutron.Network
	if err := o.Decode(neutron.KindNetwork, &n); err != nil {
		return err
	}
	for key, s := range w.Segments.byKey {
		if key.Network != n.ID || len(n.Segments) == 0 || has(n.Segments, s) {
			continue
		}
		w.concerned = append(w.concerned, n.ID)
		for id := range s.ports {
			w.markStale(w.ports[id])
		}
	}
	return nil
}

func has(segments []neutron.Segment, s *Segment) bool {
	for _, c := range segments {
		id := none
		if c.SegmentationID != nil {
			id = *c.SegmentationID
		}
		if c.NetworkType == s.Type && id == s.Key.ID {
			return true
		}
	}
	return false
}

// pushGroup takes a push about a security group.
func (w *Groups) pushGroup(o neutron.Primitive, event neutron.Event, now time.Time) error {
	var sg neutron.SecurityGroup
	if err := o.Decode(neutron.KindSecurityGroup, &sg); err != nil {
		return err
	}
	if event != neutron.Deleted {
		if g := w.groups[sg.ID]; g != nil && !w.Deleted(sg.ID) {
			w.concerned = append(w.concerned, sg.ID)
			before := len(g.rules)
			if w.learnGroup(g, &sg); len(g.rules) > before {
				g.added(w.Time)
			}
		}
		return nil
	}
	w.deleted.add(sg.ID, now)
	// With it go its rules, and those of others that refer to it; the server does not tell about either.
	for _, g := range w.groups {
		for id, e := range g.rules {
			if g.id == sg.ID || e.rule.RemoteGroupID == sg.ID {
				w.deleted.add(id, now)
				w.dropRule(id)
			}
		}
	}
	if g := w.groups[sg.ID]; g != nil {
		w.concerned = append(w.concerned, sg.ID)
		g.known, g.unknown = false, true
		w.touchGroup(g)
	}
	return nil
}

// pushRule takes a push about a rule.
func (w *Groups) pushRule(o neutron.Primitive, event neutron.Event, now time.Time) error {
	r := &neutron.SecurityGroupRule{}
	if err := o.Decode(neutron.KindSecurityGroupRule, r); err != nil {
		return err
	}
	if w.groups[w.groupOf[r.ID]] != nil || w.groups[r.SecurityGroupID] != nil {
		w.concerned = append(w.concerned, r.ID)
	}
	if event == neutron.Deleted {
		w.deleted.add(r.ID, now)
		w.dropRule(r.ID)
		return nil
	}
	if g := w.groups[r.SecurityGroupID]; g != nil {
		before := len(g.rules)
		if w.learnRule(r); len(g.rules) > before {
			g.added(w.Time)
		}
	}
	return nil
}

// pushAddressGroup takes a push about an address group.
func (w *Members) pushAddressGroup(o neutron.Primitive, event neutron.Event, now time.Time) error {
	var g neutron.AddressGroup
	if err := o.Decode(neutron.KindAddressGroup, &g); err != nil {
		return err
	}
	r := w.remotes[g.ID]
	if r != nil {
		w.concerned = append(w.concerned, g.ID)
	}
	if event == neutron.Deleted {
		w.deleted.add(g.ID, now)
		if r != nil {
			r.known, r.unknown = false, true
			w.setAddresses(r, nil)
		}
		return nil
	}
	if r != nil && r.addresses && !w.Deleted(g.ID) {
		w.learnAddresses(r, &g)
	}
	return nil
}
