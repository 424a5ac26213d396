// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// The differential tests compare with Open vSwitch itself on random flows:
// PATCHBAY_FLOWS says how many (2,000), PATCHBAY_SEED from which seed (random,
// printed).

func flowCount(t *testing.T) int {
	t.Helper()
	if s := os.Getenv("PATCHBAY_FLOWS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 2000
}

func seed(t *testing.T) uint64 {
	t.Helper()
	s := rand.Uint64()
	if env := os.Getenv("PATCHBAY_SEED"); env != "" {
		var err error
		if s, err = strconv.ParseUint(env, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PATCHBAY_SEED=%#x PATCHBAY_FLOWS=%d", s, flowCount(t))
	return s
}

// randomFlows returns n flows with different keys.
func randomFlows(t *testing.T, g *gen, n int) ([]Flow, []Entry) {
	t.Helper()
	flows, entries := make([]Flow, 0, n), make([]Entry, 0, n)
	seen := map[Key]bool{}
	for len(flows) < n {
		f := g.flow()
		e, err := f.Entry()
		if err != nil {
			t.Fatalf("%s: %v", f.String(), err)
		}
		if seen[e.Key()] {
			continue
		}
		seen[e.Key()] = true
		flows, entries = append(flows, f), append(entries, e)
	}
	return flows, entries
}

// Our text of a flow, made into bytes by ovs-ofctl, is what we send.
func TestDifferentialParseFlows(t *testing.T) {
	g := newGen(seed(t))
	g.textual = true
	_, entries := randomFlows(t, g, flowCount(t))
	var text bytes.Buffer
	for _, e := range entries {
		fmt.Fprintln(&text, e)
	}
	for _, v := range bothVersions {
		wires, prints := ofctlParse(t, v, text.Bytes())
		if len(wires) != len(entries) {
			t.Fatalf("%v: ovs-ofctl made %d of %d flows", v, len(wires), len(entries))
		}
		bad := 0
		for i, e := range entries {
			got, err := AddFlow(e).AppendMessage(nil, v, uint32(i+1))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, wires[i]) {
				if bad++; bad <= 10 {
					t.Errorf("%v: %v\n ours %x\ntheirs %x\n%s", v, e, got, wires[i], prints[i])
				}
			}
			if theirs := printedFlow(prints[i]); theirs != ofctlText(e) {
				if bad++; bad <= 10 {
					t.Errorf("%v: text\n ours %s\ntheirs %s", v, ofctlText(e), theirs)
				}
			}
		}
		t.Logf("%v: %d flows through ovs-ofctl parse-flows, %d differences", v, len(entries), bad)
	}
}

// printedFlow takes match and actions from ovs-ofctl's print of a flow_mod.
func printedFlow(print string) string {
	head, actions, _ := strings.Cut(print, " actions=")
	_, match, _ := strings.Cut(head, "priority=")
	match, _, _ = strings.Cut(match, " ")
	_, match, _ = strings.Cut(match, ",")
	return match + " actions=" + actions
}

// ofctlText is our text of the same.
func ofctlText(e Entry) string {
	f, err := e.Flow()
	if err != nil {
		return err.Error()
	}
	return f.Match.String() + " actions=" + string(AppendActions(nil, f.Actions))
}

// ofctlParse runs ovs-ofctl parse-flows and returns the messages and their
// print.
func ofctlParse(t *testing.T, v Version, flows []byte) (wires [][]byte, prints []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ovs-ofctl", "-O", v.String(), "-mmmmm", "parse-flows", "-")
	cmd.Stdin = bytes.NewReader(flows)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ovs-ofctl parse-flows: %v: %s", err, stderr.String())
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		switch {
		case strings.HasPrefix(line, "OFPT_FLOW_MOD"):
			prints = append(prints, line)
			wires = append(wires, nil)
		case len(line) > 60 && line[8:10] == "  " && len(wires) > 0:
			digits := strings.NewReplacer(" ", "", "-", "").Replace(line[10:58])
			b, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			wires[len(wires)-1] = append(wires[len(wires)-1], b...)
		}
	}
	return wires, prints
}

// Our actions and instructions, decoded and encoded again by ovs-ofctl, stay
// as they are: it prints a line for every byte that differs. parse-actions
// takes any actions, parse-instructions only those that need no match.
func TestDifferentialParseInstructions(t *testing.T) {
	for _, command := range []string{"parse-actions", "parse-instructions"} {
		t.Run(command, func(t *testing.T) {
			g := newGen(seed(t))
			var in bytes.Buffer
			var want []string
			for range flowCount(t) {
				g.matchAll = command == "parse-instructions"
				f := g.flow()
				if command == "parse-actions" {
					f.Actions = plainActions(f.Actions)
				}
				e, err := f.Entry()
				if err != nil {
					t.Fatal(err)
				}
				ins := e.value()[valueHead:]
				if ins == "" {
					continue
				}
				if command == "parse-actions" {
					ins = ins[8:]
				}
				fmt.Fprintf(&in, "%x\n", ins)
				_, text, _ := strings.Cut(e.String(), ",actions=")
				want = append(want, "actions="+text)
			}
			for _, v := range bothVersions {
				compareAnswers(t, v, command, in.Bytes(), want)
			}
		})
	}
}

func plainActions(list []Action) []Action {
	var out []Action
	for _, a := range list {
		if _, ok := a.(instruction); !ok {
			out = append(out, a)
		}
	}
	return out
}

func compareAnswers(t *testing.T, v Version, command string, in []byte, want []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ovs-ofctl", command, v.String())
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ovs-ofctl %s: %v", command, err)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n\n")
	if len(got) != len(want) {
		t.Fatalf("%v: %d answers to %d lists", v, len(got), len(want))
	}
	bad := 0
	for i := range want {
		if got[i] != want[i] {
			if bad++; bad <= 10 {
				t.Errorf("%v:\n ours %s\ntheirs %s", v, want[i], got[i])
			}
		}
	}
	t.Logf("%v: %d lists through ovs-ofctl %s, %d differences", v, len(want), command, bad)
}

