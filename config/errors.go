package config

import (
	"fmt"
	"strings"
)

// Error is one error of a configuration.
type Error struct {
	File    string // the argument of Load; "" without a file
	Line    int    // counted from 1; 0: none
	Key     string // such as "listen", "ftp.active" or, counted from 1, "lock[2].max_age"; "" for the file itself
	Message string // with the correct form
}

// Error returns "file:line: key: message", without unknown parts.
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

// Errors has all errors of a configuration in the order of the lines. [Parse], [Load] and [Config.Validate] return it; use [errors.As].
type Errors []Error

// Error returns a line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}
