// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/fleet"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

func newFleetStatusCommand() *cobra.Command {
	var f fleetFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show for each host which version runs, whether the agent is in sync, and if not, why",
		Long: `Show for each host which version runs, whether the agent is in sync, and if not, why.

Exit status:
  0  Patchbay is in sync on all hosts
  1  Patchbay is not in sync or does not run on a host, or a host cannot be reached`,
		Example: "  patchbay fleet status --hosts inventory.ini --group compute\n  openstack network agent list -f json | patchbay fleet status --hosts -\n  patchbay fleet status --hosts hosts.txt -o html >region.html",
		Args:    argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			return f.ask(cmd, look{
				remoteStatus, []string{"VERSION", "UP", "PORTS", "REPAIRED", "WARNINGS"}, func(a fleet.Answer) hostLine { return statusLine(a, now) }, versions,
			})
		},
	}
	f.add(cmd, formatHTML)
	return cmd
}

// versions says how many hosts run which version.
func versions(list []hostLine) string {
	counts := map[string]int{}
	for _, l := range list {
		if v, ok := l.Facts["version"].(string); ok {
			counts[v]++
		}
	}
	if len(counts) == 0 {
		return ""
	}
	return "versions: " + states(counts) + "\n"
}

// tiles are the hosts of a table as a picture has them.
func tiles(list []hostLine) []fleet.Tile {
	var out []fleet.Tile
	for _, l := range list {
		t := fleet.Tile{Host: l.Host, State: l.State, Why: l.Why, Kind: "bad"}
		t.Version, _ = l.Facts["version"].(string)
		switch {
		case l.good:
			t.Kind = "fine"
		case l.State == stateNoAgent || l.State == stateNotInstalled:
			t.Kind = "off"
		}
		out = append(out, t)
	}
	return out
}

// statusLine reads what `patchbay status -o json` printed on a host.
func statusLine(a fleet.Answer, now time.Time) hostLine {
	s, ok := decode[inspect.Status](a)
	if !ok || a.Status != 0 && a.Status != exitFinding {
		return unread(a)
	}
	repaired := uint64(0)
	for _, b := range s.Bridges {
		repaired += b.Repaired
	}
	warnings := len(s.Unmet) + len(s.Advisories) + len(s.Held)
	l := hostLine{
		Host: a.Host, State: "in sync", good: s.InSync,
		Cells: []string{s.Version, ago(s.Started, now), states(s.Ports), fmt.Sprint(repaired), fmt.Sprint(warnings)},
		Facts: map[string]any{"version": s.Version, "started": s.Started, "ports": s.Ports, "repaired": repaired, "warnings": warnings, "firewall": s.Firewall},
	}
	if !s.InSync {
		l.State, l.Why = "not in sync", strings.Join(s.Reasons, "; ")
	}
	return l
}

func newFleetCheckCommand() *cobra.Command {
	var f fleetFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Show for each host whether Patchbay would start with the host's configuration",
		Long: `Show for each host whether Patchbay would start with the host's configuration. The command runs patchbay config check on each
host, with the arguments of the host's own service. It changes nothing. The hosts need the package patchbay.

Exit status:
  0  Patchbay would start on all hosts
  1  Patchbay would not start on a host, or a host cannot be reached`,
		Example: "  patchbay fleet check --hosts hosts.txt",
		Args:    argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd, look{remoteCheck, []string{"ERRORS", "WARNINGS"}, checkLine, nil})
		},
	}
	f.add(cmd)
	return cmd
}

// checkLine reads what `patchbay config check -o json` printed on a host.
func checkLine(a fleet.Answer) hostLine {
	r, ok := decode[struct {
		Errors, Warnings int
	}](a)
	if !ok || a.Status > exitUsage {
		return unread(a)
	}
	l := hostLine{
		Host: a.Host, State: "would start", good: a.Status == 0, Cells: []string{fmt.Sprint(r.Errors), fmt.Sprint(r.Warnings)},
		Facts: map[string]any{"errors": r.Errors, "warnings": r.Warnings},
	}
	if a.Status != 0 {
		l.State, l.Why = "would not start", explain(a)
	}
	return l
}

func newFleetPlanCommand() *cobra.Command {
	var f fleetFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show for each host how many rows, flows and rules a start of Patchbay would change",
		Long: `Show for each host how many rows, flows and iptables rules a start of Patchbay would change. The command runs patchbay plan on each
host, with the arguments of the host's own service. It changes nothing. On the host, patchbay plan prints each row and flow.

Exit status:
  0  the plans of all hosts are complete
  1  the plan of a host is not complete, or a host cannot be reached`,
		Example: "  patchbay fleet plan --hosts hosts.txt --parallel 5",
		Args:    argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd, look{remotePlan, []string{"ROWS", "FLOWS", "RULES", "PORTS"}, planLine, changes})
		},
	}
	f.add(cmd)
	return cmd
}

// changes sums up what would change on all hosts.
func changes(list []hostLine) string {
	sums := map[string]int{}
	for _, l := range list {
		for _, what := range []string{"rows", "flows", "rules"} {
			if n, ok := l.Facts[what].(int); ok {
				sums[what] += n
			}
		}
	}
	return fmt.Sprintf("changes on all hosts together: %d rows, %d flows, %d rules of iptables\n", sums["rows"], sums["flows"], sums["rules"])
}

// explain says why a command of Patchbay failed on a host, from the document that it printed; "" if it printed none.
func explain(a fleet.Answer) string {
	doc, ok := decode[struct {
		Reasons, Missing []string
		Findings         []jsonFinding
	}](a)
	if !ok {
		return ""
	}
	list := append(doc.Reasons, doc.Missing...)
	for _, x := range doc.Findings {
		if x.Severity == "error" {
			list = append(list, x.Message)
		}
	}
	return strings.Join(list, "; ")
}

// planLine reads what `patchbay plan -o json` printed on a host.
func planLine(a fleet.Answer) hostLine {
	p, ok := decode[struct {
		Complete bool
		Missing  []string
		Rows     []struct{}
		Flows    []struct{}
		IPTables []string `json:"iptables"`
		Compared struct{ Ports int }
	}](a)
	if !ok {
		return unread(a)
	}
	l := hostLine{
		Host: a.Host, State: "planned", good: p.Complete,
		Cells: []string{fmt.Sprint(len(p.Rows)), fmt.Sprint(len(p.Flows)), fmt.Sprint(len(p.IPTables)), fmt.Sprint(p.Compared.Ports)},
		Facts: map[string]any{"rows": len(p.Rows), "flows": len(p.Flows), "rules": len(p.IPTables), "ports": p.Compared.Ports},
	}
	switch {
	case !p.Complete:
		l.State, l.Why = "incomplete", strings.Join(p.Missing, "; ")
	case len(p.Rows)+len(p.Flows)+len(p.IPTables) == 0:
		l.State = "nothing would change"
	}
	return l
}
