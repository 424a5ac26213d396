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
	if diff := cmp.Diff([]string{"either"}, a.Unused()); diff != "" {
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
