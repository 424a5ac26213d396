// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/script"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

var update = flag.Bool("update", false, "write what the scripts in testdata print")

// TestScripts plays the scripts in testdata: lines tell the host something, "$ wants" asks what is there besides what there
// was without ports, "$ explain PORT" what the extension says. What follows is the answer. testdata/README says more.
func TestScripts(t *testing.T) {
	script.Run(t, "testdata/*.script", *update, func(t *testing.T) script.Player {
		h := newHost(t)
		h.settle()
		return &scripted{
			h, &server{policies: map[string][]extensiontest.Rule{}, networks: map[string]string{}, ports: map[string]*facts{}, told: map[string][]string{}}, h.text(),
		}
	})
}

// scripted is a host and its server that a script tells what happens.
type scripted struct {
	*host
	server *server
	base   []string // what the host has without ports
}

func (s *scripted) Tell(words []string)         { s.do(s.server, words) }
func (s *scripted) Ask(words []string) []string { return s.ask(s.server, s.base, words) }

// do tells the host something: as a push when it is about what it knows, and else when it asks.
func (h *host) do(s *server, f []string) {
	s.revision++
	switch f[0] {
	case "policy": // policy q1; policy q1 QosDscpMarkingRule {"dscp_mark":26} …
		rules := []extensiontest.Rule{}
		for rest := f[2:]; len(rest) > 1; rest = rest[2:] {
			rules = append(rules, extensiontest.Rule{Kind: rest[0], Data: rest[1]})
		}
		s.policies[f[1]] = rules
		h.push(neutron.KindQosPolicy, s.policy(f[1]))
	case "network": // network n q1
		s.networks[f[1]] = strings.Join(f[2:], "")
		h.push(neutron.KindNetwork, s.network(f[1]))
	case "port": // port 1 n compute:nova q1
		s.ports[f[1]] = &facts{Network: f[2], Owner: f[3], Policy: strings.Join(f[4:], ""), Up: true, revision: s.revision}
		h.w.Resync()
	case "plug":
		h.plug(f[1])
	case "unplug":
		h.unplug(f[1])
	case "restart":
		h.make = qos.New
		if len(f) > 1 { // restart qos_meter_bandwidth
			h.make = qos.NewMetered
		}
		h.restart()
		if len(f) > 2 { // restart qos_meter_bandwidth asked: the server answers before the switch does
			h.tell(s)
		}
		h.count()
	default:
		h.t.Fatalf("what is %q?", strings.Join(f, " "))
	}
}

func (h *host) ask(s *server, base, f []string) []string {
	if f[0] != "unanswered" {
		h.tell(s)
	} else {
		h.settle()
		h.w.Ports(h.w.Missing(), []neutron.Port{s.port(f[1])})
		h.settle()
	}
	switch f[0] {
	case "wants":
		return slices.DeleteFunc(h.text(), func(line string) bool {
			core := strings.Contains(line, "external_ids:") || strings.HasPrefix(line, "Interface") && strings.Contains(line, "ofport") ||
				strings.HasPrefix(line, "Port") && (strings.Contains(line, "bridge=") || strings.Contains(line, "tag=")) ||
				strings.Contains(line, "priority=3 in_port=int-br-ex") || strings.Contains(line, "priority=4 in_port=phy-br-ex")
			return core || slices.Contains(base, line)
		})
	case "explain":
		return h.set.Explain(world.PortObject(f[1]))
	case "unanswered":
		want := h.wants[world.PortObject(f[1])]
		return append([]string{"waits for: " + want.Waiting}, h.set.Explain(world.PortObject(f[1]))...)
	}
	h.t.Fatalf("what is %q?", f)
	return nil
}

