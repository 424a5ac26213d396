// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// TestCorpus diagnoses broken configurations. Each archive in testdata/broken
// holds files and, under the name "want", what must be reported: severity,
// place, kind and sentence, a line each. The text before the files says what the
// case is about; "args:" and "env:" lines in it give the command line and the
// environment (else the files are named in order).
func TestCorpus(t *testing.T) {
	paths, err := filepath.Glob("testdata/broken/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 50 {
		t.Errorf("only %d cases", len(paths))
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { runArchive(t, path) })
	}
}

func runArchive(t *testing.T, path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	about, files := splitArchive(string(data))
	dir := t.TempDir()
	var args []string
	want := ""
	for _, f := range files {
		name, text, _ := strings.Cut(f, " --\n")
		if name == "want" {
			want = text
			continue
		}
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config-file", name)
	}
	// The machine's own /etc must not take part.
	args = append(args, "--config-dir", t.TempDir())
	var env []string
	for line := range strings.SplitSeq(about, "\n") {
		if rest, ok := strings.CutPrefix(line, "args: "); ok {
			args = strings.Fields(strings.ReplaceAll(rest, "DIR", dir))
			if !strings.Contains(rest, "--config-dir") {
				args = append(args, "--config-dir", t.TempDir())
			}
		}
		if rest, ok := strings.CutPrefix(line, "env: "); ok {
			env = append(env, rest)
		}
	}
	have := strings.ReplaceAll(findings(t, args, env), dir+"/", "")
	if *update {
		before, _, _ := strings.Cut(string(data), "-- want --\n")
		if err := os.WriteFile(path, []byte(before+"-- want --\n"+have), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have == "" {
		t.Error("nothing was found wrong")
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// splitArchive reads the txtar format: each file begins with "-- name --".
func splitArchive(text string) (about string, files []string) {
	parts := strings.Split("\n"+text, "\n-- ")
	for _, p := range parts[1:] {
		files = append(files, p+"\n")
	}
	if len(files) > 0 {
		files[len(files)-1] = strings.TrimSuffix(files[len(files)-1], "\n")
	}
	return parts[0], files
}

// findings also holds Load to the verdict: it fails, or the gate complains, just
// when there is an error.
func findings(t *testing.T, args, env []string) string {
	t.Helper()
	report, err := Check(args, env)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Load(args, env)
	starts := err == nil && len(o.Unsupported()) == 0
	if starts != (report.Count(Fatal) == 0) {
		t.Errorf("Load says %v, Check says %v", err, report.Findings)
	}
	var b strings.Builder
	for _, f := range report.Findings {
		if f.Severity == Note || f.Option == "firewall_driver" && f.Kind == "advice" {
			continue
		}
		place := ""
		if f.Origin.Kind != config.FromDefault {
			place = f.Origin.String() + " "
		}
		fmt.Fprintf(&b, "%s %s%s: %s\n", f.Severity, place, f.Kind, f.Sentence)
	}
	return b.String()
}