// What we install is what the switch dumps, byte for byte.
func TestDifferentialInstallDump(t *testing.T) {
	sw := newSwitch(t)
	s := seed(t)
	for _, v := range bothVersions {
		t.Run(v.String(), func(t *testing.T) {
			c := dial(t, sw, only(v))
			ctx := t.Context()
			var prepare []Message
			for i := uint32(1); i <= genIDs; i++ {
				prepare = append(prepare,
					MeterMod{Add, MeterDesc{ID: i, Flags: MeterPktps, Bands: []Band{{Rate: 1000}}}},
					GroupMod{Add, GroupDesc{ID: i, Type: GroupAll, Buckets: []Bucket{{Actions: []Action{Output(1)}}}}})
			}
			if err := c.Send(ctx, prepare); err != nil {
				t.Fatal(err)
			}
			g := newGen(s)
			flows, entries := randomFlows(t, g, flowCount(t))
			err := c.Commit(ctx, adds(entries))
			var be *BundleError
			if errors.As(err, &be) {
				for i, f := range be.Failures {
					if i < 10 {
						t.Errorf("%v: %s", f.Err, f.text())
					}
				}
			}
			if err != nil {
				t.Fatalf("the switch refused: %v", err)
			}
			want := make(map[Key]Entry, len(entries))
			text := make(map[Key]string, len(entries))
			for i, e := range entries {
				want[e.Key()] = e
				text[e.Key()] = flows[i].String()
			}
			bad, n := 0, 0
			var buf []byte
			err = c.DumpFlows(ctx, Filter{Table: AllTables}, func(st *FlowStat) error {
				n++
				var e Entry
				var found, same bool
				e, found, same, buf = st.Lookup(want, buf)
				if !same {
					if bad++; bad <= 10 {
						t.Errorf("found %v\n  sent %v %x\ndumped %v %x", found, e, e.s, st.Entry(), st.Entry().s)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n != len(entries) {
				t.Errorf("%d flows dumped, %d installed", n, len(entries))
			}
			t.Logf("%v: %d flows installed and dumped, %d differences", v, n, bad)
			if err := c.Send(ctx, []Message{
				deleteAll(t), MeterMod{Delete, MeterDesc{ID: AllMeters}}, GroupMod{Delete, GroupDesc{ID: AllGroups}},
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
