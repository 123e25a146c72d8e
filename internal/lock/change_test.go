package lock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Only named functions change fields, so that a search for a field finds the functions that change it. Patterns are not part of the state.
func TestNoAnonymousFunctionChangesAField(t *testing.T) {
	files, _ := filepath.Glob("*.go")
	all := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "pattern.go" {
			continue
		}
		file, err := parser.ParseFile(all, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncLit); ok {
				ast.Inspect(f.Body, func(n ast.Node) bool {
					for _, target := range targets(n) {
						if changesField(target) {
							t.Errorf("%s: an anonymous function changes a field", all.Position(n.Pos()))
						}
					}
					return true
				})
				return false
			}
			return true
		})
	}
}

// targets returns what a statement or a call of delete changes.
func targets(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return n.Lhs
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") {
			return n.Args[:1]
		}
	}
	return nil
}

// changesField reports whether the target of a change is a field, or an element of one. An outcome is not part of the state.
func changesField(target ast.Expr) bool {
	switch x := target.(type) {
	case *ast.IndexExpr:
		return changesField(x.X)
	case *ast.SelectorExpr:
		owner, ok := x.X.(*ast.Ident)
		return !ok || owner.Name != "out"
	}
	return false
}
