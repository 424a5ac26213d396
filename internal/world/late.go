// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"hash/maphash"
	"maps"
	"strconv"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/rawjson"
)

// strangers remembers the last ports that were heard of and are in no group that matters: an older push about one of them
// that comes late must not make it a member. It takes the same few kilobytes however large the pushes are and however many come.
type strangers struct {
	heard [2 * lateness]heard
	next  int
	kept  bool // see Passed
}

// heard is what is remembered of a port: a hash of its id, and the revision.
type heard struct {
	id       uint64
	revision int64
}

// lateness is by how many others a push may be overtaken. Some of them come more than once, so twice as many pushes are remembered.
const lateness = 256

// keep remembers a push about a port with which this host has nothing to do.
func (s *strangers) keep(data []byte) {
	s.kept = true
	if id, revision, ok := Stranger(data); ok {
		s.note(id, revision)
	}
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
	s.heard[s.next%len(s.heard)] = heard{hashed(id), revision}
	s.next++
}

// revision is the latest that was heard of a port.
func (s *strangers) revision(id string) (latest int64) {
	h := hashed(id)
	for i := range s.heard {
		if s.heard[i].id == h {
			latest = max(latest, s.heard[i].revision)
		}
	}
	return latest
}

// tombstones are what was deleted lately. A region deletes ports all day, and each agent remembers them all for a while: so it remembers a hash of each id, and when.
type tombstones struct {
	first time.Time // the times count from here
	at    map[uint64]time.Duration
}

func (t *tombstones) add(id string, now time.Time) {
	if len(t.at) == 0 {
		t.first, t.at = now, map[uint64]time.Duration{}
	}
	t.at[hashed(id)] = now.Sub(t.first)
}

func (t *tombstones) has(id string) bool {
	if len(t.at) == 0 {
		return false
	}
	_, ok := t.at[hashed(id)]
	return ok
}

// expire forgets what is older than tombstoneLife.
func (t *tombstones) expire(now time.Time) {
	maps.DeleteFunc(t.at, func(_ uint64, at time.Duration) bool { return now.Sub(t.first)-at > tombstoneLife })
}

// hashed is a hash of an id: that two of 10,000 ids are alike has a probability of 10^-11.
func hashed(id string) uint64 { return maphash.String(seed, id) }

// seed is of this run: hashes are written down nowhere.
var seed = maphash.MakeSeed()
