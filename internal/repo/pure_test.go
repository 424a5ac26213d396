// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// pure are the packages that decide. They are handed the time and what is random, and nothing of them waits.
var pure = []string{
	"internal/core", "internal/world", "internal/pull", "internal/report", "internal/pace", "internal/gate", "internal/zones", "internal/dataplane",
	"internal/delta", "internal/pipeline", "internal/hybrid", "internal/extension", "internal/qos", "internal/trunk", "internal/dvr",
	"internal/fdb", "internal/metadata",
}

// carriesOut are files of these packages that a runner calls.
var carriesOut = []string{"internal/dataplane/run.go"}

// seeded are the names of math/rand/v2 that have no state of the program behind them.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Source", "Zipf"}

// clock are the names of package time that read the clock or wait for it.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// impure returns what a file does that a decision must not depend on.
func impure(f *ast.File) (found []string) {
	names := map[string]string{} // of imports, by the name they have in the file
	for _, spec := range f.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		name := map[string]string{"time": "time", "math/rand/v2": "rand", "math/rand": "rand"}[path]
		if spec.Name != nil && name != "" {
			name = spec.Name.Name
		}
		if name != "" {
			names[name] = path
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, "go")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			switch {
			case n.Sel.Name == "Go":
				found = append(found, "Go")
			case !ok || x.Obj != nil:
			case names[x.Name] == "time" && slices.Contains(clock, n.Sel.Name):
				found = append(found, "time."+n.Sel.Name)
			default:
				if path := names[x.Name]; path != "" && path != "time" && !slices.Contains(seeded, n.Sel.Name) {
					found = append(found, "rand."+n.Sel.Name)
				}
			}
		}
		return true
	})
	return found
}

// Decisions read no clock, start nothing and draw from no random source but the one they are given.
func TestDecisionsArePure(t *testing.T) {
	packages := map[string]bool{}
	for _, s := range sources(t) {
		if !slices.Contains(pure, s.dir) || slices.Contains(carriesOut, s.path) {
			continue
		}
		packages[s.dir] = true
		for _, what := range impure(s.syntax) {
			t.Errorf("%s uses %s: a decision is given the time and a random source, and package runner does what takes time", s.path, what)
		}
	}
	if len(packages) != len(pure) {
		t.Errorf("looked at %d of %d packages", len(packages), len(pure))
	}
}

func TestImpure(t *testing.T) {
	const text = `package p
import ("math/rand/v2"; clock "time")
var now = clock.Now
func f(r *rand.Rand, g group) { go f(r, g); g.Go(nil); _ = clock.Since(now()); _ = rand.IntN(2); _ = r.IntN(2); _ = rand.New(rand.NewPCG(1, 2)); _ = clock.Second }`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := impure(f), []string{"time.Now", "go", "Go", "time.Since", "rand.IntN"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
