// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"cmp"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Meters is for the meters of a bridge what a [Tracker] is for its flows. Each meter has one owner: ids are given out so.
type Meters struct {
	want  map[uint32]meter
	owned map[world.Object][]uint32
	have  map[uint32]of.MeterDesc
	known bool
	gone  map[uint32]bool // there, and not wanted any more, or never and released by Sweep
}

type meter struct {
	owner  world.Object
	desc   of.MeterDesc
	reason string
}

// NewMeters returns the meters of a bridge about which nothing is known.
func NewMeters() *Meters {
	return &Meters{
		want: map[uint32]meter{}, owned: map[world.Object][]uint32{}, have: map[uint32]of.MeterDesc{}, gone: map[uint32]bool{},
	}
}

// Meter is a wanted meter with its reason.
type Meter struct {
	of.MeterDesc
	Reason string
}

// Want replaces everything that an owner wants.
func (m *Meters) Want(owner world.Object, meters []Meter) {
	if len(meters) == 0 && len(m.owned[owner]) == 0 {
		return // nearly every object
	}
	for _, id := range m.owned[owner] {
		if m.want[id].owner == owner {
			delete(m.want, id)
			m.gone[id] = true
		}
	}
	delete(m.owned, owner)
	for _, w := range meters {
		m.want[w.ID] = meter{owner, w.MeterDesc, w.Reason}
		m.owned[owner] = append(m.owned[owner], w.ID)
		delete(m.gone, w.ID)
	}
}

// Have takes all meters of the bridge.
func (m *Meters) Have(meters []of.MeterDesc) {
	m.known = true
	clear(m.have)
	for _, d := range meters {
		m.have[d.ID] = d
	}
}

// Lost says that what the switch has is no longer known.
func (m *Meters) Lost() { m.known = false }

// MeterChange is one step to make what is there equal to what is wanted.
type MeterChange struct {
	of.MeterMod
	Owner world.Object // nil for a deletion
}

// Changes lists the meters that have to come or to change before flows do, and those that have to go after them.
func (m *Meters) Changes() (in, out []MeterChange) {
	if !m.known {
		return nil, nil
	}
	for _, id := range slices.Sorted(maps.Keys(m.want)) {
		w := m.want[id]
		switch have, there := m.have[id]; {
		case !there:
			in = append(in, MeterChange{of.MeterMod{Command: of.Add, Meter: w.desc}, w.owner})
		case !sameMeter(w.desc, have):
			in = append(in, MeterChange{of.MeterMod{Command: of.Modify, Meter: w.desc}, w.owner})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.gone)) {
		if _, there := m.have[id]; there {
			out = append(out, MeterChange{MeterMod: of.MeterMod{Command: of.Delete, Meter: of.MeterDesc{ID: id}}})
		}
	}
	return in, out
}

// Sent says that Changes, or a part of them, are on their way from now on.
func (m *Meters) Sent() {
	for id := range m.gone {
		if _, there := m.have[id]; m.known && !there {
			delete(m.gone, id)
		}
	}
}

// sameMeter compares meters by what they do.
func sameMeter(want, have of.MeterDesc) bool {
	const counted = of.MeterStats // the switch counts anyway
	return want.Flags&^counted == have.Flags&^counted && slices.EqualFunc(want.Bands, have.Bands, func(w, h of.Band) bool {
		if want.Flags&of.MeterBurst == 0 {
			w.Burst, h.Burst = 0, 0 // it does not count, and the switch makes it the rate
		}
		return w == h
	})
}

// Done says that changes were applied.
func (m *Meters) Done(changes []MeterChange) {
	for _, c := range changes {
		if c.Command == of.Delete {
			delete(m.have, c.Meter.ID)
		} else {
			m.have[c.Meter.ID] = c.Meter
		}
	}
}

// Pending says whether a meter that an owner wants is not there yet.
func (m *Meters) Pending(owner world.Object) bool {
	return slices.ContainsFunc(m.owned[owner], func(id uint32) bool {
		have, there := m.have[id]
		return !m.known || !there || !sameMeter(m.want[id].desc, have)
	})
}

// Stale lists the meters that are there and that nothing wants.
func (m *Meters) Stale() []uint32 {
	var ids []uint32
	for id := range m.have {
		if _, wanted := m.want[id]; !wanted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Sweep releases stale meters. Meters bear no mark; which of them are an agent's shows in the flows that use them.
func (m *Meters) Sweep(ids []uint32) {
	for _, id := range ids {
		if _, wanted := m.want[id]; !wanted {
			m.gone[id] = true
		}
	}
}

// All lists what is wanted, by id, with owners and reasons.
func (m *Meters) All() []OwnedMeter {
	out := make([]OwnedMeter, 0, len(m.want))
	for id, w := range m.want {
		have, there := m.have[id]
		out = append(out, OwnedMeter{Meter{w.desc, w.reason}, w.owner, m.known && there && sameMeter(w.desc, have)})
	}
	slices.SortFunc(out, func(a, b OwnedMeter) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// OwnedMeter is a wanted meter, who wants it, and whether it is there.
type OwnedMeter struct {
	Meter
	Owner   world.Object
	Present bool
}
