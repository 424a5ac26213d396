// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/plan"
)

func TestFlagsOfPlanStandBetweenTheAgents(t *testing.T) {
	f, rest, err := splitPlanFlags([]string{"--config-file", "a", "-o", "yaml", "--timeout", "5s", "--all", "--debug", "--offline"})
	if err != nil || f.Output.name != formatYAML || !f.All || !f.Offline || f.Timeout != 5*time.Second ||
		!slices.Equal(rest, []string{"--config-file", "a", "--debug"}) {
		t.Errorf("%+v %v %v", f, rest, err)
	}
	if f, _, err := splitPlanFlags([]string{"-o", "wide"}); err != nil || f.Output.name != formatWide || f.Output.forPrograms() {
		t.Errorf("%+v %v", f, err)
	}
	if f, _, err := splitPlanFlags([]string{"--timeout=2m"}); err != nil || f.Timeout != 2*time.Minute {
		t.Errorf("%+v %v", f, err)
	}
	for _, bad := range [][]string{{"--timeout"}, {"--timeout", "soon"}, {"--timeout=-1s"}, {"-o"}, {"--output=name"}} {
		if _, _, err := splitPlanFlags(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

func planText(p *plan.Plan, all bool) string {
	var out bytes.Buffer
	planView{out: &out, plan: p, all: all}.write()
	return out.String()
}

func TestAPlanForPeople(t *testing.T) {
	p := &plan.Plan{
		Complete: true, Seconds: 0.42, Compared: plan.Compared{Bridges: 2, Ports: 3, Flows: 100},
		Assumed: plan.Assumed{Tunnels: 1, Entries: 2}, Flushed: []string{"br-ex"}, Zones: []uint16{4, 7},
		Ports: map[string]map[uint32]string{"br-int": {5: "tap5"}},
		Rows: []plan.Row{{
			Owner:     "port p",
			RowChange: ovsdb.RowChange{Change: "changed", Table: "Port", Name: "tap5", Bridge: "br-int", Values: []ovsdb.ColumnChange{{Column: "tag", After: "3"}}},
		}},
		Flows: []plan.Flow{{
			Change: "changed", Bridge: "br-int", Table: 60, Priority: 9, Match: "in_port=5", Before: "drop", Actions: `output:"new"`,
			Owner: "port p", Reason: "because",
		}},
	}
	for range 9 {
		p.Flows = append(p.Flows, plan.Flow{Change: "removed", Bridge: "br-int", Table: 82, Match: "ip", Actions: "drop", Reason: "nothing wants it"})
	}
	text := planText(p, false)
	for _, want := range []string{
		"br-int\n", "rows: 1 changed", "~ Port tap5: tag none → 3  (port p)", "table 60 TRANSIENT: 1 changed",
		`~ 9 in_port=5<tap5> → drop  ⇒  output:"new"  (port p: because)`, "table 82 RULES_INGRESS: 9 removed", "- 0 ip → drop  (nothing wants it)  … and 8 more alike\n",
		"br-ex gets its first controller", "2 zones emptied, of networks that are new here: 4, 7", "1 tunnel, 2 forwarding entries",
		"1 row (1 changed) and 10 flows (9 removed, 1 changed) would change; 100 flows and 3 ports of 2 bridges compared in 0.4 s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := planText(p, true); strings.Contains(text, "alike") || strings.Count(text, "nothing wants it") != 9 {
		t.Errorf("-o wide leaves something out:\n%s", text)
	}
	if text := planText(&plan.Plan{Complete: true}, false); !strings.HasPrefix(text, "nothing would change: ") {
		t.Error(text)
	}
	if text := planText(&plan.Plan{}, false); !strings.HasPrefix(text, "not complete") {
		t.Error(text)
	}
}

// What changes in the same way for many ports is one line; what does something else has its own.
func TestAlikeChangesAreOneLine(t *testing.T) {
	p := &plan.Plan{Complete: true}
	add := func(table uint8, match, actions, owner, reason string) {
		p.Flows = append(p.Flows, plan.Flow{Change: "added", Bridge: "br-int", Table: table, Priority: 1, Match: match, Actions: actions, Owner: owner, Reason: reason})
	}
	for i, id := range []string{"15f4510b-36d9-4326-936a-1eff469964eb", "8b10f263-91aa-4326-936a-1eff469964eb", "aaaaaaaa-91aa-4326-936a-1eff469964eb"} {
		n := string(rune('3' + i))
		add(0, "in_port="+n, "goto_table:58", "port "+id, "the filters of the port are in place")
		add(71, "arp,in_port="+n+",reg5=0x"+n+",dl_src=fa:16:3e:00:00:0"+n+",arp_spa=10.0.0."+n, "output:"+n, "port "+id, "rule "+id+" allows it to fd00::"+n)
		p.Rows = append(p.Rows, plan.Row{Owner: "port " + id, RowChange: ovsdb.RowChange{
			Change: "changed", Table: "Port", Name: "tap" + n, Bridge: "br-int", Values: []ovsdb.ColumnChange{{Column: "tag", Before: "4095", After: n}},
		}})
	}
	add(0, "in_port=9", "goto_table:59", "port x", "the filters of the port are in place")
	add(0, "in_port=9", "goto_table:58", "trunk x", "the filters of the port are in place")
	for dport := range 9 {
		add(82, "tcp,reg5=0x3,tp_dst=8"+string(rune('0'+dport)), "output:3", "port x", "a rule")
	}
	text := planText(p, false)
	for _, want := range []string{
		"+ 1 in_port=3 → goto_table:58<PACKET_RATE_LIMIT>  (port 15f4510b-36d9-4326-936a-1eff469964eb: the filters of the port are in place)  … and 2 more alike\n",
		"goto_table:59<BANDWIDTH_RATE_LIMIT>  (port x: the filters of the port are in place)\n", "(trunk x: the filters of the port are in place)\n",
		"allows it to fd00::3)  … and 2 more alike\n", "~ Port tap3: tag 4095 → 3  (port 15f4510b-36d9-4326-936a-1eff469964eb)  … and 2 more alike\n",
		"tp_dst=84 → output:3  (port x: a rule)\n    … and 4 more of 4 kinds, see -o wide\n", "17 flows (17 added)", "3 rows (3 changed)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
