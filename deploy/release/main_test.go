// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const commit = "0123456789012345678901234567890123456789"

// The statement names every file with its hash, the commit, the compiler and the modules; twice it is the same.
func TestProvenance(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.deb": "b", "a.rpm": "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string, files ...string) []byte {
		out := filepath.Join(dir, name)
		args := []string{"-version", "1.0.0", "-commit", commit, "-epoch", "7", "-tool", "nfpm=v2", "-binary", os.Args[0], "-o", out}
		for _, f := range files {
			args = append(args, filepath.Join(dir, f))
		}
		if err := run(args); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	one, two := write("one", "b.deb", "a.rpm"), write("two", "a.rpm", "b.deb")
	if !bytes.Equal(one, two) {
		t.Errorf("not the same:\n%s\n%s", one, two)
	}
	var s Statement
	if err := json.Unmarshal(one, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Subject) != 2 || s.Subject[0].Name != "a.rpm" || s.Subject[0].Digest["sha256"] != "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" {
		t.Errorf("%+v", s.Subject)
	}
	b := s.Predicate.BuildDefinition
	if b.ResolvedDependencies[0].Digest["gitCommit"] != commit || !strings.HasPrefix(b.InternalParameters["go"], "go1.") || b.InternalParameters["nfpm"] != "v2" {
		t.Errorf("%+v", b)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"-version", "1", "-commit", "main", "-binary", os.Args[0], "-o", "x", os.Args[0]},
		{"-version", "1", "-commit", commit, "-binary", "none", "-o", "x", os.Args[0]},
		{"-version", "1", "-commit", commit, "-binary", os.Args[0], "-o", "x", "none"},
		{"-tool", "nfpm"},
	} {
		if err := run(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
