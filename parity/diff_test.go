// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = `# Compatibility
| id | this table | is | another | one |
|---|---|---|---|---|

## Accepted differences in flows and rows

Text.

| id | where (regexp on the normalised line) | Python | Patchbay | reason |
|---|---|---|---|---|
| controller | ` + "`^one/first - hv\\d+ Bridge \\S+ controller=`" + ` | connects to the agent | none | one connection less |
| either | ` + "`br-int (a\\|b)`" + ` | a | b | shows how a bar is written |

## Next
| x | ( | no | regular | expression |
`

func TestAcceptedDifferencesExplain(t *testing.T) {
	a, err := ParseAccepted(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	if len(a.List) != 2 || a.List[0].Reason != "one connection less" {
		t.Fatalf("read %+v", a.List)
	}
	want := NewSnapshot([]string{"hv1 Bridge br-int controller=tcp:127.0.0.1:6633", "hv1 br-int x actions=drop", "hv1 br-int same"})
	have := NewSnapshot([]string{"hv1 br-int same", "hv1 br-int x actions=NORMAL"})
	if d := Compare(want, have, a.At("one", "second")); len(d.Unexplained()) != 3 {
		t.Errorf("accepted elsewhere: %v", d.Differences)
	}
	d := Compare(want, have, a.At("one", "first"))
	if d.Compared != 4 || len(d.Differences) != 3 {
		t.Errorf("compared %d lines, %v", d.Compared, d.Differences)
	}
	var b strings.Builder
	d.Write(&b)
	const text = "    hv1 br-int\n      - hv1 br-int x actions=drop\n      + hv1 br-int x actions=NORMAL\n"
	if diff := cmp.Diff(text, b.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]Count{"controller": {Missing: 1}}, d.Counts()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"controller", "either"}, a.IDs()); diff != "" {
		t.Error(diff)
	}
}

func TestBadAcceptedDifferencesAreReported(t *testing.T) {
	for _, row := range []string{"| a | `(` | b | c | d |", "| a | b |"} {
		if _, err := ParseAccepted(strings.NewReader(AcceptedSection + "\n" + row + "\n")); err == nil {
			t.Errorf("%s is accepted", row)
		}
	}
}

func TestSnapshots(t *testing.T) {
	s := NewSnapshot([]string{"hv2 b", "hv1 a", "hv1 a", "api port A"})
	if diff := cmp.Diff(Snapshot{"api port A", "hv1 a", "hv2 b"}, s); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Snapshot{"a"}, s.Of("hv1")); diff != "" {
		t.Error(diff)
	}
	if got := s.Minus(Snapshot{"hv1 a"}).Plus(Snapshot{"hv1 c"}); !slices.Equal(got, Snapshot{"api port A", "hv1 c", "hv2 b"}) {
		t.Errorf("got %v", got)
	}
}

func TestChangedLinesExplainOnlyTogether(t *testing.T) {
	const table = ChangedSection + "\n| id | Python | Patchbay | reason |\n|---|---|---|---|\n" +
		"| mac | `(hv\\d table=71 )(target=\\S+)` | `$1src=[0-9a-f]+,$2` | bound |\n" +
		"| gone | `hv\\d table=60` | none | not needed |\n"
	a, err := ParseAccepted(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	python := NewSnapshot([]string{"hv1 table=71 target=1.2", "hv1 table=60", "hv1 same"})
	for _, c := range []struct {
		have string
		want []string
	}{
		{"hv1 table=71 src=a,target=1.2", nil},
		{"hv1 table=71 src=a,target=1x2", []string{"- hv1 table=71 target=1.2", "+ hv1 table=71 src=a,target=1x2"}}, // literally
		{"hv1 same", []string{"- hv1 table=71 target=1.2"}},                                                         // lost
	} {
		var got []string
		diff := Compare(python, NewSnapshot([]string{c.have, "hv1 same"}), a.At("s", "c"))
		if diff.Counts()["gone"] != (Count{Missing: 1}) || c.want == nil && diff.Counts()["mac"] != (Count{1, 1}) {
			t.Errorf("%s: counted %v", c.have, diff.Counts())
		}
		for _, d := range diff.Unexplained() {
			got = append(got, d.String())
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.have, diff)
		}
	}
	for _, row := range []string{"| a | `(` | `b` | c |", "| a | `b` | `(` | c |", "| a | b | c |"} {
		if _, err := ParseAccepted(strings.NewReader(ChangedSection + "\n" + row + "\n")); err == nil {
			t.Errorf("%s is accepted", row)
		}
	}
}

// TestAcceptedForLaterReleases: a row about later releases explains nothing of earlier ones, and is not pinned.
func TestAcceptedForLaterReleases(t *testing.T) {
	a, err := ParseAccepted(strings.NewReader(AcceptedSection + "\n| all | `- hv1 call a$` | | | |\n" +
		ReleaseSection + "\n| id | since | where |\n| later | 26 | `- hv1 call b$` | | | |\n" +
		LaterSection + "\n| moved | 28 | `hv1 br-tun old` | `hv1 br-tun new` | Neutron 21 differs: … |\n"))
	if err != nil {
		t.Fatal(err)
	}
	for release, unexplained := range map[int]int{21: 1, 25: 1, 26: 0, 29: 0} {
		d := Compare(Snapshot{"hv1 call a", "hv1 call b"}, nil, a.For(release).At("one", "first"))
		if got := len(d.Unexplained()); got != unexplained {
			t.Errorf("release %d: %d lines are not explained, want %d", release, got, unexplained)
		}
	}
	// A row about later releases goes first.
	if a, err = ParseAccepted(strings.NewReader(AcceptedSection + "\n| all | `- hv1 call` | | | |\n" + ReleaseSection + "\n| later | 26 | `- hv1 call b$` | | | |\n" +
		LaterSection + "\n| moved | 28 | `hv1 br-tun old` | `hv1 br-tun new` | Neutron 21 differs: … |\n")); err != nil {
		t.Fatal(err)
	}
	for release, want := range map[int]string{21: "all all", 26: "all later"} {
		d := Compare(Snapshot{"hv1 call a", "hv1 call b"}, nil, a.For(release).At("one", "first"))
		if got := d.Differences[0].Accepted + " " + d.Differences[1].Accepted; got != want {
			t.Errorf("release %d: explained by %q, want %q", release, got, want)
		}
	}
	if diff := cmp.Diff([]string{"all"}, a.IDs()); diff != "" || !a.Recorded("all") || a.Recorded("later") {
		t.Errorf("pinned: %s", diff)
	}
	lines := Snapshot{"hv1 br-int table=58 x", "hv1 br-tun old"} // of 22 or later
	for release, want := range map[int]string{0: "old", 26: "new", 28: "old"} {
		if got := a.For(release).Release29(lines); got[1] != "hv1 br-tun "+want {
			t.Errorf("lines of %d as those of 29: %v", release, got)
		}
	}
	if _, err := ParseAccepted(strings.NewReader(ReleaseSection + "\n| a | soon | `x` | | | |\n")); err == nil {
		t.Error("a row without a release is read")
	}
}
