// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestMatrixPageIsGenerated: docs/reference/releases.md says what the results of the cells say.
func TestMatrixPageIsGenerated(t *testing.T) {
	b, err := openMatrix("../..", allCells())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.checkPages(); err != nil {
		t.Error(err)
	}
}

// smokeOutput is what `make e2e-smoke` prints, shortened.
const smokeOutput = `    testing.go:33:    0.1s  releases: Neutron 2:29.0.0-2 (sid), RabbitMQ 4.3.6-1 (sid), Open vSwitch 4.0.0-3 (sid)
    testing.go:37: versions: erlang=1:29.1 neutron=2:29.0.0-2 neutron-lib=5.0.1-3 openvswitch=4.0.0-3 oslo.messaging=18.3.0-4 rabbitmq=4.3.6-1
step                                     seconds  due: sent  arrived  forbidden: sent  arrived  flows  touched  seen by a flow monitor  result
lab starts                               21.0     0          0        0                0                                                pass    
agents start                             3.1      0          0        0                0                                                pass    
rule opened                              1.9      100        100      300              0                                                pass    first packet 20 ms after the answer
rule opened again                        1.9      100        100      300              2                                                FAIL    first packet 20 ms after the answer
agents restarted                         5.9      1000       1000     3000             0        220    1        3                       FAIL    
5 steps, 2 failed, 71 s with the lab's start
`

