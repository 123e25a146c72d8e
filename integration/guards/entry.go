package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// File has the list of guards.
const File = "integration/testdata/guards.txt"

// An Entry removes one guard of the server, and names the tests that fail without it.
type Entry struct {
	Line    int    // of its first line
	Promise string // its number in docs/guarantees.md
	Title   string // the change in words
	Tests   []Test
	Changes []Change
}

// A Test is the name of a test, such as "TestServerScripts/stop", in the directory of a package.
type Test struct{ Package, Name string }

// A Change replaces lines of a file. The spaces around a line do not count.
type Change struct {
	File     string
	Old, New []string
}

// Parse returns the entries of a list. Its first comment describes the format.
func Parse(text string) (all []Entry, err error) {
	var e *Entry
	for i, line := range strings.Split(text, "\n") {
		keyword, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "":
			e = nil
			continue
		case line[0] == '#':
			continue
		case e == nil && keyword != "promise":
			return nil, fmt.Errorf("line %d: no entry begins with %q", i+1, line)
		}
		switch keyword {
		case "promise":
			if e != nil {
				return nil, fmt.Errorf("line %d: no empty line before the entry", i+1)
			}
			all = append(all, Entry{Line: i + 1})
			e = &all[len(all)-1]
			e.Promise, e.Title, _ = strings.Cut(rest, ": ")
		case "test":
			in, names, _ := strings.Cut(rest, ": ")
			for name := range strings.SplitSeq(names, ", ") {
				e.Tests = append(e.Tests, Test{in, name})
			}
		case "file":
			e.Changes = append(e.Changes, Change{File: rest})
		default:
			if len(e.Changes) == 0 || !strings.ContainsRune(" -+", rune(line[0])) {
				return nil, fmt.Errorf("line %d: %q is neither a keyword nor a changed line", i+1, line)
			}
			c := &e.Changes[len(e.Changes)-1]
			if line[0] != '+' {
				c.Old = append(c.Old, strings.TrimSpace(line[1:]))
			}
			if line[0] != '-' {
				c.New = append(c.New, line[1:])
			}
		}
	}
	return all, nil
}

// Apply returns the changed files by their paths below root. It returns an error if the old lines of a change are not in its file exactly once.
func (e *Entry) Apply(root string) (map[string]string, error) {
	files := make(map[string]string)
	for _, c := range e.Changes {
		text, ok := files[c.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, c.File))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		lines := strings.Split(text, "\n")
		var at []int
		for i := range lines {
			if len(c.Old) > 0 && i+len(c.Old) <= len(lines) && equalTrimmed(lines[i:i+len(c.Old)], c.Old) {
				at = append(at, i)
			}
		}
		if len(at) != 1 {
			return nil, fmt.Errorf("%s has %d times %q, want once: put the guard's new text into the entry", c.File, len(at), strings.Join(c.Old, "\n"))
		}
		files[c.File] = strings.Join(slices.Replace(lines, at[0], at[0]+len(c.Old), c.New...), "\n")
	}
	return files, nil
}

func equalTrimmed(lines, trimmed []string) bool {
	return slices.EqualFunc(lines, trimmed, func(a, b string) bool { return strings.TrimSpace(a) == b })
}

// Check returns an error if the entry does not apply, or if one of its tests does not exist.
func (e *Entry) Check(root string) error {
	_, err := e.Apply(root)
	errs := []error{err}
	if e.Promise == "" || e.Title == "" || len(e.Tests) == 0 || len(e.Changes) == 0 {
		errs = append(errs, errors.New("an entry needs a promise with a title, a test and a file"))
	}
	for _, t := range e.Tests {
		if !t.exists(root) {
			errs = append(errs, fmt.Errorf("package %s has no test %q", t.Package, t.Name))
		}
	}
	return errors.Join(errs...)
}

// exists reports whether the package declares the test. A script is a test, too.
func (t Test) exists(root string) bool {
	name, script, isScript := strings.Cut(t.Name, "/")
	if isScript {
		dirs := map[string]string{"TestServerScripts": "server", "TestNetlockScripts": "netlock"}
		if _, err := os.Stat(filepath.Join(root, t.Package, "testdata", dirs[name], script+".txtar")); err != nil {
			return false
		}
	}
	files, _ := filepath.Glob(filepath.Join(root, t.Package, "*_test.go")) // the pattern is correct
	declaration := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(t \*testing\.T\)`)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && declaration.Match(text)
	})
}

// pattern returns the value of -run for the test alone. A script may run twice, with and without directories.
func (t Test) pattern() string {
	if name, script, ok := strings.Cut(t.Name, "/"); ok {
		return "^" + name + "$/^" + script + "(true|false)?$"
	}
	return "^" + t.Name + "$"
}
