// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"strings"
	"testing"
)

const sample = "# Page\n\n```console\n# one   # a remark\n# cat <<'EOF' >file\n# text\nEOF\n$ two \\\n    more\nout\n\nput\n```\n\n1. a list\n\n   <!-- status 1 -->\n\n" +
	"   ```console\n   # three\n   # four\n   …\n   ```\n\n```\n# plain\n```\n\n<!-- not run: no network -->\n```console\n# five\n```\n"

func TestSteps(t *testing.T) {
	got, err := Steps(sample)
	if err != nil {
		t.Fatal(err)
	}
	want := []Step{
		{Line: 4, Command: "one   # a remark", Root: true},
		{Line: 5, Command: "cat <<'EOF' >file\n# text\nEOF", Root: true},
		{Line: 8, Command: "two \\\n    more", Want: []string{"out", "", "put"}},
		{Line: 20, Command: "three", Root: true},
		{Line: 21, Command: "four", Root: true, Want: []string{"…"}, Status: 1},
		{Line: 31, Command: "five", Root: true, NotRun: "no network"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d steps: %+v", len(got), got)
	}
	for i, w := range want {
		g := got[i]
		if g.Line != w.Line || g.Command != w.Command || g.Root != w.Root || g.Status != w.Status || g.NotRun != w.NotRun || strings.Join(g.Want, "|") != strings.Join(w.Want, "|") {
			t.Errorf("step %d is %+v, want %+v", i, g, w)
		}
	}
	for _, bad := range []string{"```console\nout\n```\n", "```console\n# one\n", "```console\n# cat <<EOF\na\n```\n", "<!-- status x -->\n```console\n# one\n```\n"} {
		if _, err := Steps(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestMismatch(t *testing.T) {
	got := []string{"port 8b10f263-91aa is up after 0.4 s", "br-int", "  table 0: 23 added", "  table 60: 2 added", "5 rows would change"}
	for _, want := range []string{
		"port 15f4510b-36d9 is up after 12.0 s|br-int|table 0: 1 added|table 1: 1 added|1 rows would change",
		"port … is up …|…|5 rows would change", "…|br-int|…", "…|2 rows … change||",
	} {
		if line, ok := Mismatch(strings.Split(want, "|"), got); !ok {
			t.Errorf("%q does not match at %q", want, line)
		}
	}
	if line, ok := Mismatch([]string{"key SHA256:…"}, []string{"key SHA256:10y+6+hr"}); !ok {
		t.Errorf("a key that begins with a number does not match at %q", line)
	}
	for want, at := range map[string]string{
		"port … is down …|…":             "port … is down …",
		"…|5 rows would change|":         "",
		"…|5 rows would change|and":      "and",
		"port … is up …|br-int":          "  table 0: 23 added",
		"…|0 rows would change":          "0 rows would change",
		"br-int|…":                       "br-int",
		"…|br-tun|…":                     "br-tun",
		"…|table 60: 2 added|br-int|…":   "br-int",
		"…|nothing would change: … flow": "nothing would change: … flow",
	} {
		if line, ok := Mismatch(strings.Split(want, "|"), got); ok != (at == "") || line != at {
			t.Errorf("%q: ok %v at %q, want %q", want, ok, line, at)
		}
	}
}

func TestSays(t *testing.T) {
	const out = "NOT IN SYNC\n- the broker cannot be reached: refused\n  pulled   +4.0 s\n"
	for text, want := range map[string]bool{"NOT IN SYNC": true, "the broker … refused": true, "pulled +… s": true, "pulled +4.0 s": true, "pulled +12.5 s": false, "IN SYNC NOT": false, "broker … pulled": false} {
		if Says(out, text) != want {
			t.Errorf("Says(%q) is %v", text, !want)
		}
	}
}

func TestTable(t *testing.T) {
	const text = "# P\n\n## One\n\ntext\n\n| a | b |\n|---|---|\n| x | `y …` and `z` |\n| v | w |\n\n| no |\n\n## Two\n\n| a |\n|---|\n| last |\n"
	if got := fmt.Sprintf("%q", Table(text, "One")); got != "[[\"x\" \"`y …` and `z`\"] [\"v\" \"w\"]]" {
		t.Error(got)
	}
	if got := fmt.Sprintf("%q", Table(text, "Two")); got != `[["last"]]` {
		t.Error(got)
	}
	if got := Table(text, "Three"); got != nil {
		t.Error(got)
	}
	if got := fmt.Sprintf("%q", Quoted("`y …` and `z`")); got != `["y …" "z"]` {
		t.Error(got)
	}
}