func TestCells(t *testing.T) {
	items := allCells()
	it := items[3]
	if it.name != "smoke-29" || it.command != "make --no-print-directory e2e-smoke RELEASE=29" {
		t.Fatalf("%s: %s", it.name, it.command)
	}
	names := map[string]bool{}
	for _, c := range items {
		if names[c.name] {
			t.Errorf("two cells are called %s", c.name)
		}
		names[c.name] = true
	}
	o := it.judge(smokeOutput, errors.New("exit status 2"))
	for name, want := range map[string]string{
		"neutron": "2:29.0.0-2", "rabbitmq": "4.3.6-1", "openvswitch": "4.0.0-3", "steps": "5", "failed": "2", "passed": "2",
		"registers": "pass", "opened": "pass", "restart": "FAIL", "touched": "1", "flows": "220", "vlan": "",
	} {
		if got := o.Figures[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	versions := cellVersions(map[string]string{"neutron": "21", "prometheus": "2", "os-ken": "2"}, smokeOutput)
	if versions["neutron"] != "2:29.0.0-2" || versions["oslo.messaging"] != "18.3.0-4" || versions["os-ken"] != "" || versions["prometheus"] != "2" {
		t.Errorf("versions %v", versions)
	}
	b := &book{items: items, results: map[string]*result{"smoke-29": {outcome: o, Failed: []string{"TestSmoke/agents_restarted"}}}}
	pages, err := matrixPages(b)
	if err != nil {
		t.Fatal(err)
	}
	text := pages[matrixFile]
	for _, want := range []string{
		"| 2:29.0.0-2 (sid) | 4.3.6-1 (sid) | 4.0.0-3 (sid) | pass |", "| 1 of 220 | 2 |", "**fail**", "TestSmoke/agents_restarted",
		"| 17 (bullseye) | trixie | trixie | – |", "not run",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

// handoverOutput is what `make e2e-handover` prints, shortened.
const handoverOutput = `    testing.go:37: versions: neutron=2:28.0.1-2 openvswitch=4.0.0-3 rabbitmq=4.3.6-1
step                              seconds  due: sent  arrived  forbidden: sent  arrived  flows  touched  seen by a flow monitor  result
Python agents restarted           40.7     39677      39677    21642            0        533    533      0                       pass
handed to Patchbay                20.2     1000       999      10572            0        562    87       0                       pass
handed to the Python agent        42.2     2000       2000     22452            0        533    533      0                       pass    717 flows and rows as on a switch of its own
handed to Patchbay                19.4     1000       1000     10320            0        562    88       0                       pass    746 flows and rows as the hand-over before
handed to the Python agent        40.0     2000       2000     21354            0        533    533      0                       pass    717 flows and rows as on a switch of its own
Patchbay beside the Python agent  0.0      0          0        0                0                                                pass    764 flows and rows, 62 differ and are explained
9 steps, 0 failed, 257 s with the lab's start
`

// migrateOutput is what `make e2e-migrate` prints in the end.
const migrateOutput = `vxlan: outage of 8 peers' views, median and longest: Python agent 1500 and 2900 ms, Patchbay 90 and 140 ms
vlan: outage of 8 peers' views, median and longest: Python agent 12 and 80 ms, Patchbay 11 and 60 ms
`

// upgradeOutput is what `make e2e-upgrade` prints, shortened.
const upgradeOutput = `    testing.go:37: versions: neutron=2:26.0.3-0+deb13u3 openvswitch=3.5.0-1+b1 rabbitmq=4.0.5-6
step                    seconds  due: sent  arrived  forbidden: sent  arrived  flows  touched  seen by a flow monitor  result
agents restarted first  4.0      900        900      100              0        562    0        0                       pass
server upgraded to 28   40.7     3000       2999     2164             0        562    0        0                       pass    28.0.1 (forky); agents alive and in sync 9 s after its API answers
server upgraded to 29   38.2     2800       2800     2104             0        562    3        3                       FAIL    29.0.0 (sid); agents alive and in sync 7 s after its API answers
14 steps, 1 failed, 257 s with the lab's start
`

func TestPythonCells(t *testing.T) {
	b := &book{items: allCells(), results: map[string]*result{}}
	for _, it := range b.items {
		switch it.name {
		case "handover-28":
			b.results[it.name] = &result{outcome: it.judge(handoverOutput, nil)}
		case "upgrade-26":
			b.results[it.name] = &result{outcome: it.judge(upgradeOutput, nil)}
			if it.command != "make --no-print-directory e2e-upgrade RELEASE=26 UPGRADE=28,29" {
				t.Error(it.command)
			}
		case "migrate-29":
			b.results[it.name] = &result{outcome: it.judge(migrateOutput, nil)}
		}
	}
	pages, err := matrixPages(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 2:28.0.1-2 (forky) | 4 | 6,000 | 1 | 0 | 88 of 562 | 62 of 764 flows and rows |", "| 29 (sid) | – |",
		"| 28.0.1 (forky) | 3,000 | 1 | 0 of 562 | 9 s |", "| 29.0.0 (sid) | 2,800 | 0 | 3 of 562 | 7 s |", "failed is 1, wanted = 0; 29-touched is 3",
		"| vxlan | 1500 ms, 2900 ms | 90 ms, 140 ms |", "| vlan | 12 ms, 80 ms | 11 ms, 60 ms |",
	} {
		if !strings.Contains(pages[matrixFile], want) {
			t.Errorf("the page lacks %q:\n%s", want, pages[matrixFile])
		}
	}
	if c := crossings()[10]; c.command("smoke") != "make --no-print-directory e2e-smoke RELEASE=29 QUEUES=kolla,denied" || c.name("smoke") != "smoke-29-queues-kolla-denied" {
		t.Errorf("%s: %s", c.name("smoke"), c.command("smoke"))
	}
}

// TestQueueCells: what the test of queue options says is read for each of them, and is in the page.
func TestQueueCells(t *testing.T) {
	items := queueItems()
	it := items[slices.IndexFunc(items, func(it item) bool { return it.name == "queues-sid-denied" })]
	output := "--- PASS: TestEveryRelease (60.00s)\n"
	for _, o := range queueOptions() {
		output += "    releases_integration_test.go:52: RabbitMQ 4.3.6, denied true, " + o[0] + ": agent only, durable; 2 bindings for 13 topics\n"
	}
	output = strings.Replace(output, "kolla: agent only, durable;", "kolla: refused; queue x is refused: set y;", 1)
	o := it.judge(output, nil)
	if o.Verdict != passed || o.Figures["kolla"] != "refused" || o.Figures["one-stream"] != "agent only, durable" || o.Figures["rabbitmq"] != "4.3.6" {
		t.Errorf("%+v", o)
	}
	if o := it.judge(strings.Replace(output, "tls: ", "tcp: ", 1), nil); o.Verdict != failed {
		t.Error("a set of options that did not run passes")
	}
	b := &book{results: map[string]*result{it.name: {outcome: o}}}
	if page := b.queuePage(); !strings.Contains(page, "| all of them (kolla's set) | – | – | – | – | refused |") || !strings.Contains(page, "| 4.3.6, transient queues denied |") {
		t.Errorf("page:\n%s", page)
	}
}
