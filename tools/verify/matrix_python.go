// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// handovers are the releases whose Python agent hands its hosts to Patchbay and gets them back.
func handovers() []crossing {
	return []crossing{{number: "29", neutron: "sid"}, {number: "28", neutron: "forky"}, {number: "26", neutron: "trixie"}, {number: "21", neutron: "bookworm"}}
}

func handoverCells() []item {
	const handed = `^handed to (?:Patchbay|the Python agent)\s{2,}[\d.]+\s+`
	figures := partFigures(append(stepFigures("9"),
		figure{name: "handovers", pattern: handed, take: count, want: "= 4"},
		figure{name: "due", pattern: handed + `(\d+)\s`, take: sum, want: ">= 1000"},
		figure{name: "arrived", pattern: handed + `\d+\s+(\d+)\s`, take: sum},
		figure{name: "flows", pattern: `^handed to Patchbay\s{2,}(?:[\d.]+\s+){5}(\d+)\s`},
		figure{name: "touched", pattern: `^handed to Patchbay\s{2,}(?:[\d.]+\s+){6}(\d+)\s`},
		figure{name: "compared", pattern: `(\d+) flows and rows, \d+ differ and are explained`, want: ">= 1"},
		figure{name: "explained", pattern: `(\d+) differ and are explained`})...)
	var items []item
	for _, c := range handovers() {
		items = append(items, c.item("handover", []string{"e2e/release_test.go", "parity/accepted.md"}, figures,
			claim{text: "hosts handed from the Python agent to Patchbay and back, twice", wanted: "0 packets lost", show: "{arrived} of {due} packets arrived"}))
	}
	return items
}

// handoverPage is the part about hand-overs.
func (b *book) handoverPage() string {
	var p strings.Builder
	p.WriteString("\n## Hand-over from the Python agent and back\n\n" +
		"The Python agent of the release wires filtered VMs on two hosts, on a vxlan and a vlan network, with rules about a remote group. Patchbay takes over and gives back, twice, while packets flow\n" +
		"in both directions: `make e2e-handover RELEASE=29`. After each hand-over local VLANs are unchanged, and flows and rows are those that the same agent makes on its own. *Flows changed* are those\n" +
		"that Patchbay writes when it takes over; the others are right as they are, and untouched. *Differences* are those between what the two agents make, each explained in\n" +
		"[accepted.md](../../parity/accepted.md). The Python agent 21 does not know the key `disable-in-band` of bridges, which Patchbay sets as 22 and later do, and leaves it. The Python agents 28 and 29 do not end within 5 s of SIGTERM, and are killed then.\n\n" +
		"| Python agent and server | hand-overs | packets due | lost | forbidden packets that passed | flows changed by Patchbay | differences explained | commit, date | |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range handovers() {
		r := b.results[c.name("handover")]
		if r == nil {
			fmt.Fprintf(&p, "| %s (%s) |%s not run |\n", c.number, c.neutron, strings.Repeat(" – |", 7))
			continue
		}
		fmt.Fprintf(&p, "| %s (%s) | %s | %s | %s | %s | %s of %s | %s of %s flows and rows | %s, %s | %s |\n", r.Figures["neutron"], c.neutron, r.Figures["handovers"], grouped(r.Figures["due"]),
			lost(r.Figures["due"], r.Figures["arrived"]), r.Figures["passed"], r.Figures["touched"], r.Figures["flows"], r.Figures["explained"], r.Figures["compared"], r.Commit, r.Date.Format("2006-01-02"), stated(r))
	}
	return p.String()
}

// compared are the releases whose Python agent plays all scenarios of parity beside Patchbay. Recordings do it for 21.
func compared() []crossing {
	return []crossing{{number: "29", neutron: "sid"}, {number: "28", neutron: "forky"}, {number: "26", neutron: "trixie"}}
}

func parityCells() []item {
	var items []item
	for _, c := range compared() {
		for _, group := range slices.Sorted(maps.Keys(scenarioGroups)) {
			items = append(items, item{
				name: c.name("parity") + "-" + group, section: "releases", paths: []string{"product", "cloud", "parity"}, servers: true, cell: true,
				command: "PATCHBAY_LAB_RELEASE=" + c.number + " make --no-print-directory parity SCENARIO='" + scenarioGroups[group] + "'",
				figures: parityFigures,
				claims:  []claim{{text: "scenarios of parity, both agents live", wanted: "0 unexplained", show: "{scenarios} scenarios, {lines} lines, {unexplained} unexplained"}},
			})
		}
	}
	return items
}

