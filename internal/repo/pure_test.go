// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure are the packages that decide, and every extension. They are handed the time and what is random, and nothing of them waits. Not among them are the
// packages that connect (ovsdb, conntrack, resolver, metaproxy and the like), those that carry out or keep time (runner, agent, tape, plan), and iptables, which
// runs programs besides what it decides.
var pure = []string{
	"internal/core", "internal/world", "internal/pull", "internal/report", "internal/pace", "internal/gate", "internal/zones", "internal/dataplane",
	"internal/delta", "internal/pipeline", "internal/hybrid", "internal/extension", "internal/qos", "internal/trunk", "internal/dvr",
	"internal/fdb", "internal/metadata", "internal/dhcp", "internal/localip", "internal/grouplog", "internal/dnsforward", "internal/mirror",
}

// carriesOut are files of these packages that a runner calls.
var carriesOut = []string{"internal/dataplane/run.go"}

// seeded are the names of math/rand/v2 that have no state of the program behind them.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Source", "Zipf"}

// clock are the names of package time that read the clock or wait for it.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// outside are packages that do I/O, or draw what is random.
var outside = []string{"os", "os/exec", "os/signal", "net/http", "syscall", "crypto/rand", "golang.org/x/sys/unix"}

// network is what names of package net begin with that do I/O; others are types.
var network = []string{"Dial", "Listen", "Lookup", "Interface", "Resolve", "File"}

// impure returns what a file does that a decision must not depend on.
func impure(f *ast.File) (found []string) {
	names := map[string]string{} // of imports, by the name they have in the file
	for _, spec := range f.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if slices.Contains(outside, path) {
			found = append(found, path)
		}
		name := map[string]string{"time": "time", "net": "net", "math/rand/v2": "rand", "math/rand": "rand"}[path]
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
			case names[x.Name] == "net" && slices.ContainsFunc(network, func(s string) bool { return strings.HasPrefix(n.Sel.Name, s) }):
				found = append(found, "net."+n.Sel.Name)
			default:
				if path := names[x.Name]; strings.HasPrefix(path, "math/rand") && !slices.Contains(seeded, n.Sel.Name) {
					found = append(found, "rand."+n.Sel.Name)
				}
			}
		}
		return true
	})
	return found
}

// Decisions read no clock, start nothing, do no I/O and draw from no random source but the one they are given.
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

// extensionsFile imports every extension, besides packages that are none.
const extensionsFile = "cmd/patchbay/extensions.go"

// Every extension is held to be pure.
func TestExtensionsArePure(t *testing.T) {
	others := []string{"internal/extension", "internal/neutron", "internal/options"}
	looked := 0
	for _, s := range sources(t) {
		if s.path != extensionsFile {
			continue
		}
		for _, spec := range s.syntax.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			dir, ok := strings.CutPrefix(path, module)
			if !ok || slices.Contains(others, dir) {
				continue
			}
			if looked++; !slices.Contains(pure, dir) {
				t.Errorf("%s is an extension, and not in the list of pure packages", dir)
			}
		}
	}
	if looked == 0 {
		t.Errorf("%s imports no extensions", extensionsFile)
	}
}

func TestImpure(t *testing.T) {
	const text = `package p
import ("math/rand/v2"; clock "time"; "net"; "os")
var now = clock.Now
var dial, mac = net.Dial, net.HardwareAddr(nil)
func f(r *rand.Rand, g group) { go f(r, g); g.Go(nil); _ = clock.Since(now()); _ = rand.IntN(2); _ = r.IntN(2); _ = rand.New(rand.NewPCG(1, 2)); _ = clock.Second }`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := impure(f), []string{"os", "time.Now", "net.Dial", "go", "Go", "time.Since", "rand.IntN"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
