// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// twoGroups are the flows of a port that lets members of one group in by tcp/80 and members of another by tcp/443. The ids
// of the conjunctions are %[1]d and %[2]d.
const twoGroups = `
table=82,priority=73,conj_id=%[1]d,ct_state=+new-est,ip,reg5=0x7,actions=load:%#[1]x->NXM_NX_REG7[],output:7
table=82,priority=73,conj_id=%[2]d,ct_state=+new-est,ip,reg5=0x7,actions=load:%#[2]x->NXM_NX_REG7[],output:7
table=82,priority=73,ct_state=+new-est,tcp,reg5=0x7,tp_dst=80,actions=conjunction(%[1]d,2/2)
table=82,priority=73,ct_state=+new-est,tcp,reg5=0x7,tp_dst=443,actions=conjunction(%[2]d,2/2)
table=82,priority=73,ct_state=+new-est,ip,reg6=0x3,nw_src=192.168.100.11,actions=conjunction(%[1]d,1/2)
table=82,priority=73,ct_state=+new-est,ip,reg6=0x3,nw_src=192.168.100.12,actions=conjunction(%[2]d,1/2),conjunction(%[1]d,1/2)
`

func conjLines(t *testing.T, text string, ids ...any) []string {
	t.Helper()
	var flows []openflow.Flow
	for line := range strings.Lines(strings.TrimSpace(fmt.Sprintf(text, ids...))) {
		f, err := openflow.ParseFlow(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, f)
	}
	return testNames().Flows("br-int", flows)
}

func TestConjunctionsAreNamedByTheirFlows(t *testing.T) {
	want := []string{
		"br-int table=82 priority=73 conj_id=82-73-ip4-new#1,reg5=tap-A,ct_state=+new-est,ip actions=set_field:82-73-ip4-new#1->reg7,output:tap-A",
		"br-int table=82 priority=73 conj_id=82-73-ip4-new#2,reg5=tap-A,ct_state=+new-est,ip actions=set_field:82-73-ip4-new#2->reg7,output:tap-A",
		"br-int table=82 priority=73 reg5=tap-A,ct_state=+new-est,tcp,tp_dst=443 actions=conjunction(82-73-ip4-new#1,2/2)",
		"br-int table=82 priority=73 reg5=tap-A,ct_state=+new-est,tcp,tp_dst=80 actions=conjunction(82-73-ip4-new#2,2/2)",
		"br-int table=82 priority=73 reg6=N1/201,ct_state=+new-est,ip,nw_src=192.168.100.11 actions=conjunction(82-73-ip4-new#2,1/2)",
		"br-int table=82 priority=73 reg6=N1/201,ct_state=+new-est,ip,nw_src=192.168.100.12 actions=" +
			"conjunction(82-73-ip4-new#1,1/2),conjunction(82-73-ip4-new#2,1/2)",
	}
	for _, ids := range [][]any{{16, 24}, {24, 16}, {1 << 30, 9}} {
		if diff := cmp.Diff(want, conjLines(t, twoGroups, ids...)); diff != "" {
			t.Errorf("ids %v: %s", ids, diff)
		}
	}
}

// TestConjunctionsAreToldApart swaps what two groups may do, which names by table and priority alone would not show.
func TestConjunctionsAreToldApart(t *testing.T) {
	swapped := strings.NewReplacer("tp_dst=80,", "tp_dst=443,", "tp_dst=443,", "tp_dst=80,").Replace(twoGroups)
	if diff := cmp.Diff(conjLines(t, twoGroups, 16, 24), conjLines(t, swapped, 16, 24)); diff == "" {
		t.Error("no difference between who may do what")
	}
	if got := strings.Join(conjLines(t, strings.ReplaceAll(twoGroups, "priority=73,ct_state=+new-est,tcp", "priority=72,ct_state=+new-est,tcp"), 16, 24), "\n"); !strings.Contains(got, "82-72-ip4-new+82-73-ip4-new#1") {
		t.Errorf("an id of flows that can never be one conjunction looks harmless:\n%s", got)
	}
}
