// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pathSets are files that many items depend on. An entry that begins with ! leaves files out.
var pathSets = map[string][]string{
	// product is what is in the binary.
	"product": {"cmd/patchbay", "internal", "openflow", "oslo", "go.mod", "!_test.go", "!testdata"},
	// tests is the product with its unit tests.
	"tests": {"cmd/patchbay", "internal", "openflow", "oslo", "go.mod"},
	// cloud is the lab with all that it starts.
	"cloud": {"lab", "cmd/lab", "!_test.go"},
	// all is everything but what verify itself writes.
	"all": {"bench", "cmd", "deploy", "e2e", "internal", "lab", "openflow", "oslo", "parity", "tools", "go.mod", "Makefile", ".ci/run"},
}

// files are those of the checkout, committed or not, with their contents' digests as they are asked for.
type files struct {
	dir   string
	names []string
	sums  map[string]string
}

func listFiles(dir string) (*files, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	f := &files{dir: dir, names: strings.Split(strings.TrimRight(string(out), "\x00"), "\x00"), sums: map[string]string{}}
	slices.Sort(f.names)
	f.names = slices.Compact(f.names)
	return f, nil
}

// digest is one over the names and contents of all files that the paths name. Paths that name none are an error, since a
// result would otherwise never grow old.
func (f *files) digest(paths []string) (string, error) {
	var in []string
	for _, path := range paths {
		parts, isSet := pathSets[path]
		if !isSet {
			parts = []string{path}
		}
		n := len(in)
		for _, name := range f.names {
			// Failures that rapid wrote down are no code.
			if named(name, parts) && !strings.Contains(name, "/testdata/rapid/") {
				in = append(in, name)
			}
		}
		if len(in) == n {
			return "", fmt.Errorf("no file is in %s", path)
		}
	}
	slices.Sort(in)
	all := sha256.New()
	for _, name := range slices.Compact(in) {
		content, err := f.sum(name)
		if errors.Is(err, fs.ErrNotExist) { // deleted, and not committed yet
			continue
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s %s\n", content, name)
	}
	return hex.EncodeToString(all.Sum(nil))[:16], nil
}

func named(file string, parts []string) bool {
	in := false
	for _, p := range parts {
		if without, not := strings.CutPrefix(p, "!"); not {
			if strings.HasSuffix(file, without) || strings.Contains(file, "/"+without+"/") {
				return false
			}
		} else if file == p || strings.HasPrefix(file, p+"/") {
			in = true
		}
	}
	return in
}

func (f *files) sum(name string) (string, error) {
	if s, ok := f.sums[name]; ok {
		return s, nil
	}
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		return "", err
	}
	if name == readmeFile { // its table is made of the results, and nothing depends on it
		before, rest, _ := strings.Cut(string(text), beginMark)
		_, after, _ := strings.Cut(rest, endMark)
		text = []byte(before + after)
	}
	if strings.HasSuffix(name, ".go") {
		text = code(text)
	}
	s := sha256.Sum256(text)
	f.sums[name] = hex.EncodeToString(s[:])
	return f.sums[name], nil
}

// directive is a comment that the compiler, the linter or the tests read.
var directive = regexp.MustCompile(`^//([a-z]|\s*(Unordered o|O)utput:)`)

// code is a Go file without its comments but for directives: no result grows old because something is said better.
func code(text []byte) []byte {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", set.Base(), len(text)), text, nil, scanner.ScanComments)
	var out []byte
	for {
		_, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return out
		case tok == token.COMMENT && !directive.MatchString(lit):
			continue
		case tok == token.SEMICOLON: // written, or the end of a line
			lit = ""
		}
		out = append(out, tok.String()+" "+lit+"\n"...)
	}
}
