// SPDX-License-Identifier: Apache-2.0

package world

import "hash/fnv"

// MeterIDs are ids of meters, and for which extension and what each of them was given out.
type MeterIDs map[uint32]MeterUse

// MeterUse says what a meter is for. For is a text of the extension's own.
type MeterUse struct{ Extension, For string }

// Choose returns an id for a use, at most most, and gives it out. It is made from what the meter is for, so that it depends on what came first
// only where two uses would have the same. Taken are ids that others use. It returns 0 if there is none left.
func (m MeterIDs) Choose(use MeterUse, most uint32, taken func(id uint32) bool) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(use.For))
	for i := range most {
		if id := (h.Sum32()+i)%most + 1; m.Free(id, use) && !taken(id) {
			m[id] = use
			return id
		}
	}
	return 0
}

// Free says whether an id can be given out for a use: nobody has it, or the use itself.
func (m MeterIDs) Free(id uint32, use MeterUse) bool {
	other, given := m[id]
	return !given || other == use
}

// Release takes back the id of a use.
func (m MeterIDs) Release(id uint32, use MeterUse) {
	if m[id] == use {
		delete(m, id)
	}
}
