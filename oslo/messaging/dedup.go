// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync"
)

// seenIDs remembers the latest message ids and recognises repetitions.
//
// A message comes twice when the broker redelivers what was not acknowledged before the connection broke (at most the
// prefetch count), or when its sender repeats a publication that was not confirmed (any number of other messages may
// lie in between, for as long as the sender needs to reconnect). 65,536 ids are more than five minutes at 200 messages
// a second, and cost at most 2 MiB; the table grows only as messages come. Of an id 64 bits are remembered: a new message
// is taken for a repetition once in 10^14 times.
type seenIDs struct {
	mu   sync.Mutex
	ring []uint64
	next int
	set  map[uint64]struct{}
	max  int
}

const seenMax = 1 << 16

func newSeenIDs(n int) *seenIDs { return &seenIDs{set: map[uint64]struct{}{}, max: n} }

// first tells whether id is new, and remembers it. Messages without an id are always new.
func (s *seenIDs) first(id string) bool {
	if id == "" {
		return true
	}
	k := hashID(id)
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

// hashID returns 64 bits of an id. In a UUID, which is what peers send, some bits are the same in all, but not the same ones of both halves.
func hashID(id string) uint64 {
	k := [32]byte{}
	err := hex.ErrLength
	if len(id) == 2*16 {
		_, err = hex.Decode(k[:], []byte(id))
	}
	if err != nil {
		k = sha256.Sum256([]byte(id))
	}
	return binary.BigEndian.Uint64(k[:]) ^ binary.BigEndian.Uint64(k[8:])
}
