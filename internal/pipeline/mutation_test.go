// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

var mutate = flag.Bool("mutate", false, "break every mapping to flows once and see whether the tests notice (minutes)")

// TestMutations breaks, one at a time, every table, priority, term of a match, action and decision in the files that turn
// rules into flows, and runs the scripts and the tests of ranges and matches: each time one of them has to fail. All mutations are built
// into one binary, and an environment variable says which one is in force.
func TestMutations(t *testing.T) {
	if !*mutate {
		t.Skip("takes minutes: go test ./internal/pipeline -run TestMutations -mutate -timeout 30m")
	}
	dir := t.TempDir()
	replace := map[string]string{}
	put := func(name string, content []byte) {
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		replace[path] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[path], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &mutator{t: t}
	for _, file := range []string{"filter.go", "rules.go", "peer.go", "portrange.go", "direct.go"} {
		put(file, m.file(file))
	}
	put("mutants.go", []byte(mutants))
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "mutants.test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(n int) ([]byte, error) {
		cmd := exec.Command(binary, "-test.run=^(TestScripts|TestMasks|TestSplit|TestMatches)$", "-test.timeout=20s")
		cmd.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(n))
		return cmd.CombinedOutput()
	}
	if out, err := run(-1); err != nil {
		t.Fatalf("the tests fail without any mutation: %v\n%s", err, out)
	}
	noticed := 0
	for n, what := range m.what {
		if _, err := run(n); err != nil {
			noticed++
		} else {
			t.Errorf("nothing notices %s", what)
		}
	}
	t.Logf("%d of %d mutations noticed", noticed, len(m.what))
}

// mutants is the file that is added to the package: it puts one mutation in force.
const mutants = `package pipeline

import (
	"os"
	"slices"
	"strconv"
)

var mutant, _ = strconv.Atoi(os.Getenv("MUTANT"))

func pick[T any](n int, right, wrong T) T {
	if n == mutant {
		return wrong
	}
	return right
}

func flip(n int, right bool) bool { return right != (n == mutant) }

func mutantDropped[S ~[]E, E any](n int, list S) S {
	if i := mutant - n; i >= 0 && i < len(list) {
		return slices.Delete(slices.Clone(list), i, i+1)
	}
	return list
}
`

// mutator writes every mutation of a file into it, by calls around expressions.
type mutator struct {
	t      *testing.T
	set    *token.FileSet
	source []byte
	name   string
	edits  []edit
	what   []string // by number
}

type edit struct {
	at    int
	end   bool
	order int
	text  string
}

func (m *mutator) offset(p token.Pos) int { return m.set.Position(p).Offset }
func (m *mutator) text(n ast.Node) string {
	return string(m.source[m.offset(n.Pos()):m.offset(n.End())])
}
func (m *mutator) number() string { return strconv.Itoa(len(m.what)) }
func (m *mutator) say(n ast.Node, is string) {
	m.what = append(m.what, fmt.Sprintf("%s:%d: %s: %s", m.name, m.set.Position(n.Pos()).Line, is, m.text(n)))
}

// wrap puts text before and after a piece of source.
func (m *mutator) wrap(from, to ast.Node, before, after string) {
	n := len(m.edits)
	m.edits = append(m.edits, edit{m.offset(from.Pos()), false, n, before}, edit{m.offset(to.End()), true, -n, after})
}

func (m *mutator) pick(e ast.Expr, kind, wrong, is string) {
	m.wrap(e, e, "pick("+m.number()+", "+kind+"(", "), "+wrong+")")
	m.say(e, is)
}

func (m *mutator) flip(e ast.Expr) {
	m.wrap(e, e, "flip("+m.number()+", ", ")")
	m.say(e, "the opposite")
}

// drop leaves out each element of a list in turn.
func (m *mutator) drop(list []ast.Expr, kind, is string) {
	if len(list) == 0 {
		return
	}
	m.wrap(list[0], list[len(list)-1], "mutantDropped("+m.number()+", "+kind+"{", "})...")
	for _, e := range list {
		m.say(e, is)
	}
}

func (m *mutator) file(name string) []byte {
	var err error
	m.name, m.edits, m.set = name, nil, token.NewFileSet()
	if m.source, err = os.ReadFile(name); err != nil {
		m.t.Fatal(err)
	}
	tree, err := parser.ParseFile(m.set, name, m.source, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	ast.Inspect(tree, m.visit)
	// At one place what ends comes before what begins, the inner before the outer at ends, and the other way round at beginnings.
	slices.SortStableFunc(m.edits, func(a, b edit) int {
		if a.at != b.at || a.end == b.end {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
		}
		if a.end {
			return -1
		}
		return 1
	})
	var out []byte
	last := 0
	for _, e := range m.edits {
		out = append(append(out, m.source[last:e.at]...), e.text...)
		last = e.at
	}
	return append(out, m.source[last:]...)
}

func (m *mutator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		m.call(n)
	case *ast.CompositeLit:
		m.literal(n)
	case *ast.IfStmt:
		m.flip(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag != nil {
			break
		}
		for _, c := range n.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				m.flip(e)
			}
		}
	case *ast.BinaryExpr:
		switch n.Op {
		case token.LAND, token.LOR:
			m.flip(n.X)
			m.flip(n.Y)
		case token.LSS, token.LEQ, token.GTR, token.GEQ:
			edge := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[n.Op]
			m.pick(n, "bool", m.text(n.X)+edge+m.text(n.Y), "the edge")
		}
	}
	return true
}

func (m *mutator) call(n *ast.CallExpr) {
	f, ok := n.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	switch {
	case f.Sel.Name == "add" && len(n.Args) >= 4:
		m.pick(n.Args[0], "uint8", "95", "another table")
		m.pick(n.Args[1], "uint16", "96", "another priority")
		if n.Ellipsis == token.NoPos {
			m.drop(n.Args[4:], "[]of.Action", "without the action")
		}
	case f.Sel.Name == "With" && n.Ellipsis == token.NoPos:
		m.drop(n.Args, "[]of.Term", "without the term")
	case f.Sel.Name == "CTFlags":
		m.pick(n.Args[0], "uint32", "("+m.text(n.Args[0])+")^of.CTInv", "other flags set")
		m.pick(n.Args[1], "uint32", "("+m.text(n.Args[1])+")^of.CTSNAT", "other flags clear")
	}
}

func (m *mutator) literal(n *ast.CompositeLit) {
	switch kind := m.typeText(n); kind {
	case "of.Match", "[]of.Action":
		if len(n.Elts) == 0 {
			return
		}
		m.wrap(n, n, "mutantDropped("+m.number()+", ", ")")
		for _, e := range n.Elts {
			m.say(e, "without this of "+kind)
		}
	case "of.Flow":
		for _, e := range n.Elts {
			kv := e.(*ast.KeyValueExpr)
			switch kv.Key.(*ast.Ident).Name {
			case "Priority":
				m.pick(kv.Value, "uint16", "96", "another priority")
			case "Table":
				m.pick(kv.Value, "uint8", "95", "another table")
			}
		}
	}
}

func (m *mutator) typeText(n *ast.CompositeLit) string {
	if n.Type == nil {
		return ""
	}
	return m.text(n.Type)
}
