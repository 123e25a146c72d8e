package lock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// function is one function of the package and what it does by itself.
type function struct {
	name     string
	calls    map[string]bool // names of what it calls, the receivers left out
	locks    bool            // it locks or unlocks a mutex, or calls the store
	waits    bool            // it uses a channel other than by closing it or by a select with a default
	position token.Position
}

// source reads the functions of the package, its tests left out.
func source(t *testing.T) map[string]*function {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	all := make(map[string]*function)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			d, ok := declared.(*ast.FuncDecl)
			if !ok {
				continue
			}
			f := all[d.Name.Name]
			if f == nil {
				f = &function{name: d.Name.Name, calls: make(map[string]bool), position: set.Position(d.Pos())}
				all[f.name] = f
			}
			f.read(d.Body)
		}
	}
	return all
}

// read adds what a function does. The last step of a change (done) is called with the mutex held, so function literals
// count as part of the function that they stand in.
func (f *function) read(body ast.Node) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			switch called := n.Fun.(type) {
			case *ast.Ident:
				if called.Name != "close" { // the builtin
					f.calls[called.Name] = true
				}
			case *ast.SelectorExpr:
				f.calls[called.Sel.Name] = true
				on, _ := called.X.(*ast.SelectorExpr)
				if on == nil {
					break
				}
				if on.Sel.Name == "store" {
					f.locks = true
				}
				if lock := on.Sel.Name; lock == "mu" || lock == "reloading" {
					f.locks = true
				}
			}
		case *ast.SelectStmt:
			for _, clause := range n.Body.List {
				if clause.(*ast.CommClause).Comm == nil {
					return false // it has a default, so it does not wait
				}
			}
			f.waits = true
		case *ast.UnaryExpr:
			f.waits = f.waits || n.Op == token.ARROW
		case *ast.SendStmt:
			f.waits = true
		}
		return true
	})
}

// A function whose name ends in Locked is called with Table.mu held and keeps it: neither it nor what it calls locks,
// unlocks, waits, or calls the store.
func TestNoFunctionThatIsCalledWithTheMutexLetsGoOfIt(t *testing.T) {
	all := source(t)
	locked := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasSuffix(name, "Locked") {
			continue
		}
		locked++
		if path := reaches(all, name, nil); path != nil {
			t.Errorf("%s: %s", all[name].position, strings.Join(path, " calls "))
		}
	}
	if locked < 30 {
		t.Errorf("only %d functions looked at", locked)
	}
}

// reaches returns the way from a function to one that locks or waits.
func reaches(all map[string]*function, name string, from []string) []string {
	f := all[name]
	if f == nil || slices.Contains(from, name) {
		return nil
	}
	path := append(slices.Clone(from), name)
	if f.locks || f.waits {
		return path
	}
	for called := range f.calls {
		if foreign[called] {
			continue
		}
		if way := reaches(all, called, path); way != nil {
			return way
		}
	}
	return nil
}

// foreign are methods of other packages' types that have the names of functions of this package.
var foreign = map[string]bool{"Error": true, "String": true, "Now": true, "Contains": true, "Match": true, "All": true, "Add": true, "Remove": true}
