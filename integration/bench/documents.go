//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The documents with figures, and the marks around the figures.
const (
	readmeFile = "README.md"
	benchFile  = "docs/bench.md"

	firstMark = "<!-- bench: begin; `go run ./integration/bench -readme` writes this part -->\n"
	lastMark  = "<!-- bench: end -->\n"
)

// intoDocuments writes the figures into the documents below the directory.
func (r *report) intoDocuments(dir string) error {
	brief := fmt.Sprintf("%s\n`go run ./integration/bench -readme` made this table. [docs/bench.md](%s) has all rows and the configuration of each server.\n", r.brief(), benchFile)
	return errors.Join(rewrite(filepath.Join(dir, readmeFile), brief), rewrite(filepath.Join(dir, benchFile), r.long()))
}

// rewrite replaces the text between the marks in a file.
func rewrite(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(old), firstMark)
	_, after, ended := strings.Cut(rest, lastMark)
	if !begun || !ended {
		return fmt.Errorf("%s lacks the line %q or, below it, the line %q", file, firstMark, lastMark)
	}
	return os.WriteFile(file, []byte(before+firstMark+"\n"+text+"\n"+lastMark+after), 0o644)
}
