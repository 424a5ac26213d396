// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// upgradeFrom is the release that an upgrade begins with, upgradeTo are those that follow. Debian has no 27, which upstream permits to leave out.
var (
	upgradeFrom = crossing{number: "26", neutron: "trixie"}
	upgradeTo   = []string{"28", "29"}
)

func upgradeCell() item {
	figures := partFigures(stepFigures("14")...)
	for _, to := range upgradeTo {
		row := `^server upgraded to ` + to + `\s{2,}`
		figures = append(figures,
			figure{name: to + "-due", pattern: row + `[\d.]+\s+(\d+)\s`, want: ">= 1000"},
			figure{name: to + "-arrived", pattern: row + `(?:[\d.]+\s+){2}(\d+)\s`},
			figure{name: to + "-flows", pattern: row + `(?:[\d.]+\s+){5}(\d+)\s`, want: ">= 1"},
			figure{name: to + "-touched", pattern: row + `(?:[\d.]+\s+){6}(\d+)\s`, want: "= 0"},
			figure{name: to + "-server", pattern: row + `.*(?:pass|FAIL)\s+(\S+ \(\w+\)); agents alive`},
			figure{name: to + "-seconds", pattern: row + `.*in sync (\d+) s after`})
	}
	it := upgradeFrom.item("upgrade", []string{"e2e/smoke_test.go", "e2e/smoke_faults_test.go", "e2e/upgrade_test.go"}, figures,
		claim{text: "neutron-server upgraded under running agents", wanted: "0 packets lost, 0 flows touched", show: "{29-arrived} of {29-due} packets arrived, {29-touched} of {29-flows} flows touched"})
	it.command += " UPGRADE=" + strings.Join(upgradeTo, ",")
	return it
}

// upgradePage is the part about upgrades of the server.
func (b *book) upgradePage() string {
	var p strings.Builder
	p.WriteString("\n## Upgrade of neutron-server under running agents\n\n" +
		"Two hosts with Patchbay, filtered VMs and a trunk; broker and switches are those of Debian 13. The agents are restarted first. Then neutron-server ends, `neutron-db-manage` of the next release upgrades the\n" +
		"schema, and its server starts, while packets flow: `make e2e-upgrade RELEASE=26 UPGRADE=28,29`. After each upgrade rules are closed and opened under packets, and the agents are restarted again.\n\n" +
		"| server upgraded to | packets due | lost | flows touched | agents alive and in sync after its API answers | commit, date | |\n|---|---|---|---|---|---|---|\n")
	r := b.results[upgradeFrom.name("upgrade")]
	for _, to := range upgradeTo {
		if r == nil {
			fmt.Fprintf(&p, "| %s |%s not run |\n", to, strings.Repeat(" – |", 5))
			continue
		}
		f := func(name string) string {
			if v := r.Figures[to+"-"+name]; v != "" {
				return v
			}
			return "–"
		}
		fmt.Fprintf(&p, "| %s | %s | %s | %s of %s | %s s | %s, %s | %s |\n", f("server"), grouped(f("due")), lost(f("due"), f("arrived")), f("touched"), f("flows"), f("seconds"),
			r.Commit, r.Date.Format("2006-01-02"), stated(r))
	}
	return p.String()
}

// lost is how many packets did not arrive.
func lost(due, arrived string) string {
	n, err := number(due)
	if err != nil {
		return "–"
	}
	m, err := number(arrived)
	if err != nil {
		return "–"
	}
	return fmt.Sprint(n - m)
}
