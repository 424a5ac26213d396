// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	matrixDir  = resultsDir + "/matrix"
	matrixFile = "docs/reference/releases.md"
)

// crossing is a cell of the matrix: the Debian suites of Neutron, RabbitMQ and Open vSwitch, of which those that are empty are of Neutron's, and what is set
// for queues.
type crossing struct{ number, neutron, broker, vswitch, queues string }

// crossings are the cells, in the order in which they run: whole releases first.
func crossings() []crossing {
	return []crossing{
		{"21", "bookworm", "", "", ""}, {"26", "trixie", "", "", ""}, {"28", "forky", "", "", ""}, {"29", "sid", "", "", ""}, {"17", "bullseye", "", "", ""},
		// What an upgrade passes through: the server first, broker and switch later, and the other way round.
		{"29", "sid", "bookworm", "bookworm", ""}, {"29", "sid", "bookworm", "bullseye", ""}, {"21", "bookworm", "trixie", "trixie", ""},
		{"21", "bookworm", "sid", "sid", ""}, {"17", "bullseye", "trixie", "trixie", ""},
		// What kolla sets, on a RabbitMQ 4.3 as upstream's is by default.
		{"29", "sid", "", "", "kolla,denied"},
	}
}

// name is that of the cell in which a test runs on the crossing.
func (c crossing) name(test string) string {
	name := test + "-" + c.number
	for _, part := range [][2]string{{"broker", c.broker}, {"switch", c.vswitch}, {"queues", strings.ReplaceAll(c.queues, ",", "-")}} {
		if part[1] != "" {
			name += "-" + part[0] + "-" + part[1]
		}
	}
	return name
}

// command runs a test on the crossing.
func (c crossing) command(test string) string {
	command := "make --no-print-directory e2e-" + test + " RELEASE=" + c.number
	for _, part := range [][2]string{{"BROKER", c.broker}, {"SWITCH", c.vswitch}, {"QUEUES", c.queues}} {
		if part[1] != "" {
			command += " " + part[0] + "=" + part[1]
		}
	}
	return command
}

// check is a column of the page: a step of `make e2e-smoke`.
type check struct{ figure, column, step string }

func checks() []check {
	return []check{
		{"registers", "registers", "agents start"},
		{"wired", "vxlan ports and a trunk are wired", "VMs and trunk are wired"},
		{"vlan", "vlan ports", "VLAN network: filtered port"},
		{"opened", "a rule opened", "rule opened"},
		{"closed", "a rule closed under a connection", "rule closed under a live TCP connection"},
		{"restart", "agents restarted", "agents restarted"},
		{"switch", "ovs-vswitchd killed", "ovs-vswitchd killed -9"},
		{"tampered", "a flow deleted", "flow deleted"},
		{"broker", "broker away and back", "broker away: a rule missed, one closed, a port plugged in"},
		{"unplugged", "a port unplugged", "VM unplugged"},
	}
}

// cellParts are the parts whose versions a lab tells; they are not the machine's.
var cellParts = []string{"neutron", "rabbitmq", "openvswitch", "oslo.messaging", "erlang", "neutron-lib", "os-ken", "python"}

func versionPattern(part string) string {
	return `versions: (?:.* )?` + regexp.QuoteMeta(part) + `=(\S+)`
}

// cellVersions puts the versions of a lab's parts in the place of the machine's.
func cellVersions(machine map[string]string, output string) map[string]string {
	for _, part := range cellParts {
		delete(machine, part)
		if v, ok := (figure{pattern: versionPattern(part)}).read(output); ok {
			machine[part] = v
		}
	}
	return machine
}

// partFigures are the versions of the parts, which every cell has.
func partFigures(more ...figure) []figure {
	var list []figure
	for _, part := range []string{"neutron", "rabbitmq", "openvswitch"} {
		list = append(list, figure{name: part, pattern: versionPattern(part)})
	}
	return append(list, more...)
}

// stepFigures are the figures about steps of a table, of which a cell has some at least.
func stepFigures(least string) []figure {
	return []figure{
		{name: "steps", pattern: `^(\d+) steps, \d+ failed`, want: ">= " + least},
		{name: "failed", pattern: `^\d+ steps, (\d+) failed`, want: "= 0"},
		// Columns: seconds, due and arrived, forbidden and arrived, flows, touched.
		{name: "passed", pattern: stepRow(4), take: sum, want: "= 0"},
	}
}

// allCells are the items of the matrix: the smoke test on every crossing, options for queues and meters, then hand-overs, scenarios of parity, migrations and
// upgrades of the server.
func allCells() []item {
	return slices.Concat(smokeCells(), queueItems(), meterCells(), handoverCells(), parityCells(), migrateCells(), []item{upgradeCell()})
}

