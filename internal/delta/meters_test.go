// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

func limit(id, rate uint32) Meter {
	return Meter{MeterDesc: of.MeterDesc{ID: id, Flags: of.MeterPktps, Bands: []of.Band{{Rate: rate}}}, Reason: "limit"}
}

// meterText is what has to change, and takes it for done.
func meterText(m *Meters) string {
	in, out := m.Changes()
	var lines []string
	for _, c := range slices.Concat(in, out) {
		lines = append(lines, string(c.AppendText(nil)))
	}
	m.Done(in)
	m.Done(out)
	return strings.Join(lines, "; ")
}

func TestMeters(t *testing.T) {
	a, b := world.PortObject("a"), world.PortObject("b")
	m := NewMeters()
	m.Want(a, []Meter{limit(1, 1000), limit(2, 2000)})
	step := func(what, want string) {
		t.Helper()
		if got := meterText(m); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	step("before anything is known", "")
	if !m.Pending(a) {
		t.Error("not pending, although nothing is known")
	}
	m.Have([]of.MeterDesc{
		{ID: 1, Flags: of.MeterPktps | of.MeterStats, Bands: []of.Band{{Rate: 1000, Burst: 1000}}}, // as the switch shows it
		{ID: 2, Flags: of.MeterPktps, Bands: []of.Band{{Rate: 1}}}, {ID: 9, Flags: of.MeterKbps},
	})
	step("one is right, one is not, one is somebody's", "modify meter=2,pktps,band=type=drop,rate=2000")
	if m.Pending(a) {
		t.Error("pending, although all is done")
	}
	m.Want(b, []Meter{limit(3, 3000)})
	m.Want(a, []Meter{limit(2, 2000)})
	step("another owner comes, and one meter goes", "add meter=3,pktps,band=type=drop,rate=3000; delete meter=1")
	m.Want(a, nil)
	m.Want(b, []Meter{limit(3, 3000), limit(2, 50)})
	step("an id has another owner", "modify meter=2,pktps,band=type=drop,rate=50")
	if stale := m.Stale(); !slices.Equal(stale, []uint32{9}) {
		t.Errorf("stale: %v", stale)
	}
	m.Sweep([]uint32{9, 3})
	step("what was left is swept, what is wanted is not", "delete meter=9")
	m.Want(b, nil)
	m.Lost()
	step("not known any more", "")
	m.Have([]of.MeterDesc{{ID: 3, Flags: of.MeterPktps, Bands: []of.Band{{Rate: 3000}}}})
	step("the rest goes", "delete meter=3")
}
