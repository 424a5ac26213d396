// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"slices"
)

// span is a range of port numbers, both ends included.
type span struct{ lo, hi int }

// anyPort is what a rule without ports counts as beside others that have some. No packet is sent to port 0.
var anyPort = span{1, 65535}

// masked is a set of port numbers that a flow can match: those that equal value in the bits of mask.
type masked struct{ value, mask uint16 }

// masks covers a range of ports with as few flows as possible, lowest ports first.
func (s span) masks() []masked {
	var out []masked
	for next := s.lo; next <= s.hi; {
		// The largest block that can begin here, halved until it fits.
		size := 1 << 16
		for next%size != 0 || next+size-1 > s.hi {
			size /= 2
		}
		out = append(out, masked{uint16(next), uint16(-size)})
		next += size
	}
	return out
}

// claim is a range of ports that is opened for a conjunction, by a rule that is named by its index.
type claim struct {
	span
	id   uint32
	rule int
}

// piece is a range of ports that is open for the same conjunctions from end to end.
type piece struct {
	span
	ids   []uint32
	rules []int
}

// split cuts overlapping ranges into pieces that do not overlap: a packet takes one flow only, so that flow must name every
// conjunction that the packet may belong to. Ranges of one conjunction that overlap count as one; those that merely touch
// stay apart, as with the Python agent.
func split(claims []claim) []piece {
	var whole []claim // without overlaps within a conjunction
	byID := slices.Clone(claims)
	slices.SortStableFunc(byID, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.id, b.id), a.lo-b.lo)
	})
	for _, c := range byID {
		if n := len(whole); n > 0 && whole[n-1].id == c.id && c.lo <= whole[n-1].hi {
			whole[n-1].hi = max(whole[n-1].hi, c.hi)
			continue
		}
		whole = append(whole, c)
	}
	var cuts []int
	for _, c := range whole {
		cuts = append(cuts, c.lo, c.hi+1)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out []piece
	for i := 1; i < len(cuts); i++ {
		p := piece{span: span{cuts[i-1], cuts[i] - 1}}
		for _, c := range whole {
			if c.lo <= p.lo && p.hi <= c.hi {
				p.ids = append(p.ids, c.id) // sorted: whole is
			}
		}
		if len(p.ids) == 0 {
			continue
		}
		for _, c := range claims {
			if c.lo <= p.hi && p.lo <= c.hi {
				p.rules = append(p.rules, c.rule)
			}
		}
		out = append(out, p)
	}
	return out
}
