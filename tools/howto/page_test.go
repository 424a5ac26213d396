// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const sample = "# Page\n\n```console\n# one   # a remark\n# cat <<'EOF' >file\n# text\nEOF\n$ two \\\n    more\nout\n\nput\n```\n\n1. a list\n\n   <!-- status 1 -->\n\n" +
	"   ```console\n   # three\n   # four\n   …\n   ```\n\n```\n# plain\n```\n\n<!-- not run: no network -->\n```console\n# five\n```\n"

func TestSteps(t *testing.T) {
	got, err := steps(sample)
	if err != nil {
		t.Fatal(err)
	}
	want := []step{
		{line: 4, command: "one   # a remark"},
		{line: 5, command: "cat <<'EOF' >file\n# text\nEOF"},
		{line: 8, command: "two \\\n    more", want: []string{"out", "", "put"}},
		{line: 20, command: "three"},
		{line: 21, command: "four", want: []string{"…"}, status: 1},
		{line: 31, command: "five", notRun: "no network"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d steps: %+v", len(got), got)
	}
	for i, w := range want {
		g := got[i]
		if g.line != w.line || g.command != w.command || g.status != w.status || g.notRun != w.notRun || strings.Join(g.want, "|") != strings.Join(w.want, "|") {
			t.Errorf("step %d is %+v, want %+v", i, g, w)
		}
	}
	for _, bad := range []string{"```console\nout\n```\n", "```console\n# one\n", "```console\n# cat <<EOF\na\n```\n", "<!-- status x -->\n```console\n# one\n```\n"} {
		if _, err := steps(bad); err == nil {
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
		if line, ok := mismatch(strings.Split(want, "|"), got); !ok {
			t.Errorf("%q does not match at %q", want, line)
		}
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
		if line, ok := mismatch(strings.Split(want, "|"), got); ok != (at == "") || line != at {
			t.Errorf("%q: ok %v at %q, want %q", want, ok, line, at)
		}
	}
}

func TestFollow(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	try := func(text string) (string, error) {
		t.Helper()
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err := follow(&out, page, 20*time.Second)
		return out.String(), err
	}
	out, err := try("```console\n$ cd /; x=word\n$ pwd; echo $x >&2   # a remark\n/\nword\n```\n<!-- status 3 -->\n```console\n$ (exit 3)\n```\n<!-- not run: said -->\n```console\n$ false\n```\n")
	if err != nil || !strings.Contains(out, "page.md: 3 commands in ") || !strings.Contains(out, "the output of 1 compared, 1 not run") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, bad := range []string{"$ false", "$ echo a\nb", "$ exit 0", "$ printf x; cat\ny"} {
		if out, err := try("```console\n" + bad + "\n```\n"); err == nil {
			t.Errorf("%s passes\n%s", bad, out)
		}
	}
	if _, err := try("nothing\n"); err == nil {
		t.Error("a page without a command passes")
	}
}

// TestPages: the pages that `make how-to` follows can be read, and what is not run has a reason.
func TestPages(t *testing.T) {
	script, err := os.ReadFile("../../deploy/test/how-to")
	if err != nil {
		t.Fatal(err)
	}
	_, names, _ := strings.Cut(string(script), "pages=(")
	names, _, _ = strings.Cut(names, ")")
	if len(strings.Fields(names)) < 2 {
		t.Fatalf("no pages in %q", names)
	}
	for name := range strings.FieldsSeq(names) {
		files, err := filepath.Glob("../../docs/*/" + name + ".md")
		if err != nil || len(files) != 1 {
			t.Fatalf("%s is in %v, %v", name, files, err)
		}
		all, err := read(files[0])
		if err != nil {
			t.Error(err)
		}
		run := 0
		for _, s := range all {
			if s.notRun == "" {
				run++
			}
		}
		if run == 0 {
			t.Errorf("%s has no command to run", name)
		}
	}
}
