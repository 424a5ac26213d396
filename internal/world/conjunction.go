// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/binary"
	"hash/fnv"
)

// conjunctionIDs gives each conjunction in use a block of ids. The ids follow from what the conjunction is, so that a
// restart finds its flows unchanged without remembering anything.
type conjunctionIDs struct {
	of    map[Conjunction]uint32
	owner map[uint32]Conjunction
	// spoilt are ids that two conjunctions came to, or that flows of another agent bear. Nothing gets them: flows that
	// bear them may be on the switch and mean something else.
	spoilt map[uint32]bool
}

// Ids come in blocks of idBlock, and stay below 2^31: a Python agent that takes over later counts up from the highest
// that it finds.
const (
	idBlock  = 8
	idBlocks = 1<<28 - 2
)

func newConjunctionIDs() conjunctionIDs {
	return conjunctionIDs{of: map[Conjunction]uint32{}, owner: map[uint32]Conjunction{}, spoilt: map[uint32]bool{}}
}

// hash is the id that a conjunction would have at the given attempt.
func (c Conjunction) hash(attempt uint32) uint32 {
	h := fnv.New64a()
	var b [6]byte
	binary.BigEndian.PutUint32(b[:], attempt)
	b[4], b[5] = byte(c.Direction), c.IPVersion
	_, _ = h.Write([]byte(c.Group))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(c.Remote))
	_, _ = h.Write(b[:])
	return idBlock * uint32(1+h.Sum64()%idBlocks)
}

// take gives a conjunction its id. Moved are others that got a new one by that: where two come to the same id, neither
// gets it, so that who came first does not matter.
func (ids *conjunctionIDs) take(c Conjunction) (moved []Conjunction) {
	if ids.of[c] != 0 {
		return nil
	}
	for attempt := uint32(0); ; attempt++ {
		id := c.hash(attempt)
		if ids.spoilt[id] {
			continue
		}
		other, taken := ids.owner[id]
		if !taken {
			ids.of[c], ids.owner[id] = id, c
			return moved
		}
		ids.spoilt[id] = true
		ids.release(other)
		moved = append(append(moved, other), ids.take(other)...)
	}
}

func (ids *conjunctionIDs) release(c Conjunction) {
	if id, ok := ids.of[c]; ok {
		delete(ids.of, c)
		delete(ids.owner, id)
	}
}

// ConjunctionID is the first id of a conjunction's block of eight, always a multiple of eight; 0 when it is not in use.
func (w *Members) ConjunctionID(c Conjunction) uint32 { return w.ids.of[c] }

// Avoid names conjunction ids that flows on the switch bear which are not ours. They are never given out.
func (w *Members) Avoid(found []uint32) {
	for _, id := range found {
		id -= id % idBlock
		if id == 0 || w.ids.spoilt[id] {
			continue
		}
		w.ids.spoilt[id] = true
		if c, taken := w.ids.owner[id]; taken {
			w.ids.release(c)
			for _, moved := range append(w.ids.take(c), c) {
				w.renumber(moved)
			}
		}
	}
}

// renumber has everything compiled again that bears the id of a conjunction.
func (w *Members) renumber(c Conjunction) {
	w.markUsers(c)
	for id := range w.groups[c.Group].ports {
		w.mark(PortObject(id))
	}
}

// markUsers has the peers of a conjunction compiled again wherever it is in force.
func (w *Members) markUsers(c Conjunction) {
	for key := range w.groups[c.Group].segments {
		w.markConjunction(c, key)
	}
}
