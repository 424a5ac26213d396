// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logged is the first cell of a row of the tables of log messages.
var logged = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| (?:DEBUG|INFO|WARNING|ERROR) ")

// documented returns the messages of docs/reference/log-messages.md. One that ends in … stands for all that begin like it.
func documented(t *testing.T) (messages []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/log-messages.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range logged.FindAllStringSubmatch(string(text), -1) {
		for _, m := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			messages = append(messages, m[1])
		}
	}
	if len(messages) == 0 {
		t.Fatal("no message is documented")
	}
	return messages
}

// TestLogMessagesAreLogged holds that every message of docs/reference/log-messages.md is in the code.
func TestLogMessagesAreLogged(t *testing.T) {
	files, _ := tracked(t)
	var code strings.Builder
	for _, name := range files {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			source, err := os.ReadFile(filepath.Join("../..", name)) //nolint:gosec // of the source
			if err != nil {
				t.Fatal(err)
			}
			code.Write(source)
		}
	}
	for _, m := range documented(t) {
		if begin, more := strings.CutSuffix(m, "…"); !strings.Contains(code.String(), `"`+begin) || !more && !strings.Contains(code.String(), `"`+begin+`"`) {
			t.Errorf("nothing logs %q", m)
		}
	}
}

// TestWarningsAreDocumented holds that every warning and error of the agent has a row in docs/reference/log-messages.md: whoever reads
// one at night finds what it means and what to do.
func TestWarningsAreDocumented(t *testing.T) {
	known := documented(t)
	rows := func(message string) bool {
		return slices.ContainsFunc(known, func(k string) bool {
			begin, more := strings.CutSuffix(k, "…")
			return k == message || more && strings.HasPrefix(message, begin)
		})
	}
	files, _ := tracked(t)
	folders := map[string][]string{}
	for _, name := range files {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && slices.ContainsFunc([]string{"cmd/patchbay/", "internal/", "oslo/", "openflow/"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			folders[filepath.Dir(name)] = append(folders[filepath.Dir(name)], name)
		}
	}
	found := map[string]string{} // the place, by message
	for _, names := range folders {
		warnings(t, names, found)
	}
	for message, at := range found {
		if !rows(message) {
			t.Errorf("%s logs %q, which docs/reference/log-messages.md does not have", at, message)
		}
	}
	if len(found) < 70 {
		t.Errorf("only %d warnings found: does the agent log in a way that messageOf does not know?", len(found))
	}
}

// warnings adds the warnings and errors that the files of a package log.
func warnings(t *testing.T, names []string, found map[string]string) {
	t.Helper()
	set, constants := token.NewFileSet(), map[string][]string{}
	var parsed []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(set, filepath.Join("../..", name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
				for i, name := range v.Names {
					if text, ok := v.Values[i].(*ast.BasicLit); ok && text.Kind == token.STRING {
						constants[name.Name] = append(constants[name.Name], unquoted(text))
					}
				}
			}
			return true
		})
	}
	for _, file := range parsed {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			var texts []string
			switch arg := messageOf(call).(type) {
			case *ast.BasicLit:
				texts = append(texts, unquoted(arg))
			case *ast.Ident:
				texts = constants[arg.Name]
			}
			for _, text := range texts {
				found[text] = strings.TrimPrefix(set.Position(call.Pos()).String(), "../../")
			}
			return true
		})
	}
}

// messageOf returns the message of a call that logs a warning or an error, or nil. A message that a function was given is not found.
func messageOf(call *ast.CallExpr) ast.Expr {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	switch method.Sel.Name {
	case "Warn", "Error":
		if name := nameOf(method.X); strings.Contains(name, "log") || name == "own" {
			return call.Args[0]
		}
		return nil
	case "repeat", "log":
	default:
		return nil
	}
	for i, a := range call.Args[:len(call.Args)-1] {
		if level, ok := a.(*ast.SelectorExpr); ok && (level.Sel.Name == "LevelWarn" || level.Sel.Name == "LevelError") {
			next := call.Args[i+1]
			if flag, ok := next.(*ast.Ident); ok && (flag.Name == "true" || flag.Name == "false") && i+2 < len(call.Args) {
				next = call.Args[i+2]
			}
			return next
		}
	}
	return nil
}

// nameOf returns the last name of what a method is called on.
func nameOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

func unquoted(l *ast.BasicLit) string {
	text, err := strconv.Unquote(l.Value)
	if err != nil {
		return l.Value
	}
	return text
}
