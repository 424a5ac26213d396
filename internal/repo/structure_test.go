// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
)

// Limits that hold for every type and every file. What exceeds them today is in ceilings, with its number.
const (
	maxMethods = 40
	maxFields  = 20
	maxLines   = 400
)

// watched are the measures that the table shows. Before is the number when internal/agent began to be taken apart; those of internal/core are the
// ones that its decisions had there. A ceiling is today's
// number, where that is above the target: it may only go down. What is not in the list has to meet the limits.
var watched = map[string]struct{ before, ceiling, target int }{
	"fields of type agent.Agent":                    {37, 12, 12},
	"methods of type agent.Agent":                   {175, 25, 25},
	"fields of type core.Core":                      {37, 12, 12},
	"methods of type core.Core":                     {175, 25, 25},
	"methods of type world.World":                   {147, 40, 40},
	"methods of type trace.Host":                    {69, 40, 40},
	"methods of type openflow.Conn":                 {54, 40, 40},
	"files that start goroutines in internal/agent": {12, 0, 0},
	"files that start goroutines in internal/plan":  {2, 0, 0},
	mostTouched:      {11, 2, 2},
	touchedCore:      {11, 2, 2},
	upwardInCore:     {62, 0, 0},
	longFiles:        {29, 0, 0},
	largestFile:      {590, maxLines, maxLines},
	upwardReferences: {62, 0, 0},
	// The target is of the features of then. Since: filters for hybrid ports 2,420, releases 17 to 29 and their brokers 1,150,
	// metadata 1,940, local IPs 600, sets of members by what changed 80,
	// fragments 90, memories of extensions that end 15, rules that stay until flows are in force 30,
	// checksums of decisions by bytes 45, brokers with too many clients to set up 30, bare ports whose rows were refused 4,
	// ports that are in their network before their flows are 16, checks that outlive their port 77.
	"lines of product code": {51064, 77255, 51064},
}

// root is the tree that is measured. Another one than this is only printed.
var root = flag.String("root", filepath.Join("..", ".."), "the tree that TestStructure measures")

// waits are the packages of internal/ that may start goroutines: those that do I/O.
var waits = []string{"internal/ovsdb", "internal/fake", "internal/runner", "internal/admin", "internal/fleet", "internal/tape", "internal/metaproxy", "internal/resolver"}

// ofNames are files that are mostly tables of names, for which no length is too much.
var ofNames = []string{"openflow/fields.go"}

// former are the packages that internal/agent was and becomes, from the bottom up. A package refers to lower ones only.
var former = [][]string{
	{"internal/pace", "internal/gate"},
	{"internal/pull", "internal/report", "internal/server", "internal/zones", "internal/dataplane"},
	{"internal/effect"}, {"internal/core", "internal/runner"}, {"internal/agent"}, {"internal/plan"},
}

// level returns the place of a package in former, or -1.
func level(dir string) int {
	return slices.IndexFunc(former, func(dirs []string) bool { return slices.Contains(dirs, dir) })
}

// source is a file of Go that is no test.
type source struct {
	path, dir string // from the root of the repository
	lines     int
	syntax    *ast.File
}

