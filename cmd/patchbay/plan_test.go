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
	if f, _, err := splitPlanFlags([]string{"--timeout=2m"}); err != nil || f.Timeout != 2*time.Minute {
		t.Errorf("%+v %v", f, err)
	}
	for _, bad := range [][]string{{"--timeout"}, {"--timeout", "soon"}, {"--timeout=-1s"}, {"-o"}, {"--output=wide"}} {
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
		`~ 9 in_port=5<tap5> → drop  ⇒  output:"new"  (port p: because)`, "table 82 RULES_INGRESS: 9 removed", "… and 4 more, see --all",
		"br-ex gets its first controller", "2 zones emptied, of networks that are new here: 4, 7", "1 tunnel, 2 forwarding entries",
		"1 row (1 changed) and 10 flows (9 removed, 1 changed) would change; 100 flows and 3 ports of 2 bridges compared in 0.4 s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := planText(p, true); strings.Contains(text, "see --all") || strings.Count(text, "nothing wants it") != 9 {
		t.Errorf("--all leaves something out:\n%s", text)
	}
	if text := planText(&plan.Plan{Complete: true}, false); !strings.HasPrefix(text, "nothing would change: ") {
		t.Error(text)
	}
	if text := planText(&plan.Plan{}, false); !strings.HasPrefix(text, "not complete") {
		t.Error(text)
	}
}
