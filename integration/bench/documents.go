//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The documents that figures go into, and the marks between which they stand.
const (
	readmeFile = "README.md"
	benchFile  = "docs/bench.md"

	firstMark = "<!-- bench: begin; `go run ./integration/bench -readme` writes what follows -->\n"
	lastMark  = "<!-- bench: end -->\n"
)

// intoDocuments rewrites the documents below the directory and the plots that they show.
func (r *report) intoDocuments(dir string) error {
	long := fmt.Sprintf("![Lock pairs per second](%s)\n\n![Transfers](%s)\n\n%s", locksPlot, filesPlot, r.long())
	brief := fmt.Sprintf("![Lock pairs per second against connections](docs/%s)\n\n%s\n"+
		"Made by `go run ./integration/bench -readme`. All rows, and how each server was set up: [docs/bench.md](%s).\n", locksPlot, r.brief(), benchFile)
	return errors.Join(
		r.plotLocks(filepath.Join(dir, "docs", locksPlot)),
		r.plotFiles(filepath.Join(dir, "docs", filesPlot)),
		rewrite(filepath.Join(dir, readmeFile), brief),
		rewrite(filepath.Join(dir, benchFile), long),
	)
}

// rewrite replaces what is between the marks in a file.
func rewrite(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(old), firstMark)
	_, after, ended := strings.Cut(rest, lastMark)
	if !begun || !ended {
		return fmt.Errorf("%s lacks the line %q or, after it, %q", file, firstMark, lastMark)
	}
	return os.WriteFile(file, []byte(before+firstMark+"\n"+text+"\n"+lastMark+after), 0o644)
}
