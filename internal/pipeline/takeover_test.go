// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// The integration bridge of a Python agent 21, as far as it leads packets to table 60: port A has a limit of packets.
var bridgeOf21 = []string{
	"table=0,priority=0 actions=goto_table:59",
	"table=0,priority=3,in_port=2,dl_vlan=300 actions=set_field:4098->vlan_vid,goto_table:59",
	"table=30,priority=0 actions=goto_table:59",
	"table=59,priority=0 actions=goto_table:60",
	"table=59,priority=100,in_port=11,dl_src=fa:16:3e:00:00:0a actions=meter:1,goto_table:60",
	"table=60,priority=3 actions=NORMAL",
	"table=60,priority=100,in_port=11 actions=set_field:11->reg5,set_field:1->reg6,resubmit(,71)",
}

// way returns the tables that a packet goes through on a bridge, to table 60 at most.
func way(t *testing.T, bridge map[of.Key]of.Flow, packet string) []uint8 {
	t.Helper()
	p, err := of.ParseFlow("table=0,priority=1," + packet + " actions=drop")
	if err != nil {
		t.Fatal(err)
	}
	tables := []uint8{0}
	for {
		at := tables[len(tables)-1]
		var matching []of.Flow
		for _, f := range bridge {
			if f.Table == at && matchesPacket(f.Match, p.Match) {
				matching = append(matching, f)
			}
		}
		if len(matching) == 0 || at == intTransient {
			return tables
		}
		best := slices.MaxFunc(matching, func(a, b of.Flow) int { return cmp.Compare(a.Priority, b.Priority) })
		if len(best.Actions) == 0 {
			return tables
		}
		to, ok := best.Actions[len(best.Actions)-1].(of.GotoTable)
		if !ok {
			t.Fatalf("%s ends in %v", packet, best.Actions)
		}
		tables = append(tables, uint8(to))
	}
}

// TestTakeoverFrom21: a packet finds its way to table 60 on the bridge of a Python agent 21, when our flows have joined it in one
// bundle, and when what is left of it was pruned.
func TestTakeoverFrom21(t *testing.T) {
	for _, mode := range []string{"", "option fail_closed\n", "option fail_closed now\n"} {
		c := play(t, mode+"network N vxlan 42\nnetwork V vlan 300\ngroup g\nport A 11 N 10.0.0.10 group g\nport B 12 V 10.1.0.10 group g\ninterface patch-tun 1\ninterface int-br-ex 2\n").cloud()
		c.converge(t)
		theirs, ours := map[of.Key]of.Flow{}, map[of.Key]of.Flow{}
		for _, text := range bridgeOf21 {
			theirs[openflowtest.Entry(t, text).Key()] = openflowtest.Flow(t, text)
		}
		for k, f := range c.all(t, func(world.Object) bool { return true }) {
			flow, err := f.Entry.Flow()
			if err != nil {
				t.Fatal(err)
			}
			ours[k] = flow
		}
		both := maps.Clone(theirs)
		maps.Copy(both, ours)
		for _, packet := range []string{
			"in_port=11,dl_src=fa:16:3e:00:00:0a,ip", "in_port=1,dl_vlan=1,dl_dst=fa:16:3e:00:00:0a,ip", "in_port=2,dl_vlan=300,dl_dst=fa:16:3e:00:00:0b,ip",
		} {
			for _, stage := range []struct {
				name   string
				bridge map[of.Key]of.Flow
				want   []uint8
			}{
				{"before", theirs, []uint8{0, 59, 60}},
				{"in one bundle", both, []uint8{0, 58, 59, 60}},
				{"pruned", ours, []uint8{0, 58, 59, 60}},
			} {
				if got := way(t, stage.bridge, packet); !slices.Equal(got, stage.want) {
					t.Errorf("%q, %s: %s goes through tables %v, not %v", mode, stage.name, packet, got, stage.want)
				}
			}
		}
	}
}
