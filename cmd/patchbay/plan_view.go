// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/plan"
	"github.com/patchbay-sdn/patchbay/internal/tables"
)

// planView prints a plan for people: by bridge and table, what changes in the same way for many ports as one line. With all, each row and flow has a line.
type planView struct {
	out  io.Writer
	plan *plan.Plan
	all  bool
}

// perTable is how many kinds of flows of a table, and of rows of a bridge, are shown without -o wide.
const perTable = 5

func (v planView) write() {
	p := v.plan
	names := map[string]bool{}
	for _, r := range p.Rows {
		names[r.Bridge] = true
	}
	for _, f := range p.Flows {
		names[f.Bridge] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v.bridge(name)
	}
	for _, m := range p.Meters {
		fmt.Fprintf(v.out, "%s %s %s\n", m.Bridge, sign(m.Change), m.Meter)
	}
	for _, name := range p.Flushed {
		fmt.Fprintf(v.out, "%s gets its first controller: the switch forgets its flows, and those wanted come back at once\n", name)
	}
	for _, line := range slices.Concat(p.Rules, p.Forwarding, p.Device) {
		fmt.Fprintln(v.out, line)
	}
	if len(p.Zones) > 0 {
		fmt.Fprintf(v.out, "connection tracking: %s emptied, of networks that are new here: %s\n", plural(len(p.Zones), "zone"), join(p.Zones))
	}
	if n := p.Assumed; n.Tunnels+n.Entries > 0 {
		fmt.Fprintf(v.out, "not known beforehand, taken as the switch has them: %s, %s\n", plural(n.Tunnels, "tunnel"), entriesText(n.Entries))
	}
	fmt.Fprintln(v.out, v.summary())
}

func entriesText(n int) string {
	if n == 1 {
		return "1 forwarding entry"
	}
	return fmt.Sprintf("%d forwarding entries", n)
}

func join(zones []uint16) string {
	text := make([]string, len(zones))
	for i, z := range zones {
		text[i] = fmt.Sprint(z)
	}
	return strings.Join(text, ", ")
}

// summary is the last line.
func (v planView) summary() string {
	p := v.plan
	compared := fmt.Sprintf("%s and %s of %s compared in %.1f s", plural(p.Compared.Flows, "flow"), plural(p.Compared.Ports, "port"), plural(p.Compared.Bridges, "bridge"), p.Seconds)
	if p.Offline {
		compared += ", without a server"
	}
	switch {
	case !p.Complete && p.Empty():
		return "not complete; nothing would change so far: " + compared
	case p.Empty():
		return "nothing would change: " + compared
	}
	begin := ""
	if !p.Complete {
		begin = "not complete; so far "
	}
	return fmt.Sprintf("%s%s%s and %s%s would change; %s", begin,
		plural(len(p.Rows), "row"), bracketed(counts(p.Rows, func(r plan.Row) string { return r.Change })), plural(len(p.Flows), "flow"), bracketed(counts(p.Flows, func(f plan.Flow) string { return f.Change })), compared)
}

// counts says how many of a list are added, removed and changed.
func counts[T any](list []T, change func(T) string) string {
	n := map[string]int{}
	for _, e := range list {
		n[change(e)]++
	}
	var parts []string
	for _, c := range []string{"added", "removed", "changed"} {
		if n[c] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[c], c))
		}
	}
	return strings.Join(parts, ", ")
}

func bracketed(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func (v planView) bridge(name string) {
	var rows []plan.Row
	byTable := map[uint8][]plan.Flow{}
	for _, r := range v.plan.Rows {
		if r.Bridge == name {
			rows = append(rows, r)
		}
	}
	for _, f := range v.plan.Flows {
		if f.Bridge == name {
			byTable[f.Table] = append(byTable[f.Table], f)
		}
	}
	fmt.Fprintln(v.out, cmp.Or(name, "the database"))
	if len(rows) > 0 {
		fmt.Fprintf(v.out, "  rows: %s\n", counts(rows, func(r plan.Row) string { return r.Change }))
		limited(v, rows, rowKind, rowText)
	}
	fv := flowView{kind: tables.KindOf(name).Refine(func(t uint8) bool { return v.plan.Tables[name][t] }), ports: v.plan.Ports[name]}
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		flows := byTable[table]
		fmt.Fprintf(v.out, "  %s: %s\n", fv.tableTitle(table), counts(flows, func(f plan.Flow) string { return f.Change }))
		limited(v, flows, flowKind, fv.planned)
	}
	fmt.Fprintln(v.out)
}

// limited prints a line for each thing of a list; or a line for each kind, with the first of it and how many there are, and not more than a few.
func limited[T any](v planView, list []T, kind func(T) string, text func(T) string) {
	if v.all {
		for _, e := range list {
			fmt.Fprintln(v.out, text(e))
		}
		return
	}
	shown := 0
	groups := alike(list, kind)
	for i, g := range groups {
		if i == perTable && len(groups) > perTable+1 {
			fmt.Fprintf(v.out, "    … and %d more of %d kinds, see -o wide\n", len(list)-shown, len(groups)-i)
			return
		}
		line := text(g[0])
		if len(g) > 1 {
			line += fmt.Sprintf("  … and %d more alike", len(g)-1)
		}
		fmt.Fprintln(v.out, line)
		shown += len(g)
	}
}

func sign(change string) string {
	return map[string]string{"added": "+", "removed": "-", "changed": "~"}[change]
}

func rowText(r plan.Row) string {
	values := make([]string, len(r.Values))
	for i, c := range r.Values {
		values[i] = valueText(r.Change, c)
	}
	line := fmt.Sprintf("    %s %s %s", sign(r.Change), r.Table, r.Name)
	if len(values) > 0 {
		line += ": " + strings.Join(values, ", ")
	}
	if r.Owner != "" {
		line += "  (" + r.Owner + ")"
	}
	return line
}

func valueText(change string, c ovsdb.ColumnChange) string {
	switch change {
	case "changed":
		return fmt.Sprintf("%s %s → %s", c.Column, cmp.Or(c.Before, "none"), cmp.Or(c.After, "none"))
	case "removed":
		return c.Column + "=" + c.Before
	}
	return c.Column + "=" + c.After
}

// planned is the line of a flow that changes.
func (v *flowView) planned(f plan.Flow) string {
	actions := v.annotate(f.Actions)
	if f.Change == "changed" {
		actions = v.annotate(f.Before) + "  ⇒  " + actions
	}
	why := f.Reason
	if f.Owner != "" {
		why = f.Owner + ": " + why
	}
	return fmt.Sprintf("    %s %d %s → %s  (%s)", sign(f.Change), f.Priority, v.annotate(cmp.Or(f.Match, "any")), actions, why)
}
