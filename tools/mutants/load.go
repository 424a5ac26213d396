// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// mutants is everything of one run.
type mutants struct {
	o       options
	root    string
	dir     string // state for these sources
	all     []listed
	packs   []*pack
	leftOut map[string]int
	overlay string
	bins    map[string]*program // by import path

	mu             sync.Mutex
	results        map[string]result
	log            *os.File // results, one a line
	controls       int
	controlsFailed int
}

func load(ctx context.Context, o options) (*mutants, error) {
	out, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	if err != nil {
		return nil, err
	}
	module, root, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	m := &mutants{o: o, root: root, bins: map[string]*program{}, results: map[string]result{}}
	hash, err := treeHash(root)
	if err != nil {
		return nil, err
	}
	m.dir = filepath.Join(o.state, hash)
	if !filepath.IsAbs(m.dir) {
		m.dir = filepath.Join(root, m.dir)
	}
	out, err = goCommand(ctx, root, "list", "-export", "-deps", "-test=false",
		"-json=ImportPath,Name,Dir,Export,Standard,GoFiles,TestGoFiles,XTestGoFiles,Deps,TestImports,XTestImports", "./...", "os", "strconv", "sync/atomic")
	if err != nil {
		return nil, err
	}
	if m.all, err = decodeListed(bytes.NewReader(out)); err != nil {
		return nil, err
	}
	var wanted []string
	for name := range strings.SplitSeq(o.packages, ",") {
		wanted = append(wanted, module+"/"+strings.TrimSpace(name))
	}
	if m.packs, m.leftOut, err = mutations(root, wanted, m.all); err != nil {
		return nil, err
	}
	return m, nil
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args[:min(len(args), 2)], " "), err, stderr.String())
	}
	return out, nil
}

// treeHash names what results depend on: all files but documents and what runs leave behind.
func treeHash(root string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel == ".git" || rel == "bin" || rel == "docs" || rel == "verification" {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasSuffix(rel, ".md") || strings.HasPrefix(rel, ".") || rel == "tools/mutants/survivors.txt" {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only read
		fmt.Fprintf(h, "%s\x00", rel)
		_, err = io.Copy(h, f)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:8]), err
}

// points are those of all packages.
func (m *mutants) points() []*point {
	var all []*point
	for _, k := range m.packs {
		for _, s := range k.files {
			for _, w := range s.wraps {
				if !w.shared {
					all = append(all, w.points...)
				}
			}
		}
	}
	return all
}

// open makes the state directory, takes over what an earlier call left, and writes the overlay.
func (m *mutants) open() error {
	parent := filepath.Dir(m.dir)
	if err := os.MkdirAll(filepath.Join(m.dir, "src"), 0o755); err != nil { //nolint:gosec // build output
		return err
	}
	others, err := filepath.Glob(filepath.Join(parent, "*"))
	if err != nil {
		return err
	}
	for _, old := range others {
		if old == m.dir {
			continue
		}
		if m.o.keep {
			if err := m.readResults(filepath.Join(old, "results"), func(r result) bool { return r.Verdict == killed || r.Verdict == timeout }); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	if err := m.readResults(filepath.Join(m.dir, "results"), nil); err != nil {
		return err
	}
	if m.log, err = os.Create(filepath.Join(m.dir, "results")); err != nil {
		return err
	}
	for _, r := range m.results {
		if err := m.write(r); err != nil {
			return err
		}
	}
	last := 1
	for _, p := range m.points() {
		last = max(last, p.ID+1)
	}
	replace := map[string]string{}
	put := func(path string, text []byte) error {
		to := filepath.Join(m.dir, "src", strings.ReplaceAll(strings.TrimPrefix(path, m.root+"/"), "/", "_")+".txt") // not .go: ./... would find it
		replace[path] = to
		return os.WriteFile(to, text, 0o644) //nolint:gosec // build output
	}
	for _, k := range m.packs {
		for _, s := range k.files {
			if err := put(s.path, s.render()); err != nil {
				return err
			}
		}
		if err := put(filepath.Join(k.dir, "mutant.go"), fmt.Appendf(nil, helpers, k.name, last)); err != nil {
			return err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	m.overlay = filepath.Join(m.dir, "overlay.json")
	return os.WriteFile(m.overlay, text, 0o644) //nolint:gosec // build output
}

func (m *mutants) readResults(path string, keep func(result) bool) error {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		var r result
		if json.Unmarshal(line, &r) != nil {
			continue // the end of a file that was cut
		}
		if keep == nil || keep(r) {
			m.results[r.Key] = r
		}
	}
	return nil
}

func (m *mutants) write(r result) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = m.log.Write(append(text, '\n'))
	return err
}

// testing are the packages with tests that have the package in them; the package itself is not among them.
func (m *mutants) testing(path string) []string {
	deps := map[string][]string{}
	for _, p := range m.all {
		deps[p.ImportPath] = p.Deps
	}
	var users []string
	for _, p := range m.all {
		if p.Standard || p.ImportPath == path || len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 || !strings.HasPrefix(p.Dir, m.root) {
			continue
		}
		uses := slices.Contains(p.Deps, path)
		for _, i := range slices.Concat(p.TestImports, p.XTestImports) {
			uses = uses || i == path || slices.Contains(deps[i], path)
		}
		if uses {
			users = append(users, p.ImportPath)
		}
	}
	return users
}