func sources(t *testing.T) []source {
	t.Helper()
	fset := token.NewFileSet()
	var all []source
	err := filepath.WalkDir(*root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || path != *root && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fset, path, text, 0)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(*root, path)
		all = append(all, source{filepath.ToSlash(name), filepath.ToSlash(filepath.Dir(name)), bytes.Count(text, []byte("\n")), syntax})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// isProduct returns whether a file is part of what is installed, or of the public packages: no lab, no tool, no support of tests.
func (s *source) isProduct() bool {
	if slices.Contains(forTests, s.dir) {
		return false
	}
	return slices.ContainsFunc([]string{"internal", "cmd/patchbay", "openflow", "oslo"}, func(dir string) bool { return under(s.dir, dir) })
}

// Measures that are named in several places.
const (
	largestFile = "lines of the largest file"
	longFiles   = "files of more than 400 lines"
	mostTouched = "files that touch the most touched part of agent.Agent"
	touchedCore = "files that touch the most touched part of core.Core"

	upwardReferences = "upward references in internal/agent"
	upwardInCore     = "upward references in internal/core"
)

// measures are numbers by what they count. A name begins with the measure, then the thing.
type measures map[string]int

func measure(all []source) measures {
	m := measures{}
	for _, s := range all {
		if !slices.Contains(ofNames, s.path) {
			m[largestFile] = max(m[largestFile], s.lines)
			m[longFiles] += min(1, s.lines/(maxLines+1))
		}
		if !s.isProduct() {
			continue
		}
		m["lines of product code"] += s.lines
		pkg := filepath.Base(s.dir)
		for name, n := range methodsOf(s.syntax) {
			m["methods of type "+pkg+"."+name] += n
		}
		if strings.HasPrefix(s.dir, "internal/") && !slices.Contains(waits, s.dir) && startsGoroutine(s.syntax) {
			m["files that start goroutines in "+s.dir]++
		}
	}
	withMethods := maps.Clone(m)
	for _, s := range all {
		pkg := filepath.Base(s.dir)
		for name, n := range fieldsOf(s.syntax) {
			if s.isProduct() && !under(s.dir, "oslo") && withMethods["methods of type "+pkg+"."+name] > 0 {
				m["fields of type "+pkg+"."+name] = n
			}
		}
	}
	for _, p := range []struct{ dir, owner, upward, touched string }{
		{"internal/agent", "Agent", upwardReferences, mostTouched}, {"internal/core", "Core", upwardInCore, touchedCore},
	} {
		files := slices.DeleteFunc(slices.Clone(all), func(s source) bool { return s.dir != p.dir })
		m[p.upward] = upward(files)
		for _, n := range touching(files, p.owner) {
			m[p.touched] = max(m[p.touched], n)
		}
	}
	return m
}

// methodsOf counts the methods that a file declares, by type.
func methodsOf(f *ast.File) map[string]int {
	out := map[string]int{}
	for _, d := range f.Decls {
		if name := receiver(d); name != "" {
			out[name]++
		}
	}
	return out
}

// receiver returns the type of which a declaration is a method; nothing if it is none.
func receiver(d ast.Decl) string {
	fn, ok := d.(*ast.FuncDecl)
	if !ok || fn.Recv == nil {
		return ""
	}
	e := fn.Recv.List[0].Type
	for {
		switch t := e.(type) {
		case *ast.StarExpr:
			e = t.X
		case *ast.IndexExpr:
			e = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

func structs(f *ast.File) map[string]*ast.StructType {
	out := map[string]*ast.StructType{}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				out[spec.Name.Name] = s
			}
		}
		return true
	})
	return out
}

// fieldsOf counts the fields of the structs that a file declares.
func fieldsOf(f *ast.File) map[string]int {
	out := map[string]int{}
	for name, s := range structs(f) {
		for _, field := range s.Fields.List {
			out[name] += max(1, len(field.Names))
		}
	}
	return out
}

func startsGoroutine(f *ast.File) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
				found = true
			}
		}
		return !found
	})
	return found
}

// upward counts the references between files of a package that run against its order, in which files refer to later files only. The order is found by always
// taking a file that no other refers to; where there is none, the one with the most references out over references in.
func upward(files []source) int {
	refs := references(files)
	in, out := map[string]int{}, map[string]int{}
	left := map[string]bool{}
	for _, f := range files {
		left[f.path] = true
	}
	for from, tos := range refs {
		for to := range tos {
			out[from]++
			in[to]++
		}
	}
	weight := func(file string) int {
		if in[file] == 0 {
			return len(files) // more than any other has
		}
		return out[file] - in[file]
	}
	count := 0
	for len(left) > 0 {
		next := slices.MaxFunc(slices.Sorted(maps.Keys(left)), func(a, b string) int { return cmp.Or(cmp.Compare(weight(a), weight(b)), cmp.Compare(b, a)) })
		delete(left, next)
		for file := range left {
			if refs[file][next] {
				out[file]--
				count++ // a later file refers back to it
			}
			if refs[next][file] {
				in[file]--
			}
		}
	}
	return count
}

// references tells for each file to which other files of its package it refers: to their types, functions, variables and methods. A
// method whose name several types have is left out.
func references(files []source) map[string]map[string]bool {
	declared, methods := map[string]string{}, map[string]string{}
	for _, f := range files {
		for name := range f.syntax.Scope.Objects {
			declared[name] = f.path
		}
		for _, d := range f.syntax.Decls {
			if receiver(d) == "" {
				continue
			}
			name := d.(*ast.FuncDecl).Name.Name
			if _, twice := methods[name]; twice {
				methods[name] = ""
			} else {
				methods[name] = f.path
			}
		}
	}
	refs := map[string]map[string]bool{}
	for _, f := range files {
		refs[f.path] = map[string]bool{}
		add := func(to string) {
			if to != "" && to != f.path {
				refs[f.path][to] = true
			}
		}
		for _, id := range f.syntax.Unresolved {
			add(declared[id.Name])
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				add(methods[sel.Sel.Name])
			}
			return true
		})
	}
	return refs
}

