// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// queueCell is a RabbitMQ on which the agent's client is tried under each set of options for queues.
type queueCell struct {
	suite  string
	denied bool // transient queues, as upstream's 4.3 does by default
}

func queueCells() []queueCell {
	return []queueCell{{"bullseye", false}, {"bookworm", false}, {"trixie", false}, {"sid", false}, {"sid", true}}
}

func (c queueCell) name() string {
	name := "queues-" + c.suite
	if c.denied {
		name += "-denied"
	}
	return name
}

// queueOptions are the subtests of TestEveryRelease, with the options that they set.
func queueOptions() [][2]string {
	return [][2]string{
		{"default", "none"}, {"tls", "`ssl`, the broker's certificate verified"}, {"durable", "`amqp_durable_queues`"}, {"quorum", "`rabbit_quorum_queue`"},
		{"transient-quorum", "`rabbit_quorum_queue`, `rabbit_transient_quorum_queue`"}, {"stream", "the same, `rabbit_stream_fanout`, `rabbit_qos_prefetch_count = 10`"},
		{"manager", "`use_queue_manager`"}, {"kolla", "all of them (kolla's set)"},
		{"one-stream", "`[patchbay] fanout_stream`"}, {"one-stream-quorum", "the same, `rabbit_quorum_queue`, `rabbit_transient_quorum_queue`"},
	}
}

func queueItems() []item {
	var items []item
	for _, c := range queueCells() {
		command := "make --no-print-directory build && PATCHBAY_BROKER_ROOT=$(bin/lab release root " + c.suite + ") "
		if c.denied {
			command += "PATCHBAY_BROKER_CONF='deprecated_features.permit.transient_nonexcl_queues = false' "
		}
		figures := []figure{{name: "rabbitmq", pattern: `RabbitMQ (\S+), denied`}}
		for _, o := range queueOptions() {
			figures = append(figures, figure{name: o[0], pattern: fmt.Sprintf(`RabbitMQ \S+, denied %t, %s: ([^;]+);`, c.denied, regexp.QuoteMeta(o[0]))})
		}
		items = append(items, item{
			name: c.name(), section: "releases", command: command + "go test -tags integration -count 1 -v -run TestEveryRelease ./oslo/messaging",
			paths: []string{"oslo", "go.mod", "lab/broker", "lab/release"}, servers: true, cell: true, figures: append(figures, tests),
			claims: []claim{{text: "queue options", wanted: "each works, or is refused with what to do", show: "{default}; {kolla}"}},
		})
	}
	return items
}

// queuePage is the part about brokers and options for queues.
func (b *book) queuePage() string {
	var p strings.Builder
	p.WriteString("\n## Options for queues\n\n" +
		"Under each set of options of `[oslo_messaging_rabbit]` the agent's client serves 13 topics, calls, is called, gets directed messages and those to all, loses its connection and gets the messages of the outage, and\n" +
		"leaves no queue behind. *durable* and *quorum* is the agent's private queue where it is not classic and transient. [Brokers](brokers.md) says what to set, and explains *refused* and *agent only*.\n\n" +
		"| options |")
	for _, c := range queueCells() {
		version, suffix := c.suite, ""
		if r := b.results[c.name()]; r != nil {
			version = r.Figures["rabbitmq"]
		}
		if c.denied {
			suffix = ", transient queues denied"
		}
		fmt.Fprintf(&p, " %s%s |", version, suffix)
	}
	p.WriteString("\n|---|" + strings.Repeat("---|", len(queueCells())) + "\n")
	for _, o := range queueOptions() {
		p.WriteString("| " + o[1] + " |")
		for _, c := range queueCells() {
			what := ""
			if r := b.results[c.name()]; r != nil {
				what = r.Figures[o[0]]
			}
			p.WriteString(" " + orDash(what) + " |")
		}
		p.WriteString("\n")
	}
	p.WriteString("| commit, date |")
	for _, c := range queueCells() {
		if r := b.results[c.name()]; r != nil {
			fmt.Fprintf(&p, " %s, %s, %s |", r.Commit, r.Date.Format("2006-01-02"), stated(r))
		} else {
			p.WriteString(" not run |")
		}
	}
	return p.String() + "\n"
}

// switches are the releases whose Open vSwitch plays all that an agent does with one. They are cells of the smoke test, too.
func switches() []crossing {
	return []crossing{{number: "17", neutron: "bullseye"}, {number: "21", neutron: "bookworm"}, {number: "26", neutron: "trixie"}, {number: "29", neutron: "sid"}}
}

// metered is the lab that measures the meters of such a switch. Neutron 17 has no packet rates, so that a later one plays with its Open vSwitch.
func metered(c crossing) crossing {
	if c.number == "17" {
		return crossing{number: "21", neutron: "bookworm", vswitch: c.neutron}
	}
	return c
}

func meterCells() []item {
	figures := partFigures(figure{name: "rows", pattern: `^.* \d+ +\d+ +[\d.]+ +map\[`, take: count, want: ">= 11"})
	var items []item
	for _, c := range switches() {
		items = append(items, metered(c).item("qos", []string{"e2e/qos_test.go"}, figures,
			claim{text: "marks, packet rates and bandwidth by meters", wanted: "all measurements as wanted", show: "{rows} measurements as wanted"}))
	}
	return items
}

// switchPage is the part about releases of Open vSwitch.
func (b *book) switchPage() string {
	var p strings.Builder
	p.WriteString("\n## What the agent does with a switch\n\n" +
		"The first four are steps of the rows above with this Open vSwitch. *Meters* are measured packet rates and bandwidth of policies: `make e2e-qos RELEASE=21 SWITCH=bullseye`.\n\n" +
		"| Open vSwitch | flows of VMs and a trunk | all flows back after kill -9 | drift: a flow deleted | conntrack: a connection ends with its rule | meters | commit, date | |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range switches() {
		smoke, qos := b.results[c.name("smoke")], b.results[metered(c).name("qos")]
		row := func(r *result, figure string) string {
			if r == nil {
				return "–"
			}
			return orDash(strings.Replace(r.Figures[figure], "FAIL", "**fail**", 1))
		}
		meters, when := "–", "not run | "
		if qos != nil {
			meters, when = row(qos, "rows")+" as wanted", fmt.Sprintf("%s, %s | %s", qos.Commit, qos.Date.Format("2006-01-02"), stated(qos))
		}
		fmt.Fprintf(&p, "| %s (%s) | %s | %s | %s | %s | %s | %s |\n", row(smoke, "openvswitch"), c.neutron, row(smoke, "wired"), row(smoke, "switch"), row(smoke, "tampered"), row(smoke, "closed"), meters, when)
	}
	return p.String()
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}
