// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
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
