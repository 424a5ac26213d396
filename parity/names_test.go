// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// TestLocalVLANsAreToldApart: one network has one local VLAN on a host, and a local VLAN has one network. Both have to show when it
// is otherwise, in rows and in flows, though the numbers themselves mean nothing.
func TestLocalVLANsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		name  string
		ports [][2]string // network and tag
		want  []string    // tags of the ports
		flow  string      // VLAN of a flow that writes the second port's tag
	}{
		{"as it should be", [][2]string{{"N1", "7"}, {"N1", "7"}, {"N2", "3"}}, []string{"N1/201", "N1/201", "N2/201"}, "N1/201"},
		{"other numbers", [][2]string{{"N1", "2"}, {"N1", "2"}, {"N2", "9"}}, []string{"N1/201", "N1/201", "N2/201"}, "N1/201"},
		{"one network, two VLANs", [][2]string{{"N1", "3"}, {"N1", "7"}}, []string{"N1/201", "N1/201#2"}, "N1/201#2"},
		{"one VLAN, two networks", [][2]string{{"N1", "3"}, {"N2", "3"}}, []string{"N1/201+N2/201", "N1/201+N2/201"}, "N1/201+N2/201"},
		{"a dead port of before", [][2]string{{"N1", "3 dead"}, {"N1", "7"}}, []string{"dead", "N1/201"}, "N1/201"},
	} {
		db := NewDatabase()
		for i, p := range c.ports {
			written, dead := strings.CutSuffix(p[1], " dead")
			tag, err := strconv.Atoi(written)
			if err != nil {
				t.Fatal(err)
			}
			if dead {
				tag = deadVLAN
			}
			db.SetPort("br-int", "tap-"+string(rune('A'+i)), func(port *ovsdb.Port, _ *ovsdb.Interface) {
				port.Tag, port.OtherConfig = &tag, map[string]string{"net_uuid": p[0], "segmentation_id": "201", "tag": written}
			})
		}
		n := NewNames()
		n.VLAN(4000, "old-N1/201") // flows of the past
		n.VLAN(4001, "old-N1/201")
		n.Learn(db.View())
		var got []string
		for _, line := range n.Rows(db.View()) {
			if _, tag, ok := strings.Cut(line, " tag="); ok {
				got = append(got, tag)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
		f, err := openflow.ParseFlow("table=3,priority=1,tun_id=1,actions=push_vlan:0x8100,set_field:" + vlanField(t, c.ports[1][1]) + "->vlan_vid,NORMAL")
		if err != nil {
			t.Fatal(err)
		}
		if line, _ := n.Flow("br-tun", f); !strings.Contains(line, "set_vlan:"+c.flow+",") {
			t.Errorf("%s: %s", c.name, line)
		}
		for _, tag := range []uint64{4000, 4001} {
			if name := n.vlan(tag); name != "old-N1/201" {
				t.Errorf("%s: the past is called %s", c.name, name)
			}
		}
		if !slices.IsSorted(n.Rows(db.View())) {
			t.Errorf("%s: rows are not sorted", c.name)
		}
	}
}

// TestADeadPortsVLANIsNotOfThePast: a VLAN that had a name at the last checkpoint keeps it while a dead port has it written down, unless its network has another.
func TestADeadPortsVLANIsNotOfThePast(t *testing.T) {
	for past, want := range map[string]string{"old-N1/201": "N1/201", "old-N2/7": "old-N2/7"} {
		db, tag := NewDatabase(), deadVLAN
		db.SetPort("br-int", "tap-A", func(port *ovsdb.Port, _ *ovsdb.Interface) {
			port.Tag, port.OtherConfig = &tag, map[string]string{"net_uuid": "N1", "segmentation_id": "201", "tag": "3"}
		})
		n := NewNames()
		n.VLAN(3, past)
		n.Learn(db.View())
		if got := n.vlan(3); got != want {
			t.Errorf("%s is called %s, want %s", past, got, want)
		}
	}
}

func vlanField(t *testing.T, tag string) string {
	t.Helper()
	n, err := strconv.Atoi(tag)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(n | openflow.VLANPresent)
}
