// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPinsReadBack(t *testing.T) {
	p := NewPins()
	p.Totals["recordings"] = 2
	at := Place{"one", "two bindings", "hv1"}
	p.Set(at, map[string]Count{"a": {Missing: 1}, "b": {Added: 2}, "c": {Missing: 3, Added: 4}})
	p.Set(Place{"one", "after", "hv2"}, map[string]Count{"a": {Added: 1}})
	p.Set(Place{"one", "after", "hv1"}, nil)
	file := filepath.Join(t.TempDir(), PinsFile)
	if err := p.Save(file); err != nil {
		t.Fatal(err)
	}
	got, err := LoadPins(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got, cmp.AllowUnexported(Pins{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]Count{"a": {1, 1}, "b": {0, 2}, "c": {3, 4}}, got.Rules()); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"one", "one: a +1", "one/x hv1: a", "one/x hv1: a +b", "total x: y", "one/x hv1: a +1\none/x hv1: a +1"} {
		if err := os.WriteFile(file, []byte(bad+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadPins(file); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func TestPinsFindOtherCounts(t *testing.T) {
	p := NewPins()
	at := Place{"one", "plugged", "hv1"}
	p.Set(at, map[string]Count{"a": {Missing: 2, Added: 2}})
	for _, c := range []struct {
		counts         map[string]Count
		exactly, fewer int // complaints
	}{
		{map[string]Count{"a": {2, 2}}, 0, 0},
		{map[string]Count{"a": {2, 1}}, 1, 0},
		{map[string]Count{"a": {1, 3}}, 1, 1},
		{map[string]Count{}, 1, 0},
		{map[string]Count{"a": {2, 2}, "b": {0, 1}}, 1, 1},
	} {
		if got := p.Exactly(at, c.counts); len(got) != c.exactly {
			t.Errorf("%v exactly: %v", c.counts, got)
		}
		if got := p.AtMost(at, c.counts); len(got) != c.fewer {
			t.Errorf("%v at most: %v", c.counts, got)
		}
	}
	if got := p.AtMost(Place{"one", "after", "hv1"}, map[string]Count{"a": {1, 0}}); len(got) != 1 {
		t.Errorf("elsewhere: %v", got)
	}
}

// TestReplace: scenarios that are played again have the new counts, others keep theirs.
func TestReplace(t *testing.T) {
	p, by := NewPins(), NewPins()
	p.Set(Place{"one", "plugged", "hv1"}, map[string]Count{"a": {Missing: 2}})
	p.Set(Place{"one", "after", "hv1"}, map[string]Count{"a": {Missing: 5}})
	p.Set(Place{"other", "plugged", "hv1"}, map[string]Count{"b": {Added: 1}})
	p.Totals["other"] = 1
	by.Set(Place{"one", "plugged", "hv1"}, map[string]Count{"a": {Missing: 1, Added: 2}, "c": {Added: 1}})
	by.Set(Place{"failed", "plugged", "hv1"}, map[string]Count{"a": {Added: 9}})
	p.Replace([]string{"one", "quiet"}, by)
	if diff := cmp.Diff(map[string]int{"one": 4, "other": 1, "quiet": 0}, p.Totals); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]Count{"a": {1, 2}, "b": {0, 1}, "c": {0, 1}}, p.Rules()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, p.RuleNames()); diff != "" {
		t.Error(diff)
	}
}

// TestLaterIsPinned holds the pins of later releases against the rules: each rule that explains something is written down, for that release.
func TestLaterIsPinned(t *testing.T) {
	a, err := LoadAccepted("accepted.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("..", "verification", "matrix", "explained-*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("pins of later releases: %v, %v", files, err)
	}
	for _, file := range files {
		pins, err := LoadPins(file)
		if err != nil {
			t.Fatal(err)
		}
		release, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "explained-"), ".txt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range pins.RuleNames() {
			if i := slices.IndexFunc(a.List, func(d *AcceptedDifference) bool { return d.ID == id }); i < 0 || a.List[i].Since == 0 || a.List[i].Since > release {
				t.Errorf("%s: there is no rule %s for %d", file, id, release)
			}
		}
		sums := map[string]int{}
		for name := range pins.Totals {
			sums[name] = 0
		}
		for _, at := range pins.Places() {
			for _, c := range pins.At(at) {
				sums[at.Scenario] += c.Missing + c.Added
			}
		}
		if diff := cmp.Diff(pins.Totals, sums); diff != "" {
			t.Errorf("%s: totals, and what the places add up to: %s", file, diff)
		}
	}
}

// TestAcceptedIsPinned holds the rules of parity/accepted.md against the pins: a rule that explains nothing is not needed, and
// one that is not written down has no reason. Every place is one of a recording.
func TestAcceptedIsPinned(t *testing.T) {
	a, err := LoadAccepted("accepted.md")
	if err != nil {
		t.Fatal(err)
	}
	pins, err := LoadPins(filepath.Join("testdata", PinsFile))
	if err != nil {
		t.Fatal(err)
	}
	all, err := LoadAll("testdata")
	if err != nil {
		t.Fatal(err)
	}
	if want := pins.Totals["recordings"]; len(all) != want {
		t.Errorf("%d recordings; %d are pinned in testdata/%s: was one deleted?", len(all), want, PinsFile)
	}
	used, ids := pins.Rules(), a.IDs()
	for _, id := range ids {
		if _, ok := used[id]; !ok {
			t.Errorf("the accepted difference %s explains nothing: take it out of parity/accepted.md", id)
		}
	}
	for id := range used {
		if !slices.Contains(ids, id) {
			t.Errorf("%s is pinned, and parity/accepted.md does not have it", id)
		}
	}
	known := map[Place]bool{}
	for _, r := range all {
		for _, s := range r.Stages {
			for _, host := range r.Hosts {
				known[Place{r.Name, s.Checkpoint, host}] = true
			}
		}
	}
	for _, at := range pins.Places() {
		if !known[at] {
			t.Errorf("%s is pinned, and no recording has it", at)
		}
	}
	if len(a.IDs()) != len(slices.Compact(slices.Sorted(slices.Values(ids)))) {
		t.Errorf("two accepted differences have the same id: %s", strings.Join(ids, " "))
	}
}
