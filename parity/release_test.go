// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// turned is how many lines of all recordings, at all their checkpoints, each row of the table turns. Read a difference in review: a
// number that grows is a row that has become wider.
var turned = map[string]int{
	"announcements":          1018,
	"direct-from-bridges":    22,
	"in-band":                3126,
	"ipip-number":            1,
	"meter-key":              12,
	"multicast-flood":        2072,
	"multicast-reports":      2072,
	"multicast-unregistered": 1054,
	"nat-bypass":             332,
	"nat-empty":              150,
	"nat-jump":               304,
	"packet-rate-default":    1054,
	"packet-rate-meters":     12,
	"packet-rate-table":      4156,
	"permitted-types-in":     4,
	"rarp":                   185,
	"switching-priority":     1054,
}

// TestRelease29: rows turn the lines of the recordings that they are meant for, and no others.
func TestRelease29(t *testing.T) {
	a, err := LoadAccepted("accepted.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := LoadAll("testdata")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, r := range all {
		if r.Recorded.Release != "21" {
			t.Errorf("%s is of release %s", r.Name, r.Recorded.Release)
		}
		for _, s := range r.Stages {
			for _, line := range s.Want {
				if l, _ := a.later(line); l != nil {
					counts[l.ID]++
				}
			}
			now := a.Release29(s.Want)
			if diff := cmp.Diff(now, a.Release29(now)); diff != "" {
				t.Errorf("%s/%s: lines of 29 are turned again:\n%s", r.Name, s.Checkpoint, diff)
			}
		}
	}
	if diff := cmp.Diff(turned, counts); diff != "" {
		t.Errorf("lines that rows turn (- pinned, + found):\n%s", diff)
	}
	for _, l := range a.Later {
		if !strings.HasPrefix(l.Text, "Neutron 21 differs: ") && !strings.HasPrefix(l.Text, "See ") {
			t.Errorf("%s does not say how Neutron 21 differs: %s", l.ID, l.Text)
		}
		if l.Since < 22 || l.Since > 29 {
			t.Errorf("%s is since %d", l.ID, l.Since)
		}
	}
}

// TestRelease29IsRequired: a comparison wants the lines of 29 in the place of those of 21, and takes lines of 29 as they are.
func TestRelease29IsRequired(t *testing.T) {
	a, err := ParseAccepted(strings.NewReader(LaterSection + "\n\n" +
		"| id | since | Neutron 21 | Neutron 29 | what differs |\n|---|---|---|---|---|\n" +
		"| moved | 22 | `(hv\\d br-int table=)59( .*)` | `${1}58${2}` | Neutron 21 differs: … |\n" +
		"| more | 24 | `(hv\\d br-int table=71 .*)arp(.*)` | `${0}` `${1}rarp${2}` | Neutron 21 differs: … |\n"))
	if err != nil {
		t.Fatal(err)
	}
	old := NewSnapshot([]string{"hv1 br-int table=59 a", "hv1 br-int table=71 arp b", "hv1 br-int table=72 c"})
	later := NewSnapshot([]string{"hv1 br-int table=58 a", "hv1 br-int table=71 arp b", "hv1 br-int table=71 rarp b", "hv1 br-int table=72 c"})
	if diff := cmp.Diff(later[1:], a.Since(23, later.Select(func(line string) bool { return !strings.Contains(line, "58") && !strings.Contains(line, "rarp") }))); diff != "" {
		t.Errorf("lines of 23 as those of 29 (- wanted, + found):\n%s", diff)
	}
	if diff := cmp.Diff(old, a.Since(24, old)); diff != "" {
		t.Errorf("lines of 24 are those of 29 (- wanted, + found):\n%s", diff)
	}
	for _, want := range []Snapshot{old, later} {
		if d := Compare(want, later, a).Unexplained(); len(d) > 0 {
			t.Errorf("%v differs from 29: %v", want, d)
		}
	}
	if d := Compare(old, old, a).Unexplained(); len(d) != 3 { // 58 and rarp are missing, 59 is too much
		t.Errorf("an agent that is like 21: %v", d)
	}
	if d := Compare(old, old, nil).Differences; len(d) > 0 {
		t.Errorf("two agents of 21: %v", d)
	}
	for _, bad := range []string{"| a | 22 | `x` | `y` |", "| a | new | `x` | `y` | |", "| a | 22 | `(` | `y` | |"} {
		if _, err := ParseAccepted(strings.NewReader(LaterSection + "\n" + bad + "\n")); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
