// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
)

// statements removes what stands alone.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			call, ok := s.X.(*ast.CallExpr)
			if !ok {
				break
			}
			if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "panic" {
				break // a function may have to end with it
			}
			if f.logs(call) {
				f.leftOut["in log lines"]++
				break
			}
			f.remove(s)
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && !blank(s) {
				f.remove(s)
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
			f.remove(s)
		}
	}
}

func (f *finder) remove(s ast.Stmt) { f.add(s, 0, "if !mutantIs(%d) { ", " }", "removed") }

func blank(s *ast.AssignStmt) bool {
	for _, l := range s.Lhs {
		if id, ok := l.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return true
}

// assigned turns += and -= into each other.
func (f *finder) assigned(n *ast.AssignStmt) {
	if (n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN) && f.basic(n.Lhs[0], types.IsInteger|types.IsFloat) {
		f.add(n.Rhs[0], -1, "mutantNegative(%d, ", ")", "arithmetic")
	}
}

// branch turns break and continue into each other, in a loop.
func (f *finder) branch(n *ast.BranchStmt) {
	if n.Tok != token.BREAK && n.Tok != token.CONTINUE {
		return
	}
	loop := false
around:
	for i := len(f.stack) - 1; i >= 0; i-- {
		switch f.stack[i].(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			loop = true
			break around
		case *ast.FuncLit, *ast.FuncDecl:
			break around
		}
	}
	other, label := token.BREAK, ""
	if n.Tok == token.BREAK {
		other = token.CONTINUE
	}
	if n.Label != nil {
		label = " " + n.Label.Name
	}
	if !loop {
		f.add(n, 0, "if !mutantIs(%d) { ", " }", "removed")
		return
	}
	f.add(n, 0, "if mutantIs(%d) { "+other.String()+label+" }; ", "", "break-continue")
}

// returned gives the zero value for what is returned.
func (f *finder) returned(n *ast.ReturnStmt) {
	results := f.results()
	if results == nil || len(n.Results) != results.Len() {
		return
	}
	for i, e := range n.Results {
		want, have := results.At(i).Type(), f.typeOf(e)
		if f.needsNoZero(e, have) {
			continue
		}
		instance := ""
		if types.IsInterface(want) && !types.Identical(want, have) {
			switch types.TypeString(want, nil) {
			case "error", "any":
				instance = "[" + types.TypeString(want, nil) + "]"
			default:
				continue
			}
		}
		if f.constant(e) && !types.Identical(want, types.Typ[types.String]) && instance == "" {
			named, ok := want.(*types.Named)
			if !ok || named.Obj().Parent() != f.pkg.Scope() {
				continue
			}
			instance = "[" + named.Obj().Name() + "]"
		}
		f.add(e, -2, "mutantZero"+instance+"(%d, ", ")", "zero")
	}
}

// needsNoZero returns whether a value is zero already, or has mutants of its own.
func (f *finder) needsNoZero(e ast.Expr, have types.Type) bool {
	switch inner := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		if types.Identical(have.Underlying(), types.Typ[types.Bool]) && inner.Op != token.ILLEGAL {
			return true // has its own
		}
	case *ast.CompositeLit:
		if _, isStruct := have.Underlying().(*types.Struct); isStruct && len(inner.Elts) == 0 {
			return true // is zero
		}
	}
	b, ok := have.(*types.Basic)
	return ok && (b.Kind() == types.UntypedNil || f.constant(e) && b.Info()&types.IsString == 0) || zeroText(f.info.Types[e].Value)
}

func zeroText(v constant.Value) bool {
	return v != nil && v.Kind() == constant.String && constant.StringVal(v) == ""
}

// results are those of the function around.
func (f *finder) results() *types.Tuple {
	for i := len(f.stack) - 1; i >= 0; i-- {
		switch n := f.stack[i].(type) {
		case *ast.FuncLit:
			return f.typeOf(n).(*types.Signature).Results()
		case *ast.FuncDecl:
			return f.info.Defs[n.Name].(*types.Func).Signature().Results()
		}
	}
	return nil
}