// Two rules of a policy are changed at once while the agent asks: both pushes have the revision of before, and the one that comes last
// does not know of the other change. The answer does, whenever it comes.
func TestPushesThatOvertakeEachOther(t *testing.T) {
	const mark, rate = "QosDscpMarkingRule", "QosPacketRateLimitRule"
	rules := func(dscp, kpps int) []extensiontest.Rule {
		return []extensiontest.Rule{
			{Kind: mark, Data: fmt.Sprintf(`{"dscp_mark":%d}`, dscp)},
			{Kind: rate, Data: fmt.Sprintf(`{"max_kpps":%d,"direction":"egress"}`, kpps)},
		}
	}
	for _, order := range []string{"answer first", "answer between", "answer last", "answer of before"} {
		t.Run(order, func(t *testing.T) {
			h := newHost(t)
			s := &server{
				revision: 5, policies: map[string][]extensiontest.Rule{"q": rules(10, 1)}, networks: map[string]string{}, told: map[string][]string{},
				ports: map[string]*facts{"1": {Network: "n", Owner: "compute:nova", Policy: "q", Up: true, revision: 1}},
			}
			h.plug("1")
			h.tell(s)
			item := extension.Item{Kind: neutron.KindQosPolicy, ID: "q"}
			older := *s
			older.policies = map[string][]extensiontest.Rule{"q": rules(20, 1)} // of the change that was told last
			newer := *s
			newer.policies = map[string][]extensiontest.Rule{"q": rules(20, 2)}
			before := *s
			s.revision, s.policies = 7, newer.policies

			h.set.Resync()
			answers := map[string]int{"answer first": 0, "answer between": 1, "answer last": 2, "answer of before": 2}[order]
			for i, at := range []*server{&newer, &older, nil} {
				if i == answers && order == "answer of before" {
					h.answer(item, &before)
				} else if i == answers {
					h.answer(item, s)
				}
				if at != nil {
					h.push(neutron.KindQosPolicy, at.policy("q"))
				}
			}
			h.tell(s)
			got := strings.Join(h.set.Explain(world.PortObject("1")), "; ")
			if !strings.Contains(got, "DSCP 20") || !strings.Contains(got, "at most 2000 packets/s") {
				t.Error(got)
			}
		})
	}
}

// A policy goes from one port to another while the agent asks for it. What was pushed meanwhile is not forgotten on the way, so an answer
// of before does not count.
func TestAPolicyThatGoesFromPortToPort(t *testing.T) {
	marked := func(dscp int) map[string][]extensiontest.Rule {
		return map[string][]extensiontest.Rule{"q": {{Kind: "QosDscpMarkingRule", Data: fmt.Sprintf(`{"dscp_mark":%d}`, dscp)}}}
	}
	for range 20 { // ports are settled in any order
		h := newHost(t)
		s := &server{revision: 5, policies: marked(10), networks: map[string]string{}, told: map[string][]string{}, ports: map[string]*facts{
			"1": {Network: "n", Owner: "compute:nova", Policy: "q", Up: true, revision: 1},
			"2": {Network: "n", Owner: "compute:nova", Up: true, revision: 1},
		}}
		h.plug("1")
		h.plug("2")
		h.tell(s)
		h.set.Resync()
		before := *s
		s.revision, s.policies = 7, marked(20)
		h.push(neutron.KindQosPolicy, s.policy("q"))
		s.ports = map[string]*facts{
			"1": {Network: "n", Owner: "compute:nova", Up: true, revision: 2},
			"2": {Network: "n", Owner: "compute:nova", Policy: "q", Up: true, revision: 2},
		}
		h.w.Ports([]string{"1", "2"}, []neutron.Port{s.port("1"), s.port("2")})
		h.settle()
		h.answer(extension.Item{Kind: neutron.KindQosPolicy, ID: "q"}, &before)
		h.tell(s)
		if got := strings.Join(h.set.Explain(world.PortObject("2")), "; "); !strings.Contains(got, "DSCP 20") {
			t.Fatal(got)
		}
	}
}

// A switch without meters limits bandwidth as without qos_meter_bandwidth; before it has said whether it has any, limits stay as they are.
func TestBandwidthWithoutMeters(t *testing.T) {
	h := newHost(t)
	s := &server{
		policies: map[string][]extensiontest.Rule{"q": {{Kind: "QosBandwidthLimitRule", Data: `{"max_kbps":3000,"max_burst_kbps":300,"direction":"egress"}`}}},
		networks: map[string]string{}, told: map[string][]string{}, ports: map[string]*facts{"1": {Network: "n", Owner: "compute:nova", Policy: "q", Up: true, revision: 1}},
	}
	policed := func() bool {
		return strings.Contains(strings.Join(h.text(), "\n"), "ingress_policing=3000 kbit/s, 300 kbit")
	}
	h.plug("1")
	h.tell(s)
	h.make = qos.NewMetered
	h.restart()
	h.settle()
	if !policed() {
		t.Error("the limit goes before the switch has said whether it has meters")
	}
	h.w.MaxMeters["br-int"] = 0
	h.tell(s)
	if !policed() || strings.Contains(strings.Join(h.text(), "\n"), "meter") {
		t.Errorf("on a switch without meters:\n%s", strings.Join(h.text(), "\n"))
	}
	h.count()
	if policed() {
		t.Error("the limit of before stays beside the meter")
	}
	h.restart()
	h.settle()
	if policed() {
		t.Error("after a restart there is another limit until the switch has said whether it has meters")
	}
}
