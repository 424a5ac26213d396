// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"sync"
)

// seenIDs remembers the latest message ids and recognises repetitions.
//
// A message comes twice when the broker redelivers what was not acknowledged before the connection broke (at most the
// prefetch count), or when its sender repeats a publication that was not confirmed (any number of other messages may
// lie in between, for as long as the sender needs to reconnect). 65,536 ids are more than five minutes at 200 messages
// a second. At least so many are remembered and at most twice as many, in 1.5 MiB; the tables grow only as messages come.
type seenIDs struct {
	mu       sync.Mutex
	now, old idTable
	max      int // of a table
}

const seenMax = 1 << 16

func newSeenIDs(n int) *seenIDs { return &seenIDs{max: n} }

// first tells whether id is new, and remembers it. Messages without an id are always new.
func (s *seenIDs) first(id string) bool {
	if id == "" {
		return true
	}
	k := hashID(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.has(k) || s.old.has(k) {
		return false
	}
	if s.now.n == s.max {
		s.now, s.old = idTable{}, s.now
	}
	s.now.add(k)
	return true
}

// idTable is a set of hashes, from which nothing is removed. A map would take two to three times its memory.
type idTable struct {
	slots []uint64 // a hash is in the first free one from its own on
	n     int
}

// slot is where a hash is, or where it would go. There is always a free one.
func (t *idTable) slot(k uint64) *uint64 {
	own, _ := bits.Mul64(k, uint64(len(t.slots)))
	for i := own; ; {
		if t.slots[i] == k || t.slots[i] == 0 {
			return &t.slots[i]
		}
		if i++; i == uint64(len(t.slots)) {
			i = 0
		}
	}
}

func (t *idTable) has(k uint64) bool { return t.n > 0 && *t.slot(k) == k }

// add adds a hash that is not in the set.
func (t *idTable) add(k uint64) {
	if 8*(t.n+1) > 7*len(t.slots) {
		before := t.slots
		t.slots = make([]uint64, max(16, len(before)*5/4)) // by little: most of the table is full at all times
		for _, k := range before {
			if k != 0 {
				*t.slot(k) = k
			}
		}
	}
	*t.slot(k) = k
	t.n++
}

// hashID returns 64 bits of an id, not all of them 0: a new message is taken for a repetition once in 10^14 times. In a UUID, which is
// what peers send, some bits are the same in all, but not the same ones of both halves.
func hashID(id string) uint64 {
	k := [32]byte{}
	err := hex.ErrLength
	if len(id) == 2*16 {
		_, err = hex.Decode(k[:], []byte(id))
	}
	if err != nil {
		k = sha256.Sum256([]byte(id))
	}
	return max(1, binary.BigEndian.Uint64(k[:])^binary.BigEndian.Uint64(k[8:]))
}
