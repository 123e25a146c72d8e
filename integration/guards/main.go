// Command guards removes guards of the server one at a time, and expects that a test fails.
//
//	go run ./integration/guards [-run REGEXP] [-list]
//	go run ./integration/guards -draw N [-seed S] [-run REGEXP]
//
// The first form takes the guards of integration/testdata/guards.txt, and the tests that the list names for each. It exits with 1 if a
// test passes or is skipped, or if an entry does not apply or does not build.
//
// The second form draws guards at random from the code of this module: an if or a case whose body leaves the function or the loop. It
// leaves out an if that only forwards an error. It runs the tests of the guard's package with -short, and prints the guards that no test
// of the package needs. Some of them are no fault: tests of another package may need them, or the code behind them has the same result.
package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	list := flag.Bool("list", false, "print the entries and run nothing")
	only := flag.String("run", "", "take only entries whose line in the output matches `REGEXP`; with -draw, only files whose path does")
	draw := flag.Int("draw", 0, "draw `N` guards at random")
	seed := flag.Uint64("seed", rand.Uint64(), "the seed of -draw")
	timeout := flag.Duration("timeout", 5*time.Minute, "end a test run after this time; it counts as a failure")
	verbose := flag.Bool("v", false, "print the output of the tests")
	flag.Parse()
	r := runner{timeout: *timeout, log: io.Discard}
	if *verbose {
		r.log = os.Stderr
	}
	pattern, err := regexp.Compile(*only)
	if err == nil {
		r.root, err = moduleRoot()
	}
	ok := false
	switch {
	case err != nil:
	case *draw > 0:
		ok, err = true, r.draw(os.Stdout, *draw, *seed, pattern)
	default:
		ok, err = r.entries(os.Stdout, pattern, *list)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guards:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// moduleRoot returns the directory with go.mod, at or above the current one.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == filepath.Dir(dir) {
			return dir, err
		}
	}
	return "", err
}

// String returns the entry in one line.
func (e *Entry) String() string {
	var files []string
	for _, c := range e.Changes {
		files = append(files, c.File)
	}
	return fmt.Sprintf("%s:%d %s %s: %s", filepath.Base(File), e.Line, e.Promise, strings.Join(files, ", "), e.Title)
}

// entries runs the tests of each entry that matches, and reports whether all failed. With list it only prints the entries.
func (r runner) entries(w io.Writer, pattern *regexp.Regexp, list bool) (ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(r.root, File))
	if err != nil {
		return false, err
	}
	all, err := Parse(string(text))
	if err != nil {
		return false, fmt.Errorf("%s: %w", File, err)
	}
	var ran, bad int
	for _, e := range all {
		if !pattern.MatchString(e.String()) {
			continue
		}
		if list {
			fmt.Fprintln(w, e.String())
			continue
		}
		ran++
		isRed, outcome := r.entry(&e)
		if !isRed {
			bad++
		}
		fmt.Fprintf(w, "%s: %s\n", e.String(), outcome)
	}
	if !list {
		fmt.Fprintf(w, "%d guards, %d without a test that fails\n", ran, bad)
	}
	return list || ran > 0 && bad == 0, nil
}

// entry runs each test of an entry, and reports whether all failed.
func (r runner) entry(e *Entry) (isRed bool, outcome string) {
	if err := e.Check(r.root); err != nil {
		return false, err.Error()
	}
	files, err := e.Apply(r.root)
	if err != nil {
		return false, err.Error()
	}
	for _, t := range e.Tests {
		got, err := r.test(files, t.Package, t.pattern())
		if err != nil {
			return false, err.Error()
		}
		if got != red {
			return false, fmt.Sprintf("%s: %s %s", strings.ToUpper(string(got)), t.Package, t.Name)
		}
	}
	return true, string(red)
}
