// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// logLines puts flows of logs into words, without what is ours alone: the register of packets that leave, the flows around it, and what is done. Flows about members
// of a group are named by their block of ids: Python takes the wrong one of it.
func logLines(t failer, flows []of.Flow, number func(uint32) uint32, leftOut func(block uint32) bool) []string {
	var out []string
	for _, f := range flows {
		if f.Table == fwAcceptOrIngress || f.Table == fwAcceptedEgress && f.Priority == anyRule {
			continue
		}
		f.Match = slices.DeleteFunc(slices.Clone(f.Match), func(m of.Term) bool { return m.Field == regLooked })
		if id, conjunctive := f.Match.Lookup(regAllowed); conjunctive {
			block := number(uint32(id.Value.Lo)) &^ 7
			if leftOut(block) {
				continue
			}
			f.Match = slices.DeleteFunc(f.Match, func(m of.Term) bool { return m.Field == regAllowed }).With(of.Num(regAllowed, uint64(block)))
		}
		f.Cookie, f.Actions = Cookie, nil
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// compareLogs asks both about a log of all events of all ports.
func (p *python) compareLogs(t failer, c *cloud) int {
	t.Helper()
	all, number := p.ask(t, c)
	var theirs, ours []of.Flow
	for _, text := range all.Log {
		f, err := of.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		theirs = append(theirs, f)
	}
	var want Want
	for _, id := range c.w.PortIDs() {
		if port := c.w.Port(id); c.w.Filtered(port) {
			want.LogAccepted(c.w, port, port.Groups, of.ToController(0xffff))
			want.LogDropped(c.w, port, of.ToController(0xffff))
		}
	}
	for _, f := range want.Flows {
		decoded, err := f.Entry.Flow()
		if err != nil {
			t.Fatal(err)
		}
		ours = append(ours, decoded)
	}
	addresses := map[uint32]bool{} // blocks of ids of rules with an address group
	for _, g := range c.groups {
		for _, r := range c.w.Groups.Rules(g.ID) {
			if c.addresses[r.Remote] != nil {
				addresses[c.w.Members.ConjunctionID(conjunctionOf(g.ID, &r))] = true
			}
		}
	}
	same := func(id uint32) uint32 { return id }
	left := logLines(t, theirs, number, func(uint32) bool { return false })
	right := logLines(t, ours, same, func(block uint32) bool { return addresses[block] })
	if !slices.Equal(left, right) {
		only := func(a, b []string) string {
			return strings.Join(slices.DeleteFunc(slices.Clone(a), func(l string) bool { return slices.Contains(b, l) }), "\n")
		}
		t.Fatalf("Python alone:\n%s\nPatchbay alone:\n%s", only(left, right), only(right, left))
	}
	return len(left)
}

// TestLogOracle compares the flows that log with those that the Python agent's own code makes of the same ports and groups: tables, priorities and matches.
func TestLogOracle(t *testing.T) {
	p := startPython(t)
	flows, rules := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawCloud(t)
		flows += p.compareLogs(t, c)
		for _, g := range c.groups {
			rules += len(g.Rules)
		}
	})
	if t.Logf("%d flows of %d rules", flows, rules); flows < 50 {
		t.Errorf("only %d flows were compared", flows)
	}
}

// TestLogsFollowTheFirewall: the flow that logs a rule about members of a group matches what the flow writes that allowed the packet.
func TestLogsFollowTheFirewall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCloud(t)
		written := map[uint64]bool{}
		for _, f := range c.all(t, func(o world.Object) bool { _, ok := world.PortID(o); return ok }) {
			decoded, err := f.Entry.Flow()
			if err != nil {
				t.Fatal(err)
			}
			state, _ := decoded.Match.Lookup(of.CTState)
			for _, a := range decoded.Actions {
				if s, ok := a.(of.SetField); ok && s.Field == regAllowed && state == fresh() {
					written[s.Value.Lo] = true
				}
			}
		}
		logged := map[uint64]bool{}
		for _, id := range c.w.PortIDs() {
			port := c.w.Port(id)
			if !c.w.Filtered(port) {
				continue
			}
			var want Want
			want.LogAccepted(c.w, port, port.Groups, of.ToController(0xffff))
			for _, f := range want.Flows {
				decoded, err := f.Entry.Flow()
				if err != nil {
					t.Fatal(err)
				}
				if id, ok := decoded.Match.Lookup(regAllowed); ok {
					logged[id.Value.Lo] = true
				}
			}
		}
		if fmt.Sprint(written) != fmt.Sprint(logged) {
			t.Fatalf("the filters write %v for new connections, logs match %v", written, logged)
		}
	})
}
