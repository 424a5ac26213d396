// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/tables"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

var viewFlows = []string{
	"table=0,priority=0,actions=goto_table:58",
	"table=60,priority=100,cookie=0xaa,in_port=3,actions=load:0x3->NXM_NX_REG5[],load:0x7->NXM_NX_REG6[],resubmit(,71)",
	"table=71,priority=65,ip,reg5=0x3,in_port=3,actions=ct(table=72,zone=NXM_NX_REG6[0..15])",
	"table=82,priority=77,tcp,reg5=0x4,tp_dst=80,actions=output:4",
	"table=200,priority=1,idle_timeout=30,in_port=9,actions=drop",
}

func newView(out *bytes.Buffer) *flowView {
	return &flowView{out: out, kind: tables.Integration, ports: map[uint32]string{3: "tap3", 4: "tap4"}}
}

func viewLines(t *testing.T, v *flowView) []flowLine {
	t.Helper()
	var list []flowLine
	for _, s := range viewFlows {
		l := newFlowLine(openflowtest.Entry(t, s))
		if v.selects(&l) {
			list = append(list, l)
		}
	}
	return list
}

func TestFlowsText(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	v.write("br-int", viewLines(t, v))
	want := `br-int: 5 flows in 5 tables
priority  packets  match → actions

table 0 LOCAL_SWITCHING: 1 flow
       0        0  any  → goto_table:58<PACKET_RATE_LIMIT>

table 60 TRANSIENT: 1 flow
     100        0  in_port=3<tap3>  → load:0x3->NXM_NX_REG5[],load:0x7->NXM_NX_REG6[],resubmit(,71<BASE_EGRESS>)

table 71 BASE_EGRESS: 1 flow
      65        0  ip,reg5=0x3,in_port=3<tap3>  → ct(table=72<RULES_EGRESS>,zone=NXM_NX_REG6[0..15])

table 82 RULES_INGRESS: 1 flow
      77        0  tcp,reg5=0x4,tp_dst=80  → output:4<tap4>

table 200: 1 flow
       1        0  in_port=9  → drop idle 30s
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestFlowsSelect(t *testing.T) {
	for _, tc := range []struct {
		what string
		set  func(*flowView)
		want int
	}{
		{"table", func(v *flowView) { v.tables = []uint8{71, 82} }, 2},
		{"port by in_port and register", func(v *flowView) { v.port = 3 }, 2},
		{"port by output", func(v *flowView) { v.port = 4 }, 1},
		{"text", func(v *flowView) { v.text = "tap3" }, 2},
		{"table name", func(v *flowView) { v.text = "RULES_EGRESS" }, 1},
		{"cookie", func(v *flowView) { v.text = "0xaa" }, 1},
	} {
		v := newView(nil)
		tc.set(v)
		if got := len(viewLines(t, v)); got != tc.want {
			t.Errorf("%s selects %d flows, not %d", tc.what, got, tc.want)
		}
	}
	v := newView(nil)
	for s, want := range map[string]uint8{"82": 82, "rules_ingress": 82} {
		if n, err := v.table(s); err != nil || n != want {
			t.Errorf("%s: %d %v", s, n, err)
		}
	}
	if _, err := v.table("no such"); err == nil {
		t.Error("no error")
	}
	for s, want := range map[string]uint32{"tap4": 4, "17": 17} {
		if n, err := v.portNumber(s); err != nil || n != want {
			t.Errorf("%s: %d %v", s, n, err)
		}
	}
}

func TestFlowsJSON(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	if err := v.writeDocument(viewLines(t, v)); err != nil {
		t.Fatal(err)
	}
	var list []flowLine
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 5 || list[1].TableName != "TRANSIENT" || list[1].Match != "in_port=3" || list[1].Cookie != "0xaa" {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if err := v.writeDocument(nil); err != nil || strings.TrimSpace(out.String()) != "[]" {
		t.Errorf("%q %v", out.String(), err)
	}
}

func TestFlowsWatch(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	now := time.Date(2026, 11, 15, 1, 2, 3, 0, time.UTC)
	ev := &openflow.MonitorUpdate{Updates: []openflow.FlowUpdate{
		{Event: openflow.FlowAdded, Entry: openflowtest.Entry(t, viewFlows[3])},
		{Event: openflow.FlowDeleted, Entry: openflowtest.Entry(t, viewFlows[0])},
		{Event: openflow.FlowOwn},
	}}
	if err := v.event(ev, now); err != nil {
		t.Fatal(err)
	}
	want := `01:02:03.000 + table 82 RULES_INGRESS 77 tcp,reg5=0x4,tp_dst=80 → output:4<tap4>
01:02:03.000 - table 0 LOCAL_SWITCHING 0 any → goto_table:58<PACKET_RATE_LIMIT>
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if err := v.event(openflow.EventsLost{}, now); err == nil {
		t.Error("a loss is no error")
	}
}

