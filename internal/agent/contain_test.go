// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// of are the flows of the integration bridge that match a text.
func (h *crashHistory) flowsWith(parts ...string) (out []string) {
	for k, e := range h.ovs.all() {
		if text := e.String(); k.bridge == "br-int" && !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) }) {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

func (h *crashHistory) held() []inspect.Held {
	s, err := h.agent.Status(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return s.Held
}

func (h *crashHistory) tag(name string) string {
	h.ovs.mu.Lock()
	defer h.ovs.mu.Unlock()
	for _, row := range h.ovs.rows["Port"] {
		if textOf(row["name"]) == name {
			return textOf(row["tag"])
		}
	}
	return ""
}

// tellPort changes a port at the server and tells so.
func (h *crashHistory) tellPort(id string, fields map[string]any) {
	h.revision++
	h.region.mu.Lock()
	p := h.truth.ports[id]
	next := map[string]any{}
	for k, v := range p {
		next[k] = v
	}
	for k, v := range fields {
		next[k] = v
	}
	next["revision_number"] = h.revision + 1000
	h.truth.ports[id] = next
	data := h.truth.asTold(next)
	h.region.mu.Unlock()
	h.region.push(neutron.KindPort, neutron.Updated, data)
}

// probedHistory is a filteredHistory of an agent in which what is contained is probed, by what is stored.
func probedHistory(t *testing.T) (*crashHistory, *atomic.Value) {
	h := filteredHistory(t)
	h.bury()
	probe := &atomic.Value{}
	probe.Store(func(string) {})
	h.ready = func(a *Agent) { a.cfg.probe.f = func(where string) { probe.Load().(func(string))(where) } }
	h.live(0, false)
	h.region.chance(nil)
	wait(restTime)
	return h, probe
}

// A port of which it cannot be worked out what it wants keeps its last flows as long as they are about what it is, and is shut when they
// are not. Its neighbour is not concerned, status names it, and it is tried again until it succeeds.
func TestAPortThatCannotBeCompiled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, probe := probedHistory(t)
		for _, id := range []string{"A", "B"} {
			h.tellPort(id, map[string]any{"security_group_ids": []string{"g1"}})
		}
		wait(10 * time.Second)
		probe.Store(func(where string) {
			if where == "port A" {
				panic("injected")
			}
		})
		from10, from11 := h.flowsWith("in_port=10,"), h.flowsWith("in_port=11,")
		rules := func(n int) int { return len(h.flowsWith("table=82", fmt.Sprintf("reg5=0x%x", n), "tcp")) }
		a0, b0 := rules(10), rules(11)
		h.region.push(neutron.KindSecurityGroupRule, neutron.Updated, map[string]any{
			"id": "rx", "security_group_id": "g1", "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 4242, "port_range_max": 4242,
		})
		wait(5 * time.Second)
		if !slices.Equal(h.flowsWith("in_port=10,"), from10) || rules(10) != a0 {
			t.Errorf("A has %d of %d flows, %d of %d rules", len(h.flowsWith("in_port=10,")), len(from10), rules(10), a0)
		}
		if !slices.Equal(h.flowsWith("in_port=11,"), from11) || rules(11) != b0+2 {
			t.Errorf("B has %d flows for rules, had %d", rules(11), b0)
		}
		held := h.held()
		if len(held) != 1 || held[0].Object != "port A" || held[0].Effect != asItWas || !strings.Contains(held[0].Reason, "injected") || held[0].Failed < 2 {
			t.Errorf("held: %+v", held)
		}
		s, err := h.agent.Status(t.Context())
		if err != nil || s.InSync || !strings.Contains(strings.Join(s.Reasons, "\n"), "port A failed") || s.Totals.Panics == 0 {
			t.Errorf("status: %v, in sync %v, %v, %d panics", err, s.InSync, s.Reasons, s.Totals.Panics)
		}
		h.tellPort("A", map[string]any{"admin_state_up": false})
		probe.Store(func(where string) { // the world decides, nobody can compile
			if where == "port A" && strings.Contains(frames(), "compile") {
				panic("injected")
			}
		})
		wait(time.Minute)
		if got := h.flowsWith("in_port=10,"); len(got) != 1 || !strings.Contains(got[0], "table=0,priority=2,") || !strings.HasSuffix(got[0], "actions=drop") {
			t.Errorf("of A there is still %q", got)
		}
		if tag := h.tag("tapA"); tag != fmt.Sprint(world.DeadVLAN) {
			t.Errorf("A is in VLAN %s", tag)
		}
		if held := h.held(); len(held) != 1 || held[0].Effect != shutOut {
			t.Errorf("held: %+v", held)
		}
		h.tellPort("A", map[string]any{"admin_state_up": true})
		probe.Store(func(string) {})
		wait(time.Minute)
		if held := h.held(); len(held) > 0 || !slices.Equal(h.flowsWith("in_port=10,"), from10) || rules(10) != a0+2 {
			t.Errorf("in the end held: %+v; A has %d of %d flows", held, len(h.flowsWith("in_port=10,")), len(from10))
		}
		h.end()
	})
}