// touching counts for each part of a type that is a struct of the package the files that reach into its fields.
func touching(files []source, owner string) map[string]int {
	declared := map[string]*ast.StructType{}
	for _, f := range files {
		maps.Copy(declared, structs(f.syntax))
	}
	out := map[string]int{}
	if declared[owner] == nil {
		return out
	}
	parts := map[string]*ast.StructType{}
	for _, field := range declared[owner].Fields.List {
		if id, ok := field.Type.(*ast.Ident); ok && declared[id.Name] != nil && id.Name != "Config" {
			for _, name := range field.Names {
				parts[name.Name] = declared[id.Name]
			}
		}
	}
	for _, f := range files {
		touched := map[string]bool{}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if outer, ok := n.(*ast.SelectorExpr); ok {
				if inner, ok := outer.X.(*ast.SelectorExpr); ok && parts[inner.Sel.Name] != nil && hasField(parts[inner.Sel.Name], outer.Sel.Name) {
					touched[inner.Sel.Name] = true
				}
			}
			return true
		})
		for name := range touched {
			out[name]++
		}
	}
	return out
}

func hasField(s *ast.StructType, name string) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		return slices.ContainsFunc(f.Names, func(id *ast.Ident) bool { return id.Name == name })
	})
}

// limit returns what a measure may be at most.
func limit(name string) int {
	if w, ok := watched[name]; ok {
		return w.ceiling
	}
	switch {
	case strings.HasPrefix(name, "methods of"):
		return maxMethods
	case strings.HasPrefix(name, "fields of"):
		return maxFields
	}
	return 0
}

// TestStructure measures the code, prints what is watched, and fails where a limit is exceeded.
func TestStructure(t *testing.T) {
	all := sources(t)
	m := measure(all)
	t.Log("\n" + m.table())
	if flag.Lookup("root").DefValue != *root {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if n := m[name]; n > limit(name) {
			t.Errorf("%d %s: at most %d; split what is too large, or, for lines of a new feature, raise the ceiling in watched", n, name, limit(name))
		}
	}
	for _, path := range ofNames {
		i := slices.IndexFunc(all, func(s source) bool { return s.path == path })
		if i < 0 || all[i].lines <= maxLines || !isTable(all[i].syntax) {
			t.Errorf("%s is no table of names that is too long", path)
		}
	}
}

// isTable returns whether a file has more elements of package-level lists, constants and variables than statements.
func isTable(f *ast.File) bool {
	elements, statements := 0, 0
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			elements += len(n.Elts)
		case *ast.ValueSpec:
			elements++
		case *ast.BlockStmt:
			statements += len(n.List)
		}
		return true
	})
	return elements > statements
}

// table shows what is watched, and the largest types.
func (m measures) table() string {
	var names []string
	for name := range m {
		if strings.HasPrefix(name, "methods of") || strings.HasPrefix(name, "fields of") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	names = slices.AppendSeq(names[:min(5, len(names))], maps.Keys(watched))
	slices.Sort(names)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "measure\tbefore\tnow\tat most\ttarget")
	for _, name := range slices.Compact(names) {
		before, target := "", limit(name)
		if is, ok := watched[name]; ok {
			before, target = strconv.Itoa(is.before), is.target
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", name, before, m[name], limit(name), target)
	}
	_ = w.Flush()
	return b.String()
}

// What internal/agent was taken apart into goes one way, and parts do not know each other.
func TestFormerAgentGoesOneWay(t *testing.T) {
	for _, s := range sources(t) {
		for _, spec := range s.syntax.Imports {
			path := strings.TrimPrefix(strings.Trim(spec.Path.Value, `"`), module)
			if here, there := level(s.dir), level(path); here >= 0 && there >= here && path != s.dir {
				t.Errorf("%s refers to %s, which is not below it", s.path, path)
			}
		}
	}
}

// A part of the core is given values. One that held a pointer to Core would reach every other part; only the view that answers questions does.
func TestPartsDoNotKnowTheCore(t *testing.T) {
	for _, s := range sources(t) {
		if s.dir != "internal/core" {
			continue
		}
		for name, declared := range structs(s.syntax) {
			ast.Inspect(declared, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Name == "Core" && name != "View" {
					t.Errorf("%s: %s holds the core", s.path, name)
				}
				return true
			})
		}
	}
}

// The measures count what they say, of files that are written for that.
func TestMeasures(t *testing.T) {
	var files []source
	for name, text := range map[string]string{
		"a.go": "package agent\ntype Agent struct { x, y int; part part }\ntype part struct { n int }\nfunc (a *Agent) up() { a.down(); a.part.n++; helper() }",
		"b.go": "package agent\nfunc (a *Agent) down() { a.up(); go a.down(); a.part.method() }\nfunc (p *part) method() {}",
		"c.go": "package agent\nfunc helper() {}",
	} {
		syntax, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, source{"internal/agent/" + name, "internal/agent", 500, syntax})
	}
	m := measure(files)
	for name, want := range map[string]int{
		"methods of type agent.Agent": 2, "fields of type agent.Agent": 3, "files that start goroutines in internal/agent": 1,
		upwardReferences: 1, mostTouched: 1, longFiles: 3, largestFile: 500, "lines of product code": 1500,
	} {
		if m[name] != want {
			t.Errorf("%s: %d, want %d", name, m[name], want)
		}
	}
}
