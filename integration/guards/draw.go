package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A guard is a condition of the code whose body leaves the function or the loop.
type guard struct {
	file    string // below the root
	line    int
	source  string // its first line
	without string // the file without the guard
}

// draw removes n guards at random, one after the other, and prints those that no test of their package needs.
func (r runner) draw(w io.Writer, n int, seed uint64, only *regexp.Regexp) error {
	all, err := guardsBelow(r.root, only)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "seed %d, %d guards\n", seed, len(all))
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var drawn, survivors int
	for _, g := range all {
		if drawn == n {
			break
		}
		got, err := r.test(map[string]string{g.file: g.without}, filepath.ToSlash(filepath.Dir(g.file)), "")
		if err != nil {
			return err
		}
		if got == noBuild || got == noTest {
			continue // such as a variable that is unused without the guard
		}
		drawn++
		if got != red {
			survivors++
		}
		fmt.Fprintf(w, "%s:%d: %s: %s\n", g.file, g.line, g.source, got)
	}
	fmt.Fprintf(w, "seed %d: %d guards drawn, %d survive\n", seed, drawn, survivors)
	return nil
}

// guardsBelow returns the guards of the module's code for this system, without tests and their programs.
func guardsBelow(root string, only *regexp.Regexp) (all []guard, err error) {
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, file) // both are absolute
		name = filepath.ToSlash(name)
		if d.IsDir() && (name == "integration" || d.Name() == "testdata" || len(name) > 1 && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || !only.MatchString(name) {
			return nil
		}
		if match, err := build.Default.MatchFile(filepath.Split(file)); err != nil || !match {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found, err := guardsOf(name, string(text))
		all = append(all, found...)
		return err
	})
	return all, err
}

// guardsOf returns the guards of one file.
func guardsOf(name, text string) (all []guard, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	add := func(from token.Pos, without string) {
		line, _, _ := strings.Cut(text[at(from):], "\n")
		all = append(all, guard{name, set.Position(from).Line, strings.TrimSpace(line), without})
	}
	never := func(from, to token.Pos) string {
		return text[:at(from)] + "false && (" + text[at(from):at(to)] + ")" + text[at(to):]
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			if leaves(n.Body.List) && !forwards(n) {
				add(n.Pos(), never(n.Cond.Pos(), n.Cond.End()))
			}
		case *ast.SwitchStmt:
			for _, s := range n.Body.List {
				c := s.(*ast.CaseClause)
				switch {
				case c.List == nil || !leaves(c.Body):
				case n.Tag != nil:
					add(c.Pos(), text[:at(c.Pos())]+text[at(c.End()):])
				case len(c.List) == 1:
					add(c.Pos(), never(c.List[0].Pos(), c.List[0].End()))
				default:
					add(c.Pos(), text[:at(c.Pos())]+"case false:"+text[at(c.Colon)+1:])
				}
			}
		}
		return true
	})
	return all, nil
}

// leaves reports whether the last statement leaves the function or the loop.
func leaves(body []ast.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	switch body[len(body)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// forwards reports whether the statement only returns an error that it has got: "if err != nil { return err }".
func forwards(n *ast.IfStmt) bool {
	cond, ok := n.Cond.(*ast.BinaryExpr)
	if !ok || cond.Op != token.NEQ || len(n.Body.List) != 1 {
		return false
	}
	x, isName := cond.X.(*ast.Ident)
	y, isNil := cond.Y.(*ast.Ident)
	ret, returns := n.Body.List[0].(*ast.ReturnStmt)
	if !isName || !isNil || y.Name != "nil" || !returns || len(ret.Results) == 0 {
		return false
	}
	last, ok := ret.Results[len(ret.Results)-1].(*ast.Ident)
	return ok && last.Name == x.Name
}