// An extension that missed rows hears all of them when it is mended, and compiles what changed meanwhile.
func TestAnExtensionIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPanicHistory(t, rand.New(rand.NewPCG(1, 1)))
		h.ovs.halt()
		wait(2 * time.Minute)
		h.faults.always("extension trunk, OnRows")
		h.region.mu.Lock()
		h.truth.subPorts["7"] = 1
		h.region.mu.Unlock()
		h.ovs.boot(77)
		wait(5 * time.Second)
		if held := h.held(); len(held) != 1 || held[0].Object != "extension trunk" {
			t.Errorf("held: %+v", held)
		}
		h.faults.always("")
		h.rest()
		h.end()
	})
}

// Work beside the loop that panics fails, and whoever waits for it is told.
func TestAPanicBesideTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{}
		a, sw, batch := filtering(t, c, nil, 2)
		var failures atomic.Int64
		a.cfg.probe.f = func(where string) {
			if strings.HasPrefix(where, "asking ") && !strings.Contains(frames(), "converge") && failures.Add(1) <= 6 {
				panic("injected")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		sw.changes <- batch
		wait(time.Minute)
		if s, err := a.Status(t.Context()); err != nil || s.Totals.Panics != 6 || s.Ports["wired"] != 2 {
			t.Errorf("%v: %d panics, ports %v", err, s.Totals.Panics, s.Ports)
		}
		err := a.ask(t.Context(), func(core.View) { panic("in an answer") })
		wait(time.Second) // the loop hears of it as of any other event, which the next question may overtake
		if s, _ := a.Status(t.Context()); err == nil || s.Totals.Panics != 7 {
			t.Errorf("%v: %d panics", err, s.Totals.Panics)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A message that cannot be read at all may have been about anything: everything is asked for again, with pauses that grow.
func TestMessagesThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := filteredHistory(t)
		before, err := h.agent.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 600 {
			h.region.send(neutron.TopicL2Population, "add_fdb_entries", map[string]any{"fdb_entries": 7})
			wait(100 * time.Millisecond)
		}
		after, err := h.agent.Status(t.Context())
		if n := after.Totals.Resyncs - before.Totals.Resyncs; err != nil || n < 3 || n > 20 {
			t.Errorf("%v: %d checks in a minute", err, n)
		}
		h.end()
	})
}

// Groups, members and address groups that the server tells and that cannot be read cut nothing that is wired, and open nothing that is new.
func TestFiltersThatCannotBeReadCutNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := filteredHistory(t)
		for i, rule := range []map[string]any{{"remote_group_id": "g2"}, {"remote_address_group_id": "a1"}, {"protocol": "tcp"}} {
			id := fmt.Sprint("rx", i)
			maps.Copy(rule, map[string]any{"id": id, "security_group_id": "g1", "direction": "ingress", "ethertype": "IPv4"})
			h.region.mu.Lock()
			h.truth.rules[id] = rule
			h.region.mu.Unlock()
			h.region.push(neutron.KindSecurityGroupRule, neutron.Updated, rule)
		}
		h.tellPort("A", map[string]any{"security_group_ids": []string{"g1", "g2"}, "allowed_address_pairs": []any{}})
		h.tellPort("B", map[string]any{"security_group_ids": []string{"g1", "g2"}, "allowed_address_pairs": []any{}})
		h.tellPort("C", map[string]any{"security_group_ids": []string{"g3"}, "device_owner": "compute:nova", "admin_state_up": true,
			"security": fake.Wrapped(map[string]any{"port_security_enabled": true})})
		wait(restTime)
		before := h.ovs.all()
		asked := 0
		h.region.mu.Lock()
		h.region.spoil = func(objects []any) {
			for i, o := range objects {
				o := maps.Clone(o.(map[string]any))
				data := maps.Clone(o["versioned_object.data"].(map[string]any))
				if name := o["versioned_object.name"]; name == "Port" && data["id"] == "C" && asked < 1 {
					continue // the new port itself can be read, once
				}
				data["revision_number"], data["rules"], data["addresses"] = "x", 7, 7
				o["versioned_object.data"] = data
				objects[i] = o
				asked++
			}
		}
		h.region.mu.Unlock()
		h.region.onEvent(messaging.Gap{})
		wait(20 * time.Second)
		after := h.ovs.all()
		for k, e := range before {
			if after[k] != e {
				t.Fatalf("%s is gone", e)
			}
		}
		if asked < 5 {
			t.Errorf("only %d objects were asked for", asked)
		}
		asked = 0
		h.ovs.plug("C", 1, 30)
		wait(20 * time.Second)
		ports, err := h.agent.Ports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ports {
			if p.ID == "C" && (p.State != "waiting" || !strings.Contains(p.Reason, "g3 cannot be read")) {
				t.Errorf("C is %s: %s", p.State, p.Reason)
			}
		}
		if let := h.flowsWith("in_port=30,"); len(let) > 0 || len(ports) < 3 {
			t.Errorf("of C, among %d ports: %q", len(ports), let)
		}
		h.region.mu.Lock()
		h.region.spoil = nil
		h.region.mu.Unlock()
		h.rest()
		if let := h.flowsWith("in_port=30,"); len(let) == 0 {
			t.Error("C has no flows in the end")
		}
		h.end()
	})
}
