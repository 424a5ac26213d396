// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// point is one mutant: a place in the source and what is done to it.
type point struct {
	ID   int    // its number in the instrumented sources, from 1; depends on the sources
	Pkg  string // import path
	File string // path from the root of the module
	Line int
	Kind string
	Text string // the line without the space around it
	Nth  int    // which of the points of this kind on lines of this text in the file, from 1
}

// key names a mutant for as long as its line stays as it is, wherever the line moves.
func (p point) key() string { return fmt.Sprintf("%s|%s#%d|%s", p.File, p.Kind, p.Nth, p.Text) }

func (p point) String() string { return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Kind, p.Text) }

// wrap is text around a part of a file. The first argument of its texts is the point's number.
type wrap struct {
	from, to    int // offsets
	level       int // of two around the same part, the smaller is outside
	open, close string
	points      []*point
	shared      bool // the points are those of another wrap
}

// swap is a token replaced by another while a wrap is there.
type swap struct {
	from, to int
	text     string
}

// source is a file of a package that is to be mutated, with what was found in it.
type source struct {
	path, rel string // on this machine, and from the root of the module
	text      []byte
	ast       *ast.File
	wraps     []*wrap
	swaps     map[*wrap]swap
}

// finder walks one package.
type finder struct {
	fset    *token.FileSet
	info    *types.Info
	pkg     *types.Package
	path    string
	src     *source
	stack   []ast.Node
	leftOut map[string]int // reason: points
	quiet   []string       // reasons of the nodes around the present one that leave out what is in them
}

// find collects the points of one file.
func (f *finder) find(src *source) {
	f.src = src
	src.swaps = map[*wrap]swap{}
	ast.Inspect(src.ast, func(n ast.Node) bool {
		if n == nil {
			top := f.stack[len(f.stack)-1]
			f.stack = f.stack[:len(f.stack)-1] // as it was when top was looked at
			if f.quietReason(top) != "" {
				f.quiet = f.quiet[:len(f.quiet)-1]
			}
			return true
		}
		if skipped(n) {
			return false
		}
		if r := f.quietReason(n); r != "" {
			f.quiet = append(f.quiet, r)
		}
		f.visit(n)
		f.stack = append(f.stack, n)
		return true
	})
	slices.SortStableFunc(src.wraps, func(a, b *wrap) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to), cmp.Compare(a.level, b.level))
	})
}

// add notes a wrap with its points, one for each kind.
func (f *finder) add(n ast.Node, level int, open, closing string, kinds ...string) *wrap {
	return f.addAt(n.Pos(), n.End(), level, open, closing, kinds...)
}

func (f *finder) addAt(from, to token.Pos, level int, open, closing string, kinds ...string) *wrap {
	if len(f.quiet) > 0 {
		f.leftOut[f.quiet[len(f.quiet)-1]] += len(kinds)
		return nil
	}
	p := f.fset.Position(from)
	w := &wrap{from: p.Offset, to: f.fset.Position(to).Offset, level: level, open: open, close: closing}
	for _, k := range kinds {
		w.points = append(w.points, &point{Pkg: f.path, File: f.src.rel, Line: p.Line, Kind: k, Text: f.src.line(p.Line)})
	}
	f.src.wraps = append(f.src.wraps, w)
	return w
}

func (s *source) line(n int) string {
	return strings.TrimSpace(strings.Split(string(s.text), "\n")[n-1])
}

func (f *finder) parent() ast.Node {
	for i := len(f.stack) - 1; i >= 0; i-- {
		if _, ok := f.stack[i].(*ast.ParenExpr); !ok {
			return f.stack[i]
		}
	}
	return nil
}

func (f *finder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.BasicLit, *ast.Ident:
		f.literal(n.(ast.Expr))
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.ReturnStmt:
		f.returned(n)
	case *ast.BranchStmt:
		f.branch(n)
	case *ast.AssignStmt:
		f.assigned(n)
	}
	if e, ok := n.(ast.Expr); ok && f.isCondition(e) {
		f.condition(e)
	}
}

func (f *finder) constant(e ast.Expr) bool { return f.info.Types[e].Value != nil }

// basic reports whether an expression has a type of the language, or one made of it, with one of these properties.
func (f *finder) basic(e ast.Expr, is types.BasicInfo) bool {
	b, ok := f.typeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&is != 0
}

func (f *finder) typeOf(e ast.Expr) types.Type {
	if t := f.info.TypeOf(e); t != nil {
		return t
	}
	return types.Typ[types.Invalid]
}

var boundaries = map[token.Token]string{token.LSS: "mutantLess", token.LEQ: "mutantLessEqual", token.GTR: "mutantGreater", token.GEQ: "mutantGreaterEqual"}

var arithmetic = map[token.Token]string{
	token.ADD: "mutantAdd", token.SUB: "mutantSub", token.MUL: "mutantMul", token.QUO: "mutantQuo", token.REM: "mutantRem",
	token.AND: "mutantAnd", token.OR: "mutantOr", token.XOR: "mutantXor", token.AND_NOT: "mutantAndNot",
}

