// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// skipped has nothing that runs.
func skipped(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.ArrayType, *ast.StructType, *ast.InterfaceType, *ast.FuncType, *ast.MapType, *ast.ChanType:
		return true
	case *ast.GenDecl:
		return n.Tok == token.CONST || n.Tok == token.TYPE || n.Tok == token.IMPORT
	}
	return false
}

// quietReason says why what is in a node is not mutated: text for people is judged by people.
func (f *finder) quietReason(n ast.Node) string {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Recv != nil && (n.Name.Name == "String" || n.Name.Name == "GoString" || n.Name.Name == "Error") {
			return "in String and Error methods"
		}
	case *ast.CallExpr:
		if f.logs(n) {
			return "in log lines"
		}
	case ast.Expr:
		if len(f.stack) > 0 {
			if s, ok := f.stack[len(f.stack)-1].(*ast.IfStmt); ok && s.Cond == n && f.onlyLogs(s) {
				return "in conditions of log lines"
			}
			if call, ok := f.stack[len(f.stack)-1].(*ast.CallExpr); ok && f.room(call, n) {
				return "in room that is only set aside"
			}
		}
	}
	return ""
}

// room: how much a map or a slice is made for is a matter of speed alone.
func (f *finder) room(call *ast.CallExpr, arg ast.Expr) bool {
	fun, ok := call.Fun.(*ast.Ident)
	if !ok || fun.Name != "make" || len(call.Args) < 2 {
		return false
	}
	_, isMap := f.typeOf(call.Args[0]).Underlying().(*types.Map)
	return isMap && call.Args[1] == arg || len(call.Args) == 3 && call.Args[2] == arg
}

// onlyLogs: whatever an if decides, nothing but a line in the log depends on it.
func (f *finder) onlyLogs(s *ast.IfStmt) bool {
	if s.Else != nil || len(s.Body.List) == 0 {
		return false
	}
	for _, b := range s.Body.List {
		e, ok := b.(*ast.ExprStmt)
		if !ok {
			return false
		}
		if call, ok := e.X.(*ast.CallExpr); !ok || !f.logs(call) {
			return false
		}
	}
	return true
}

// logs reports whether a call writes to the log: a function of log/slog, one of ours that is told a level, or one that decides
// how often a line comes.
func (f *finder) logs(call *ast.CallExpr) bool {
	var id *ast.Ident
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	default:
		return false
	}
	fn, ok := f.info.Uses[id].(*types.Func)
	if !ok {
		return false
	}
	if fn.Pkg() != nil && fn.Pkg().Path() == "log/slog" {
		return true
	}
	if recv := fn.Signature().Recv(); recv != nil && strings.HasSuffix(types.TypeString(recv.Type(), nil), "/agent.repeats") {
		return true // keeps the log short, and does nothing else
	}
	params := fn.Signature().Params()
	for v := range params.Variables() {
		if types.TypeString(v.Type(), nil) == "log/slog.Level" {
			return params.Len() > 1
		}
	}
	return false
}
