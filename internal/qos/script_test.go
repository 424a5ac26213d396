// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
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
func (s *scripted) Commands() *regexp.Regexp    { return commands }

var commands = regexp.MustCompile(`^((policy|network|port|plug|unplug) [^ :]+|restart)( |$)`)

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
		if slices.Contains(f, "qos_meter_bandwidth") {
			h.make = qos.NewMetered
		}
		h.restart()
		if slices.Contains(f, "asked") { // the server answers before the switch does
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
	case "explain-without-meters":
		h.w.MaxMeters["br-int"] = 0
		h.tell(s)
		defer h.count()
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

// Objects that cannot be read are told of, one by one: the others of the same message or answer count, and what could not be read is asked for again.
func TestObjectsThatCannotBeRead(t *testing.T) {
	h := newHost(t)
	s := &server{revision: 5, policies: map[string][]extensiontest.Rule{"q1": {}, "q2": {}}, networks: map[string]string{"n": "q2"}, told: map[string][]string{}, ports: map[string]*facts{
		"1": {Network: "n", Owner: "compute:nova", Policy: "q1", Up: true, revision: 1}, "2": {Network: "n", Owner: "compute:nova", Up: true, revision: 1},
	}}
	h.plug("1")
	h.plug("2")
	h.tell(s)
	missing := func() (all string) {
		for _, item := range h.set[0].Missing() {
			all += fmt.Sprintf("%s %s; ", item.Kind, item.ID)
		}
		return all
	}
	explained := func(id string) string { return strings.Join(h.set.Explain(world.PortObject(id)), "; ") }
	objects := func(kind neutron.Kind, texts ...string) (all []neutron.Primitive) {
		for _, text := range texts {
			all = append(all, neutron.Primitive{Name: string(kind), Data: []byte(text)})
		}
		return all
	}
	marks := func(dscp int) []extensiontest.Rule {
		return []extensiontest.Rule{{Kind: "QosDscpMarkingRule", Data: fmt.Sprintf(`{"dscp_mark":%d}`, dscp)}}
	}
	s.revision, s.policies["q1"], s.policies["q3"] = 6, marks(10), marks(30)
	push := func(kind neutron.Kind, texts ...string) error {
		return h.set.OnPush(&neutron.Push{Kind: kind, Event: neutron.Updated, Objects: objects(kind, texts...)})
	}
	if err := push(neutron.KindQosPolicy, `{"id":7}`, s.policy("q1")); err == nil {
		t.Error("a policy that cannot be read is not told of")
	}
	if h.settle(); !strings.Contains(explained("1"), "DSCP 10") {
		t.Errorf("the policy beside one that cannot be read: %s", explained("1"))
	}
	s.networks["n"] = "q3"
	if err := push(neutron.KindNetwork, `{"id":7}`, s.network("n")); err == nil {
		t.Error("a network that cannot be read is not told of")
	}
	if h.settle(); missing() != "QosPolicy q3; " {
		t.Errorf("after the push of a network with another policy %s is missing", missing())
	}
	h.tell(s)
	h.set.Resync()
	before := missing()
	if err := h.set[0].Puller.OnPulled(neutron.KindQosPolicy, []string{"q1", "q3"}, objects(neutron.KindQosPolicy, `{"id":7}`, s.policy("q3"))); err == nil {
		t.Error("an answer about policies that cannot be read is not told of")
	}
	if got := missing(); before != "Network n; QosPolicy q1; QosPolicy q3; " || got != "Network n; QosPolicy q1; " {
		t.Errorf("missing %s, and after the answer %s", before, got)
	}
	if err := h.set[0].Puller.OnPulled(neutron.KindNetwork, []string{"n"}, objects(neutron.KindNetwork, `{"id":7}`)); err == nil || missing() != "Network n; QosPolicy q1; " {
		t.Errorf("an answer about networks that cannot be read: %v, missing %s", err, missing())
	}
	if err := h.set[0].Puller.OnPulled(neutron.KindNetwork, []string{"n"}, nil); err != nil || missing() != "QosPolicy q1; " {
		t.Errorf("a network that is gone: %v, missing %s", err, missing())
	}
	// What is deleted goes with the last port that uses it, not before.
	if err := h.set.OnPush(&neutron.Push{Kind: neutron.KindQosPolicy, Event: neutron.Deleted, Objects: objects(neutron.KindQosPolicy, `{"id":"q1","revision_number":9}`)}); err != nil {
		t.Error(err)
	}
	if h.settle(); !strings.Contains(explained("1"), "DSCP 10") {
		t.Errorf("a policy that was deleted, and is still used: %s", explained("1"))
	}
	if err := h.set.Load(map[string]json.RawMessage{"qos": []byte("[]")}); err == nil {
		t.Error("nonsense is loaded")
	}
}
