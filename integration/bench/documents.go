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

	firstMark = "<!-- bench: begin; `go run ./integration/bench -readme` writes what follows -->"
	lastMark  = "<!-- bench: end -->"
)

// checkDocuments is an error unless all documents below the directory have both marks.
func checkDocuments(dir string) error {
	var errs []error
	for _, name := range []string{readmeFile, benchFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			_, err = between(string(text), "")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// between puts a text between the marks of a document. Each mark is to be there once, on a line of its own.
func between(document, text string) (string, error) {
	before, rest, begun := strings.Cut(document, firstMark+"\n")
	_, after, ended := strings.Cut(rest, lastMark+"\n")
	if !begun || !ended || strings.Contains(after, firstMark) || strings.Contains(before, lastMark) {
		return "", fmt.Errorf("it has not the lines %q and %q in that order, once", firstMark, lastMark)
	}
	return before + firstMark + "\n" + text + lastMark + "\n" + after, nil
}

// intoDocuments rewrites the documents below the directory and the plots that they show.
func (r *report) intoDocuments(dir string) error {
	return errors.Join(
		r.plot(filepath.Join(dir, "docs")),
		rewrite(filepath.Join(dir, readmeFile), r.short()),
		rewrite(filepath.Join(dir, benchFile), r.long()),
	)
}

// rewrite replaces what is between a file's marks. The file is the old one or the new one, whatever happens.
func rewrite(name, text string) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	content, err := between(string(old), text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	temporary := name + ".new"
	if err := os.WriteFile(temporary, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}

// long is what docs/bench.md has: everything.
func (r *report) long() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n![Lock pairs per second](%s)\n\n![Transfers](%s)\n\n", locksPlot, filesPlot)
	r.print(&b)
	fmt.Fprintf(&b, "\n### How each server ran\n\n")
	for _, s := range r.Servers {
		fmt.Fprintf(&b, "%s\n", s)
	}
	return b.String()
}

// short is what the README has: a plot and a table of a dozen lines.
func (r *report) short() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n![Lock pairs per second against connections](docs/%s)\n\n", locksPlot)
	r.shortTable(&b)
	fmt.Fprintf(&b, "\n%s. In parentheses: times vsftpd's figure. \"Synced\": a lock or file is on the disk before the reply says so, as it is by default; no other server does that. ", r.Machine)
	fmt.Fprintf(&b, "Made by `go run ./integration/bench -readme`; all rows, how each server was set up, and which targets are met: [docs/bench.md](%s).\n\n", benchFile)
	return b.String()
}
