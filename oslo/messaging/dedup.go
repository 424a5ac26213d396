// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
)

// seenIDs remembers the latest message ids and recognises repetitions.
//
// A message comes twice when the broker redelivers what was not acknowledged before the connection broke (at most the
// prefetch count), or when its sender repeats a publication that was not confirmed (any number of other messages may
// lie in between, for as long as the sender needs to reconnect). 65,536 ids are more than five minutes at 200 messages
// a second, and cost at most 4 MiB; the table grows only as messages come.
type seenIDs struct {
	mu   sync.Mutex
	ring [][16]byte
	next int
	set  map[[16]byte]struct{}
	max  int
}

const seenMax = 1 << 16

func newSeenIDs(n int) *seenIDs { return &seenIDs{set: map[[16]byte]struct{}{}, max: n} }

// first tells whether id is new, and remembers it. Messages without an id are always new.
func (s *seenIDs) first(id string) bool {
	if id == "" {
		return true
	}
	var k [16]byte
	if len(id) == 32 {
		if _, err := hex.Decode(k[:], []byte(id)); err != nil {
			k = hashID(id)
		}
	} else {
		k = hashID(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, dup := s.set[k]; dup {
		return false
	}
	if len(s.ring) < s.max {
		s.ring = append(s.ring, k)
	} else {
		delete(s.set, s.ring[s.next])
		s.ring[s.next] = k
		s.next = (s.next + 1) % s.max
	}
	s.set[k] = struct{}{}
	return true
}

func hashID(id string) (k [16]byte) {
	h := sha256.Sum256([]byte(id))
	copy(k[:], h[:])
	return k
}
