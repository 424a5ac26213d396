// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"testing"
)

func TestGrown(t *testing.T) {
	before := Held{Heap: 600 << 10, Goroutines: 31, Depth: Depth{Consumed: 201}}
	for text, after := range map[string]Held{
		"":           {Heap: 800 << 10, Goroutines: 32.5, Depth: Depth{Consumed: 201, Queues: 300}, BrokerBytes: 1 << 40},
		"heap":       {Heap: 900 << 10, Goroutines: 31, Depth: Depth{Consumed: 201}},
		"goroutines": {Heap: 600 << 10, Goroutines: 34, Depth: Depth{Consumed: 201}},
		"queues":     {Heap: 600 << 10, Goroutines: 31, Depth: Depth{Consumed: 202}},
	} {
		got := strings.Join(grown(before, after), "; ")
		if text == "" && got != "" || !strings.HasPrefix(got, text) {
			t.Errorf("%+v: %q, want %q", after, got, text)
		}
		if r := (&Result{Storms: []Storm{{Name: "x", Grown: grown(before, after)}}}); (r.Faults() != nil) != (text != "") {
			t.Errorf("%q: %v", text, r.Faults())
		}
	}
	if err := (&Result{Flows: Flows{Wrong: 1}}).Faults(); err == nil {
		t.Error("a wrong flow is no fault")
	}
}

func TestCarried(t *testing.T) {
	good := Phase{Rate: 10, Seconds: 10, Boots: 100, Waiting: 20, Depth: Depth{Messages: 1000}, Cost: Cost{Seconds: 10, Deliveries: 100 * 10 * 40}}
	if !good.carried(100) {
		t.Error("a rate at which agents keep up is not carried")
	}
	for name, change := range map[string]func(*Phase){
		"fewer boots than wanted": func(p *Phase) { p.Boots = 80 }, "ports are not ACTIVE": func(p *Phase) { p.Waiting = 30 },
		"messages wait": func(p *Phase) { p.Depth.Messages = 10000 },
	} {
		p := good
		if change(&p); p.carried(100) {
			t.Errorf("%s: carried", name)
		}
	}
}

func TestSparkline(t *testing.T) {
	if got := sparkline([]Second{{Calls: 0}, {Calls: 70}, {Calls: 35}}); got != "▁█▄" {
		t.Errorf("%s", got)
	}
	if got := sparkline(make([]Second, 200)); len([]rune(got)) != 50 {
		t.Errorf("%d strokes for 200 seconds", len([]rune(got)))
	}
}

func TestMore(t *testing.T) {
	got := more(map[string]int{"a": 5, "b": 2, "c": 1}, map[string]int{"a": 3, "b": 2})
	if len(got) != 2 || got["a"] != 2 || got["c"] != 1 {
		t.Errorf("%v", got)
	}
	if !slices.Equal(sortedNames(storms), []string{"boots", "broker", "group", "restart", "server"}) {
		t.Errorf("%v", sortedNames(storms))
	}
}

func TestQueuesOfCalls(t *testing.T) {
	for queue, want := range map[string]bool{
		"reply_0a1b": true, "q-plugin": true, "q-plugin.server1": true, "q-reports-plugin": true,
		"neutron-openvswitch-agent_fanout_h1_0a1b": false, "q-agent-notifier-port-update_fanout_0a1b": false, "q-agent-notifier-port-update.h1": false,
	} {
		if isOfCalls(queue) != want {
			t.Errorf("%s: %v", queue, !want)
		}
	}
}
