// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"iter"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Counts is how a bridge stands.
type Counts struct {
	Wanted  int // flows that owners want
	Present int // flows that are there
	Foreign int // of these, flows that nobody wants and that stay, but for learned ones
	Pending int // flows to add, to change or to delete
}

// Counts looks only at what is not as wanted, so it costs what there is to do.
func (t *Tracker) Counts() Counts {
	c := Counts{Wanted: len(t.want)}
	if !t.known {
		c.Pending = len(t.want)
		return c
	}
	c.Present = len(t.have)
	missing, doomed := 0, 0
	for k := range t.dirty {
		switch {
		case t.asWanted(k):
			continue
		case len(t.want[k]) == 0:
			doomed++
		case t.have[k].IsZero():
			missing++
		}
		c.Pending++
	}
	c.Foreign = c.Present - doomed - (c.Wanted - missing)
	for k := range t.learned {
		if len(t.want[k]) == 0 && !t.dirty[k] {
			c.Foreign--
		}
	}
	return c
}

// Owned counts the flows that an owner wants.
func (t *Tracker) Owned(owner world.Object) int { return len(t.owned[owner]) }

// Known is a flow that is wanted, there, or both. Entries are zero for what is not.
type Known struct {
	Key        of.Key
	Want, Have of.Entry
	Owner      world.Object // who wants it
	Reason     string
	// Doomed: it is there, nobody wants it, and it will be deleted.
	Doomed bool
}

// Same says whether what is there does what is wanted.
func (k Known) Same() bool { return same(k.Want, k.Have) }

// All ranges over the flows that are wanted or there, in no order. The tracker may change while a range is suspended: flows
// that come or go meanwhile are seen or not, and one that changes may be seen twice.
func (t *Tracker) All() iter.Seq[Known] {
	return func(yield func(Known) bool) {
		for k, claims := range t.want {
			f := Known{Key: k, Want: claims[0].entry, Owner: claims[0].owner, Reason: claims[0].reason}
			if t.known {
				f.Have = t.have[k]
			}
			if !yield(f) {
				return
			}
		}
		if !t.known {
			return
		}
		for k, e := range t.have {
			if len(t.want[k]) == 0 && !yield(Known{Key: k, Have: e, Doomed: t.dirty[k]}) {
				return
			}
		}
	}
}
