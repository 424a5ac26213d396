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

// Push takes news about objects. Most are about ports of other hosts and are dropped after a look at their ids. Each object counts
// alone: one that cannot be read holds up no other, and what is known here of it stays in force and is asked for again.
func (w *World) Push(push *neutron.Push, now time.Time) error {
	w.concerned = w.concerned[:0]
	var errs []error
	for _, o := range push.Objects {
		var err error
		if !w.contain(Object{}, func() { err = w.push(push.Kind, o, push.Event, now) }) {
			err = fmt.Errorf("%s %s: taking it failed", push.Kind, push.Event)
		}
		if err != nil {
			w.doubtMentioned(push.Kind, o.Data)
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
		return w.pushGroup(o, event, now)
	case kind == neutron.KindSecurityGroupRule:
		return w.pushRule(o, event, now)
	case kind == neutron.KindAddressGroup:
		return w.pushAddressGroup(o, event, now)
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
		if w.learn(d); w.ports[d.ID] != nil || w.members[d.ID] != nil {
			w.concerned = append(w.concerned, d.ID)
		}
	case !w.Config.Filter:
	case concern == aMember, len(w.asking) > 0:
		m := &neutron.Member{}
		if err := o.Decode(neutron.KindPort, m); err != nil {
			return err
		}
		if w.learnMember(m); w.members[m.ID] != nil {
			w.concerned = append(w.concerned, m.ID)
		}
	default:
		w.strangers.keep(o.Data)
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
		w.deleted[head.ID] = now
	}
	if p != nil || w.members[head.ID] != nil {
		w.concerned = append(w.concerned, head.ID)
	}
	w.dropMember(head.ID)
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
		case w.members[string(id)] != nil:
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
	for key, s := range w.segments {
		if key.Network != n.ID || len(n.Segments) == 0 || has(n.Segments, s) {
			continue
		}
		w.concerned = append(w.concerned, n.ID)
		for id := range s.ports {
			w.doubt(w.ports[id])
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