// parityPage is the part about scenarios that are played with the Python agent of a release and with Patchbay.
func (b *book) parityPage() string {
	var p strings.Builder
	p.WriteString("\n## Scenarios beside the Python agent\n\n" +
		"Each scenario is played with the Python agent of the release and then with Patchbay; flows, rows, meters, calls and statuses are compared line by line: `PATCHBAY_LAB_RELEASE=29 make parity`.\n" +
		"*Explained* differences are rows of [accepted.md](../../parity/accepted.md). Those of 21 stand in [verification](../verification.md), against its recordings.\n\n" +
		"| Python agent and server | scenarios | count | lines | explained | unexplained | commit, date | |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range compared() {
		for _, group := range slices.Sorted(maps.Keys(scenarioGroups)) {
			r := b.results[c.name("parity")+"-"+group]
			if r == nil {
				fmt.Fprintf(&p, "| %s (%s) | %s |%s not run |\n", c.number, c.neutron, group, strings.Repeat(" – |", 5))
				continue
			}
			fmt.Fprintf(&p, "| %s (%s) | %s | %s | %s | %s | %s | %s, %s | %s |\n", c.number, c.neutron, group, r.Figures["scenarios"], grouped(r.Figures["lines"]), grouped(r.Figures["accepted"]),
				r.Figures["unexplained"], r.Commit, r.Date.Format("2006-01-02"), stated(r))
		}
	}
	return p.String()
}

// stated is the verdict, of which only a good one is in plain letters.
func stated(r *result) string {
	if r.Verdict != passed {
		return "**" + r.Verdict + "**"
	}
	return r.Verdict
}

// migrated are the releases with live migrations.
func migrated() []crossing { return []crossing{{number: "29", neutron: "sid"}} }

func migrateCells() []item {
	figures := partFigures()
	for _, kind := range []string{"vxlan", "vlan"} {
		line := "^" + kind + `: outage of \d+ peers' views, median and longest: `
		figures = append(figures,
			figure{name: kind + "-python-median", pattern: line + `Python agent (\d+) and`}, figure{name: kind + "-python-longest", pattern: line + `Python agent \d+ and (\d+) ms`},
			figure{name: kind + "-median", pattern: line + `.*Patchbay (\d+) and`}, figure{name: kind + "-longest", pattern: line + `.*Patchbay \d+ and (\d+) ms`})
	}
	var items []item
	for _, c := range migrated() {
		items = append(items, c.item("migrate", []string{"e2e/migrate_test.go"}, figures,
			claim{text: "live migrations beside the Python agent", wanted: "not longer", show: "{vxlan-longest} ms, {vxlan-python-longest} ms with the Python agent"}))
	}
	return items
}

// migratePage is the part about live migrations.
func (b *book) migratePage() string {
	var p strings.Builder
	p.WriteString("\n## Live migration\n\n" +
		"A VM stops on one host and goes on on the other at once, with QEMU's announcements (RARP). Its port has an inactive binding and an interface there, as Nova has it; the binding is activated when the VM stops.\n" +
		"A peer on each host asks every 5 ms. The outage is the longest time from an answered question to the next: median and longest of all migrations and peers, both agents in one run: `make e2e-migrate RELEASE=29`.\n\n" +
		"| Python agent and server | network | Python agent: median, longest | Patchbay: median, longest | commit, date | |\n|---|---|---|---|---|---|\n")
	for _, c := range migrated() {
		r := b.results[c.name("migrate")]
		for _, kind := range []string{"vxlan", "vlan"} {
			if r == nil {
				fmt.Fprintf(&p, "| %s (%s) | %s |%s not run |\n", c.number, c.neutron, kind, strings.Repeat(" – |", 3))
				continue
			}
			f := func(name string) string {
				if v := r.Figures[kind+"-"+name]; v != "" {
					return v + " ms"
				}
				return "–"
			}
			fmt.Fprintf(&p, "| %s (%s) | %s | %s, %s | %s, %s | %s, %s | %s |\n", r.Figures["neutron"], c.neutron, kind, f("python-median"), f("python-longest"), f("median"), f("longest"),
				r.Commit, r.Date.Format("2006-01-02"), stated(r))
		}
	}
	return p.String()
}
