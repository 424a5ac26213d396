// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestMasks(t *testing.T) {
	for _, tc := range []struct {
		lo, hi int
		want   string
	}{
		{22, 22, "0x0016/0xffff"},
		{8000, 8063, "0x1f40/0xffc0"},
		{40, 105, "0x0028/0xfff8 0x0030/0xfff0 0x0040/0xffe0 0x0060/0xfff8 0x0068/0xfffe"},
		{0, 65535, "0x0000/0x0000"},
		{65535, 65535, "0xffff/0xffff"},
		{
			1, 65535, "0x0001/0xffff 0x0002/0xfffe 0x0004/0xfffc 0x0008/0xfff8 0x0010/0xfff0 0x0020/0xffe0 0x0040/0xffc0 0x0080/0xff80 " +
				"0x0100/0xff00 0x0200/0xfe00 0x0400/0xfc00 0x0800/0xf800 0x1000/0xf000 0x2000/0xe000 0x4000/0xc000 0x8000/0x8000",
		},
	} {
		var got string
		for _, m := range (span{tc.lo, tc.hi}).masks() {
			got += fmt.Sprintf(" %#04x/%#04x", m.value, m.mask)
		}
		if got != " "+tc.want {
			t.Errorf("%d to %d:%s, want %s", tc.lo, tc.hi, got, tc.want)
		}
	}
}

// Every port of a range is matched by exactly one of its masks, every other port by none, and nothing shorter would do.
func TestMasksCoverTheRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.IntRange(0, 65535).Draw(t, "lo")
		s := span{lo, rapid.IntRange(lo, 65535).Draw(t, "hi")}
		all := s.masks()
		for port := range 65536 {
			n := 0
			for _, m := range all {
				if uint16(port)&m.mask == m.value {
					n++
				}
			}
			if want := port >= s.lo && port <= s.hi; n != 0 != want || n > 1 {
				t.Fatalf("port %d is matched %d times by %v", port, n, all)
			}
		}
		for i := 1; i < len(all); i++ {
			if a, b := all[i-1], all[i]; a.mask == b.mask && a.value^b.value == ^a.mask+1 && a.value&(^a.mask+1) == 0 {
				t.Fatalf("%v and %v could be one", a, b)
			}
		}
	})
}

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		claims []claim
		want   string
	}{
		{"nothing", nil, ""},
		{"one", []claim{{span{80, 90}, 8, 0}}, "80-90 [8]"},
		{"apart", []claim{{span{80, 80}, 8, 0}, {span{90, 90}, 16, 1}}, "80-80 [8] 90-90 [16]"},
		{"overlap", []claim{{span{80, 90}, 16, 0}, {span{85, 95}, 8, 1}}, "80-84 [16] 85-90 [8 16] 91-95 [8]"},
		{"one within another", []claim{{span{1, 65535}, 8, 0}, {span{22, 22}, 16, 1}}, "1-21 [8] 22-22 [8 16] 23-65535 [8]"},
		{"the same twice", []claim{{span{80, 90}, 8, 0}, {span{80, 90}, 16, 1}}, "80-90 [8 16]"},
		{"of one conjunction", []claim{{span{80, 90}, 8, 0}, {span{85, 95}, 8, 1}}, "80-95 [8]"},
		{"of one conjunction, touching", []claim{{span{80, 90}, 8, 0}, {span{91, 95}, 8, 1}}, "80-90 [8] 91-95 [8]"},
		{"end where another begins", []claim{{span{80, 90}, 8, 0}, {span{90, 95}, 16, 1}}, "80-89 [8] 90-90 [8 16] 91-95 [16]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got string
			for i, p := range split(tc.claims) {
				if i > 0 {
					got += " "
				}
				got += fmt.Sprintf("%d-%d %v", p.lo, p.hi, p.ids)
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// Every port is in at most one piece, and that piece names exactly the conjunctions and rules that open the port.
func TestSplitKeepsWhatEachPortIsOpenFor(t *testing.T) {
	claims := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) claim {
		lo := rapid.IntRange(1, 60).Draw(t, "lo")
		return claim{span{lo, rapid.IntRange(lo, 60).Draw(t, "hi")}, uint32(rapid.IntRange(1, 4).Draw(t, "id")) * 8, 0}
	}), 0, 8)
	rapid.Check(t, func(t *rapid.T) {
		all := claims.Draw(t, "claims")
		for i := range all {
			all[i].rule = i
		}
		pieces := split(all)
		for port := range 62 {
			var ids []uint32
			for _, c := range all {
				if c.lo <= port && port <= c.hi {
					ids = append(ids, c.id)
				}
			}
			slices.Sort(ids)
			ids = slices.Compact(ids)
			var found []piece
			for _, p := range pieces {
				if p.lo <= port && port <= p.hi {
					found = append(found, p)
				}
			}
			switch {
			case len(found) > 1, len(found) == 0 && len(ids) > 0, len(found) == 1 && !slices.Equal(found[0].ids, ids):
				t.Fatalf("port %d is open for %v, but is in %v", port, ids, found)
			}
		}
		for _, p := range pieces {
			for i, c := range all {
				if overlaps := c.lo <= p.hi && p.lo <= c.hi; overlaps != slices.Contains(p.rules, i) {
					t.Fatalf("rule %d (%v) and piece %v", i, c, p)
				}
			}
		}
	})
}
