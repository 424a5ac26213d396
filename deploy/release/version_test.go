// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestVersion runs deploy/version in a tree as it comes to a release and goes on after it, and in the sources of one.
func TestVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, err := os.ReadFile("../version")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "deploy"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
			"GIT_COMMITTER_DATE=2026-11-15T04:12:33Z", "GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@example.org", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.org")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	expect := func(when, want string) {
		t.Helper()
		if have := run("deploy/version"); !regexp.MustCompile("^" + want + "\n$").MatchString(have) {
			t.Errorf("%s the version is %q, want %s", when, have, want)
		}
	}
	commit := func() { run("git", "add", "."); run("git", "commit", "--quiet", "-m", "x") }

	write("deploy/version", string(script))
	write("CHANGELOG.md", "# Changes\n\n## Unreleased\n")
	expect("without git or a release", `0`)
	run("git", "init", "--quiet")
	commit()
	expect("before the first release", `0~git20261115041233\.[0-9a-f]{8}`)
	write("CHANGELOG.md", "# Changes\n\n## Unreleased\n\n## 1.2.0 - 2026-11-15\n\n## 1.1.9 - 2026-11-14\n")
	expect("with a change", `1\.2\.0\+git20261115041233\.[0-9a-f]{8}\.dirty`)
	commit()
	expect("without tags", `1\.2\.0\+git20261115041233\.[0-9a-f]{8}`)
	run("git", "tag", "v1.2.0")
	expect("at a tag", `1\.2\.0`)
	write("new", "")
	commit()
	expect("after a tag", `1\.2\.0\+1\.g[0-9a-f]+`)
	if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
		t.Fatal(err)
	}
	expect("in the sources", `1\.2\.0`)
}
