// SPDX-License-Identifier: Apache-2.0

package world

import "encoding/json"

// strangers remembers the last ports that were heard of and are in no group that matters: an older push about one of them
// that comes late must not make it a member. Most are never looked at, so they are kept as they came.
type strangers struct {
	raw  [lateness][]byte
	next int
	seen map[string]int64 // revisions of those that were looked at
	old  map[string]int64 // the generation before
}

// lateness is by how many others a push may be overtaken.
const lateness = 256

// keep remembers a push that nobody looked at.
func (s *strangers) keep(data []byte) {
	s.raw[s.next%lateness] = data
	s.next++
}

func (s *strangers) note(id string, revision int64) {
	if len(s.seen) >= lateness || s.seen == nil {
		s.seen, s.old = map[string]int64{}, s.seen
	}
	s.seen[id] = max(s.seen[id], revision)
}

// revision is the latest that was heard of a port. Now it is worth looking at those that nobody looked at, once.
func (s *strangers) revision(id string) int64 {
	for i := range min(s.next, lateness) {
		// From the oldest on, so that the latest are forgotten last.
		data := &s.raw[(s.next+i)%lateness]
		if s.next < lateness {
			data = &s.raw[i]
		}
		var m struct {
			ID       string `json:"id"`
			Revision int64  `json:"revision_number"`
		}
		if *data != nil && json.Unmarshal(*data, &m) == nil {
			s.note(m.ID, m.Revision)
		}
		*data = nil
	}
	s.next = 0
	return max(s.seen[id], s.old[id])
}
