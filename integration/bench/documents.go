//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
)

// The page with the figures, and the marks around them.
const (
	benchFile = "docs/bench.md"

	firstMark = "<!-- bench: begin; `go run ./integration/bench -write` writes this part -->\n"
	lastMark  = "<!-- bench: end -->\n"
)

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
