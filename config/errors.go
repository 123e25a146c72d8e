package config

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one thing that is wrong with a configuration.
type Error struct {
	File    string // as it was given to Load; "" when it did not come from a file
	Line    int    // counted from 1; 0 when it belongs to no line
	Key     string // such as "listen", "ftp.active" or, counted from 1, "lock[2].max_age"; "" for the file itself
	Message string // what would be right
}

// Error returns "file:line: key: message", without the parts that are not known.
func (e Error) Error() string {
	var b strings.Builder
	switch {
	case e.File != "" && e.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	case e.File != "":
		b.WriteString(e.File + ": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	return b.String() + e.Message
}

// Errors is all that is wrong with a configuration, in the order of the lines.
// It is what [Parse], [Load] and [Config.Validate] return; find it with [errors.As].
type Errors []Error

// Error returns one line for each.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// sorted returns them by line, or nil when there are none.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int { return a.Line - b.Line })
	return e
}