// A switch without a flow monitor, as of Open vSwitch before 3.0, is read again and again.
func TestFlowsWatchByComparing(t *testing.T) {
	lines := func(texts ...string) (list []flowLine) {
		for _, text := range texts {
			list = append(list, newFlowLine(openflowtest.Entry(t, text)))
		}
		slices.SortFunc(list, func(a, b flowLine) int { return a.entry.Key().Compare(b.entry.Key()) })
		return list
	}
	const stays, goes, comes = "table=0,priority=1,in_port=1,actions=drop", "table=0,priority=2,actions=drop", "table=71,priority=3,actions=drop"
	before, after := lines(stays, goes, "table=60,priority=5,actions=drop"), lines("table=60,priority=5,actions=NORMAL", comes, stays)
	var got []string
	for _, u := range changesOf(before, after) {
		got = append(got, u.Event.String()+" "+u.Entry.String())
	}
	want := []string{
		"deleted " + openflowtest.Entry(t, goes).String(), "modified " + openflowtest.Entry(t, "table=60,priority=5,actions=NORMAL").String(),
		"added " + openflowtest.Entry(t, comes).String(),
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(changesOf(before, before)) > 0 || len(changesOf(nil, after)) != 3 || len(changesOf(before, nil)) != 3 {
		t.Error("nothing is something")
	}
}

// With --owner the counters of the switch stand beside what the agent knows. Without a switch, or as a user who may not ask it, there is the rest.
func TestFlowsWithOwnersAndCounters(t *testing.T) {
	src := exampleAgent()
	src.flows = []inspect.Flow{
		{Bridge: "br-int", Table: 0, Text: "table=0,priority=2,in_port=7,actions=drop", State: "missing", Owner: "port 4f1c-1", Reason: "no sender"},
		{Bridge: "br-int", Table: 60, Text: "table=60,priority=3,cookie=0x5061746368626179,actions=NORMAL", Have: "table=60,priority=3,actions=drop", State: "different", Owner: "bridge br-int", Reason: "switching"},
	}
	t.Setenv(socketVariable, served(t, src, admin.Options{}))
	path := filepath.Join(t.TempDir(), "br-int.mgmt")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	sw := openflowtest.New()
	sw.Inject(func(c *openflowtest.Conn, m openflowtest.Message) bool {
		if m.Type != openflowtest.TypeMultipart || m.Kind() != openflowtest.MultipartFlows {
			return false
		}
		stat := openflowtest.EncodeStat(openflowtest.Entry(t, "table=60,priority=3,actions=drop"))
		binary.BigEndian.PutUint64(stat[32:], 41) // packets
		binary.BigEndian.PutUint64(stat[40:], 4242)
		c.Send(openflowtest.TypeMultipartReply, m.XID, append([]byte{0, openflowtest.MultipartFlows, 0, 0, 0, 0, 0, 0}, stat...)...)
		return true
	})
	var accepting sync.WaitGroup
	accepting.Go(func() { sw.Accept(l) })
	defer func() { _ = l.Close(); accepting.Wait(); sw.Drop(); sw.Wait() }()

	out, status := run(t, "flows", "br-int", "--owner", "--target", "unix:"+path)
	want := `state       packets  flow

table 0 LOCAL_SWITCHING
missing           -  priority=2,in_port=7,actions=drop
                     port 4f1c-1: no sender

table 60 TRANSIENT
different        41  priority=3,cookie=0x5061746368626179,actions=NORMAL
                     there instead: table=60,priority=3,actions=drop
                     bridge br-int: switching

br-int: 2 flows: 1 missing, 1 different
`
	if diff := cmp.Diff(want, out); status != 0 || diff != "" {
		t.Errorf("status %d\n%s", status, diff)
	}
	var list []map[string]any
	out, _ = run(t, "flows", "br-int", "--owner", "-o", "json", "--target", "unix:"+path)
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || list[0]["packets"] != nil || list[1]["packets"] != 41.0 || list[1]["bytes"] != 4242.0 || list[1]["state"] != "different" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, status := run(t, "flows", "br-int", "--owner", "--target", "unix:"+path+".none"); status != 0 || !strings.Contains(out, "without counters: ") || !strings.Contains(out, "missing           -  priority=2") {
		t.Errorf("status %d\n%s", status, out)
	}
}
