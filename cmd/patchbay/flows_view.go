// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/tables"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// flowView prints flows: which, and with what names.
type flowView struct {
	out    io.Writer
	notes  io.Writer // for what is not part of the answer
	output format
	kind   tables.Kind
	tables []uint8
	port   uint32 // 0 for all
	text   string
	ports  map[uint32]string
}

// flowLine is one flow for people and programs.
type flowLine struct {
	Event     string  `json:"event,omitempty"` // added, deleted or modified
	Time      string  `json:"time,omitempty"`
	Table     uint8   `json:"table"`
	TableName string  `json:"table_name,omitempty"`
	Priority  uint16  `json:"priority"`
	Cookie    string  `json:"cookie"`
	Idle      uint16  `json:"idle_timeout,omitempty"`
	Hard      uint16  `json:"hard_timeout,omitempty"`
	Packets   uint64  `json:"packets"`
	Bytes     uint64  `json:"bytes"`
	Seconds   float64 `json:"duration"`
	Match     string  `json:"match"`
	Actions   string  `json:"actions"`

	entry openflow.Entry
	flow  openflow.Flow
}

func newFlowLine(e openflow.Entry) flowLine {
	f, err := e.Flow()
	l := flowLine{
		Table: e.Table(), Priority: e.Priority(), Cookie: "0x" + strconv.FormatUint(e.Cookie(), 16),
		Idle: f.IdleTimeout, Hard: f.HardTimeout, entry: e, flow: f,
	}
	if err != nil { // not decodable: show what there is
		l.Match = e.String()
		return l
	}
	l.Match = f.Match.String()
	l.Actions = string(openflow.AppendActions(nil, f.Actions))
	return l
}

// selects reports whether the flow is one that was asked for.
func (v *flowView) selects(l *flowLine) bool {
	if len(v.tables) > 0 && !slices.Contains(v.tables, l.Table) {
		return false
	}
	if v.port != 0 && !concerns(&l.flow, v.port) {
		return false
	}
	return v.text == "" || strings.Contains(v.annotate(l.Match), v.text) || strings.Contains(v.annotate(l.Actions), v.text) || strings.Contains(l.Cookie, v.text)
}

// portRegister is where the firewall's flows keep the number of the port.
const portRegister = openflow.Reg5

// concerns reports whether a flow has to do with a port: it matches packets from it, sends packets to it, or names it in
// the firewall's register.
func concerns(f *openflow.Flow, port uint32) bool {
	for _, field := range []openflow.Field{openflow.InPort, portRegister} {
		if t, ok := f.Match.Lookup(field); ok && t.Value.Lo == uint64(port) {
			return true
		}
	}
	return slices.ContainsFunc(f.Actions, func(a openflow.Action) bool {
		switch a := a.(type) {
		case openflow.Output:
			return uint32(a) == port
		case openflow.OutputLen:
			return a.Port == port
		case openflow.Resubmit:
			return uint32(a.Port) == port
		case openflow.Load:
			return a.To.Field == portRegister && a.Value == uint64(port)
		case openflow.SetField:
			return a.Field == portRegister && a.Value.Lo == uint64(port)
		}
		return false
	})
}

var (
	portInText  = regexp.MustCompile(`\b(in_port=|output:)(\d+)\b`)
	tableInText = regexp.MustCompile(`\b(goto_table:|resubmit\(\d*,|table=)(\d+)\b`)
)

// annotate adds the names of ports and tables to the text of a flow.
func (v *flowView) annotate(s string) string {
	s = portInText.ReplaceAllStringFunc(s, func(m string) string {
		sub := portInText.FindStringSubmatch(m)
		n, err := strconv.ParseUint(sub[2], 10, 32)
		if name := v.ports[uint32(n)]; err == nil && name != "" {
			return m + "<" + name + ">"
		}
		return m
	})
	return tableInText.ReplaceAllStringFunc(s, func(m string) string {
		sub := tableInText.FindStringSubmatch(m)
		n, err := strconv.ParseUint(sub[2], 10, 8)
		if name := v.kind.Name(uint8(n)); err == nil && name != "" {
			return m + "<" + name + ">"
		}
		return m
	})
}

// named adds the name of the flow's table.
func (v *flowView) named(l flowLine) flowLine {
	l.TableName = v.kind.Name(l.Table)
	return l
}

// writeDocument prints flows for programs.
func (v *flowView) writeDocument(list []flowLine) error {
	for i := range list {
		list[i] = v.named(list[i])
	}
	if list == nil {
		list = []flowLine{}
	}
	return v.output.write(v.out, list)
}

// write prints flows by table.
func (v *flowView) write(bridge string, list []flowLine) {
	byTable := map[uint8]int{}
	for _, l := range list {
		byTable[l.Table]++
	}
	fmt.Fprintf(v.out, "%s: %s in %s\n", bridge, plural(len(list), "flow"), plural(len(byTable), "table"))
	fmt.Fprintln(v.out, "priority  packets  match → actions")
	w := tabwriter.NewWriter(v.out, 0, 0, 2, ' ', 0)
	last := -1
	for _, l := range list {
		if int(l.Table) != last {
			last = int(l.Table)
			_ = w.Flush()
			fmt.Fprintf(v.out, "\n%s: %s\n", v.tableTitle(l.Table), plural(byTable[l.Table], "flow"))
		}
		fmt.Fprintf(w, "%8d %8s  %s\t→ %s%s\n", l.Priority, packets(l), v.annotate(cmp.Or(l.Match, "any")), v.annotate(l.Actions), timeouts(l))
	}
	_ = w.Flush()
}

func (v *flowView) writeChange(l flowLine, now time.Time) {
	sign := map[string]string{"added": "+", "deleted": "-", "modified": "~"}[l.Event]
	fmt.Fprintf(v.out, "%s %s %s %d %s → %s\n", now.Format("15:04:05.000"), sign, v.tableTitle(l.Table), l.Priority, v.annotate(cmp.Or(l.Match, "any")), v.annotate(l.Actions))
}

func (v *flowView) tableTitle(table uint8) string {
	title := fmt.Sprintf("table %d", table)
	if name := v.kind.Name(table); name != "" {
		title += " " + name
	}
	return title
}

func timeouts(l flowLine) string {
	s := ""
	if l.Idle != 0 {
		s += fmt.Sprintf(" idle %ds", l.Idle)
	}
	if l.Hard != 0 {
		s += fmt.Sprintf(" hard %ds", l.Hard)
	}
	return s
}

func packets(l flowLine) string {
	if l.Packets == ^uint64(0) {
		return "-"
	}
	return strconv.FormatUint(l.Packets, 10)
}