func (f *finder) binary(n *ast.BinaryExpr) {
	if f.constant(n) {
		return
	}
	switch n.Op {
	case token.EQL, token.NEQ:
		f.add(n, 0, "((", ") != mutantIs(%d))", "negated")
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		f.add(n, 0, "((", ") != mutantIs(%d))", "negated")
		f.call(n, boundaries[n.Op], "boundary")
	case token.LAND, token.LOR:
		// a || b is !(!a && !b): three times the same switch, and b is looked at only when it would be.
		if types.Identical(f.typeOf(n.X), types.Typ[types.Bool]) && types.Identical(f.typeOf(n.Y), types.Typ[types.Bool]) {
			all := f.add(n, 0, "((", ") != mutantIs(%d))", "and-or")
			if all == nil {
				return
			}
			for _, side := range []ast.Expr{n.X, n.Y} {
				w := f.add(side, -1, "((", ") != mutantIs(%d))")
				w.points, w.shared = all.points, true
			}
		}
	default:
		name, ok := arithmetic[n.Op]
		is := types.IsInteger
		if n.Op == token.ADD || n.Op == token.SUB || n.Op == token.MUL || n.Op == token.QUO {
			is |= types.IsFloat
		}
		if ok && f.basic(n, is) {
			f.call(n, name, "arithmetic")
		}
	}
}

// call turns an operator into a call of a function that knows the mutant.
func (f *finder) call(n *ast.BinaryExpr, function, kind string) {
	if w := f.add(n, 1, function+"(%d, ", ")", kind); w != nil {
		from := f.fset.Position(n.OpPos).Offset
		f.src.swaps[w] = swap{from: from, to: from + len(n.Op.String()), text: ","}
	}
}

// isCondition reports whether an expression decides by itself: it stands in an if, for, case, && , || or !.
func (f *finder) isCondition(e ast.Expr) bool {
	if _, ok := e.(*ast.ParenExpr); ok {
		return false
	}
	switch p := f.parent().(type) {
	case *ast.IfStmt:
		return ast.Unparen(p.Cond) == e
	case *ast.ForStmt:
		return p.Cond != nil && ast.Unparen(p.Cond) == e
	case *ast.CaseClause:
		return f.tagless() && slices.ContainsFunc(p.List, func(c ast.Expr) bool { return ast.Unparen(c) == e })
	case *ast.BinaryExpr:
		return p.Op == token.LAND || p.Op == token.LOR
	}
	return false
}

// tagless: the innermost switch has no value, so that its cases are conditions.
func (f *finder) tagless() bool {
	for i := len(f.stack) - 1; i >= 0; i-- {
		if s, ok := f.stack[i].(*ast.SwitchStmt); ok {
			return s.Tag == nil
		} else if _, ok := f.stack[i].(*ast.TypeSwitchStmt); ok {
			return false
		}
	}
	return false
}

// condition negates what is not a comparison, && or ||, which have their own.
func (f *finder) condition(e ast.Expr) {
	if _, ok := e.(*ast.BinaryExpr); ok || f.constant(e) || !types.Identical(f.typeOf(e), types.Typ[types.Bool]) {
		return
	}
	f.add(e, 0, "((", ") != mutantIs(%d))", "negated")
}

// literal changes a whole number by one, and true and false into each other.
func (f *finder) literal(e ast.Expr) {
	tv, ok := f.info.Types[e]
	if !ok || tv.Value == nil || f.mustBeConstant(e) {
		return
	}
	if id, ok := e.(*ast.Ident); ok {
		if _, isConst := f.info.Uses[id].(*types.Const); !isConst {
			return
		}
	}
	switch tv.Value.Kind() {
	case constant.Int:
		t, ok := tv.Type.(*types.Basic)
		if ok && t.Info()&types.IsInteger != 0 && t.Info()&types.IsUntyped == 0 {
			f.add(e, 2, "mutantNumber["+t.Name()+"](%d, %d, ", ")", "constant+1", "constant-1")
		}
	case constant.Bool:
		if f.member(e) {
			f.leftOut["in members of sets (m[k] = true, which is removed instead)"]++
		} else if _, ok := tv.Type.(*types.Basic); ok {
			f.add(e, 2, "((", ") != mutantIs(%d))", "negated")
		}
	}
}

// member: the true of m[k] = true. Most such maps are sets, and nobody looks at the value.
func (f *finder) member(e ast.Expr) bool {
	s, ok := f.parent().(*ast.AssignStmt)
	if !ok || s.Tok != token.ASSIGN || len(s.Lhs) != 1 || !constant.BoolVal(f.info.Types[e].Value) {
		return false
	}
	at, ok := s.Lhs[0].(*ast.IndexExpr)
	if !ok {
		return false
	}
	_, isMap := f.typeOf(at.X).Underlying().(*types.Map)
	return isMap
}

// mustBeConstant: part of a larger constant, a key of a literal, or the label of a case.
func (f *finder) mustBeConstant(e ast.Expr) bool {
	switch p := f.parent().(type) {
	case *ast.SelectorExpr: // the name of a constant of another package
		return true
	case *ast.KeyValueExpr:
		return p.Key == e
	case *ast.CaseClause:
		return !f.tagless()
	case *ast.CallExpr:
		return f.constant(p)
	case ast.Expr:
		return f.constant(p)
	}
	return false
}
