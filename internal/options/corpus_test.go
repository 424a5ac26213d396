// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

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
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var args []string
	var want *txtar.File
	for i, f := range archive.Files {
		if f.Name == "want" {
			want = &archive.Files[i]
			continue
		}
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config-file", name)
	}
	if want == nil {
		t.Fatalf("%s does not say what is wanted", path)
	}
	// The machine's own /etc must not take part.
	args = append(args, "--config-dir", t.TempDir())
	var env []string
	for line := range strings.SplitSeq(string(archive.Comment), "\n") {
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
		want.Data = []byte(have)
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have == "" {
		t.Error("nothing was found wrong")
	}
	if diff := cmp.Diff(string(want.Data), have); diff != "" {
		t.Error(diff)
	}
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
