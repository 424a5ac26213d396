// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/rawjson"
)

// strangers remembers the last ports that were heard of and are in no group that matters: an older push about one of them
// that comes late must not make it a member. Most are never looked at, so they are kept as they came.
type strangers struct {
	raw  [lateness][]byte
	next int
	kept bool             // see Passed
	seen map[string]int64 // revisions of those that were looked at
	old  map[string]int64 // the generation before
}

// lateness is by how many others a push may be overtaken.
const lateness = 256

// keep remembers a push that nobody looked at.
func (s *strangers) keep(data []byte) {
	s.raw[s.next%lateness] = data
	s.next++
	s.kept = true
}

// errEnough ends the reading of a port, the rest of which is not needed.
var errEnough = errors.New("enough")

// Stranger returns what is remembered of a pushed port with which this host has nothing to do.
func Stranger(data []byte) (id string, revision int64, ok bool) {
	found := 0
	_, err := rawjson.Members(data, func(key, rest []byte) (int, error) {
		n, err := rawjson.Skip(rest)
		switch {
		case err != nil:
			return 0, err
		case string(key) == "id":
			id, err = rawjson.String(rest[:n])
		case string(key) == "revision_number":
			revision, err = strconv.ParseInt(string(rest[:n]), 10, 64)
		default:
			return n, nil
		}
		if found++; err == nil && found == 2 {
			err = errEnough
		}
		return n, err
	})
	return id, revision, errors.Is(err, errEnough)
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
		if id, revision, ok := Stranger(*data); ok {
			s.note(id, revision)
		}
		*data = nil
	}
	s.next = 0
	return max(s.seen[id], s.old[id])
}