func smokeCells() []item {
	figures := partFigures(append(stepFigures("17"),
		figure{name: "touched", pattern: `^agents restarted\s{2,}(?:[\d.]+\s+){6}(\d+)\s`, want: "= 0"},
		figure{name: "flows", pattern: `^agents restarted\s{2,}(?:[\d.]+\s+){5}(\d+)\s`, want: ">= 1"})...)
	for _, c := range checks() {
		figures = append(figures, figure{name: c.figure, pattern: `^` + regexp.QuoteMeta(c.step) + `\s{2,}.*?\s(pass|FAIL)(?:\s|$)`})
	}
	var items []item
	for _, c := range crossings() {
		items = append(items, c.item("smoke", []string{"e2e/smoke_test.go", "e2e/smoke_faults_test.go"}, figures,
			claim{text: "steps of make e2e-smoke", wanted: "none fails", show: "{steps}, {failed} failed, {passed} forbidden packets passed"}))
	}
	return items
}

// item is a cell that depends on some files.
func (c crossing) item(test string, files []string, figures []figure, what claim) item {
	return item{
		name: c.name(test), section: "releases", command: c.command(test), paths: append([]string{"product", "cloud"}, files...),
		servers: true, cell: true, figures: figures, claims: []claim{what},
	}
}

func openMatrix(dir string, items []item) (*book, error) {
	return readBook(&book{dir: dir, kept: matrixDir, pages: matrixPages, items: items})
}

// matrixPages is docs/reference/releases.md. It says when a cell ran, and not whether the code has changed since: the commit is there.
func matrixPages(b *book) (map[string]string, error) {
	var p strings.Builder
	p.WriteString("# Releases\n\n" +
		"Generated by `make matrix` from the results in [verification/matrix](../../verification/matrix); `make matrix-page` writes it anew. A row is a lab with neutron-server, RabbitMQ and\n" +
		"Open vSwitch of these versions, all real, and Patchbay on two hosts with the openvswitch firewall: `make e2e-smoke RELEASE=29 BROKER=bookworm SWITCH=bullseye`\n" +
		"([run the lab](../how-to/run-the-lab.md#other-releases)). In every step, packets that are due are sent beside packets that are forbidden.\n\n")
	columns, line := "| Neutron | RabbitMQ | Open vSwitch |", "|---|---|---|"
	for _, c := range checks() {
		columns, line = columns+" "+c.column+" |", line+"---|"
	}
	p.WriteString(columns + " flows touched by the restart | forbidden packets that passed | commit, date | |\n" + line + "---|---|---|---|\n")
	for _, c := range crossings() {
		p.WriteString(b.matrixRow(c))
	}
	p.WriteString("\n–: not run, or not reached. MariaDB is Debian 12's in all of them. Debian has no Neutron 18 to 20, 22 to 25 and 27, and its RabbitMQ 4.3 permits transient queues, which upstream's denies.\n" +
		"kolla: `rabbit_quorum_queue`, `rabbit_transient_quorum_queue`, `rabbit_stream_fanout`, `rabbit_qos_prefetch_count = 1` and `use_queue_manager` on server and agents; denied: RabbitMQ denies transient queues.\n" +
		"Open vSwitch before 3.0 has no flow monitor for OpenFlow 1.4, by which `ovs-ofctl` watches flows in four steps: there these steps fail before they begin.\n")
	p.WriteString(b.queuePage() + b.switchPage() + b.handoverPage() + b.parityPage() + b.migratePage() + b.upgradePage())
	var why []string
	for _, it := range b.items {
		if r := b.results[it.name]; r != nil && r.Verdict != passed {
			why = append(why, fmt.Sprintf("* %s: %s: %s\n", it.name, r.Reason, strings.Join(r.Failed, ", ")))
		}
	}
	if len(why) > 0 {
		p.WriteString("\n## What failed\n\n" + strings.Join(why, ""))
	}
	return map[string]string{matrixFile: p.String()}, nil
}

func (b *book) matrixRow(c crossing) string {
	r := b.results[c.name("smoke")]
	version := func(figure, suite string) string {
		if suite == "" {
			suite = c.neutron
		}
		if r == nil || r.Figures[figure] == "" {
			return suite
		}
		return r.Figures[figure] + " (" + suite + ")"
	}
	number := c.number
	if r != nil && r.Figures["neutron"] != "" {
		number = r.Figures["neutron"]
	}
	broker := version("rabbitmq", c.broker)
	if c.queues != "" {
		broker += ", " + strings.ReplaceAll(c.queues, ",", ", ")
	}
	row := fmt.Sprintf("| %s (%s) | %s | %s |", number, c.neutron, broker, version("openvswitch", c.vswitch))
	if r == nil {
		return row + strings.Repeat(" – |", len(checks())+3) + " not run |\n"
	}
	shown := func(figure string) string { return orDash(strings.Replace(r.Figures[figure], "FAIL", "**fail**", 1)) }
	for _, k := range checks() {
		row += " " + shown(k.figure) + " |"
	}
	touched := shown("touched")
	if flows := r.Figures["flows"]; flows != "" {
		touched += " of " + flows
	}
	state := r.Verdict
	if state != passed {
		state = "**" + state + "**"
	}
	return row + fmt.Sprintf(" %s | %s | %s, %s | %s |\n", touched, shown("passed"), r.Commit, r.Date.Format("2006-01-02"), state)
}
