// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFollow(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	root := ""
	try := func(text string) (string, error) {
		t.Helper()
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err := follow(&out, page, root, 20*time.Second)
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
	two := "```console\n# x=host\n$ x=desk\n# echo $x\nhost\n$ echo $x\ndesk\n```\n"
	if _, err := try(two); err == nil {
		t.Error("two shells without another program")
	}
	root = "/bin/bash"
	if out, err := try(two); err != nil {
		t.Errorf("%v\n%s", err, out)
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
			if s.NotRun == "" {
				run++
			}
		}
		if run == 0 && name != "on-call" { // whose questions are asked by tests in e2e
			t.Errorf("%s has no command to run", name)
		}
	}
}
