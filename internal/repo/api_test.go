// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the lists of exported names, and the quoted files into the documents")

// TestPublicAPI: a name becomes public, or goes, on purpose. The lists in testdata/api are what docs/reference/api.md promises.
func TestPublicAPI(t *testing.T) {
	for _, path := range []string{"openflow", "oslo/messaging", "oslo/config"} {
		golden := filepath.Join("testdata", "api", filepath.Base(path)+".txt")
		got := exported(t, filepath.Join("../..", path))
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("exported names of %s changed; if that is meant: go test ./internal/repo -run TestPublicAPI -update, and a line in CHANGELOG.md\n%s", path, diff)
		}
	}
}

// exported returns the exported names of a package, one a line: functions, types, their fields and methods, constants, variables.
func exported(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	add := func(parts ...string) {
		for _, p := range parts {
			if !ast.IsExported(p) {
				return
			}
		}
		names = append(names, strings.Join(parts, "."))
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name.Name)
				} else {
					add(typeName(d.Recv.List[0].Type), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					addSpec(s, add)
				}
			}
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "\n") + "\n"
}

func addSpec(s ast.Spec, add func(...string)) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			add(n.Name)
		}
	case *ast.TypeSpec:
		add(s.Name.Name)
		var members *ast.FieldList
		switch of := s.Type.(type) {
		case *ast.StructType:
			members = of.Fields
		case *ast.InterfaceType:
			members = of.Methods
		}
		if members == nil {
			return
		}
		for _, m := range members.List {
			for _, n := range m.Names {
				add(s.Name.Name, n.Name)
			}
			if m.Names == nil {
				add(s.Name.Name, typeName(m.Type))
			}
		}
	}
}

// typeName returns the name of a receiver's or an embedded type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}
