// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated table of docs/reference/differences.md")

const (
	differencesPage  = "../docs/reference/differences.md"
	differencesBegin = "<!-- This table is generated: go test ./parity -run TestDifferencesPage -update -->\n"
	differencesEnd   = "<!-- end of the generated table -->\n"
)

// differencesTable returns the accepted differences in words, without the expressions that only the tests need.
func differencesTable(a *Accepted) string {
	var b strings.Builder
	b.WriteString("| id | Python agent | Patchbay | why |\n|---|---|---|---|\n")
	for _, d := range a.List {
		python := d.Python
		if d.Since > 0 {
			python = fmt.Sprintf("since %d: %s", d.Since, python)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", d.ID, python, d.Patchbay, d.Reason)
	}
	b.WriteString("\nThese flows close holes of the Python agent's:\n\n| id | hole, and what Patchbay does |\n|---|---|\n")
	for _, c := range a.Changed {
		fmt.Fprintf(&b, "| %s | %s |\n", c.ID, c.Reason)
	}
	b.WriteString("\nThe flows and rows are those of the Python agent of Neutron 29. Earlier releases differ:\n\n| id | 29 has it since | what differs |\n|---|---|---|\n")
	for _, l := range a.Later {
		fmt.Fprintf(&b, "| %s | %d | %s |\n", l.ID, l.Since, l.Text)
	}
	return strings.ReplaceAll(b.String(), "](../docs/", "](../")
}

// TestDifferencesPage: operators read the same differences as the tests.
func TestDifferencesPage(t *testing.T) {
	a, err := LoadAccepted("accepted.md")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(differencesPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), differencesBegin)
	have, after, ended := strings.Cut(rest, differencesEnd)
	if !found || !ended {
		t.Fatalf("%s lacks the marks of its table", differencesPage)
	}
	want := differencesTable(a)
	if *update {
		if err := os.WriteFile(differencesPage, []byte(before+differencesBegin+want+differencesEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("run go test ./parity -run TestDifferencesPage -update\n%s", diff)
	}
}
