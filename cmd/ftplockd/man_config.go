package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

var (
	tableLine = regexp.MustCompile(`^(\[+[a-z]+\]+)$`)
	keyLine   = regexp.MustCompile(`^[a-z_]+ = `)
)

// configurationPage returns the manual page ftplockd.toml(5), made from the example configuration: a section for each table, and in it
// each key with its default and its comment.
func configurationPage(example []byte) []byte {
	var page bytes.Buffer
	page.WriteString(".TH FTPLOCKD.TOML 5 \"\" ftplockd ftplockd\n.SH NAME\nftplockd.toml \\- configuration of ftplockd\n.SH DESCRIPTION\n")
	var comment []string // not written yet
	put := func() {
		for _, line := range comment {
			page.WriteString(roff(line) + "\n")
		}
		comment = nil
	}
	title := "" // of the table whose introduction comes before its name
	for line := range strings.Lines(string(example)) {
		line = strings.TrimRight(line, "\n")
		// Sample tables are comments: there "# # text" is the comment, and "# key = value" the key.
		if inner, ok := strings.CutPrefix(line, "# "); ok && (tableLine.MatchString(inner) || keyLine.MatchString(inner) || strings.HasPrefix(inner, "# ")) {
			line = inner
		}
		switch {
		case tableLine.MatchString(line):
			if line == title {
				break // a further sample of the same table
			}
			title = line
			fmt.Fprintf(&page, ".SH %s\n", roff(line))
			put()
		case keyLine.MatchString(line):
			if len(comment) == 0 {
				break // in a further sample
			}
			fmt.Fprintf(&page, ".TP\n\\fB%s\\fR\n", roff(line))
			put()
		case line == "#" && len(comment) == 0: // an empty line of a sample
		case strings.HasPrefix(line, "#"):
			comment = append(comment, strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
		case len(comment) > 0 && title == "": // the introduction of the file
			put()
			page.WriteString(".PP\n")
		}
	}
	page.WriteString(".SH FILES\n/etc/ftplockd/ftplockd.toml\n.SH SEE ALSO\n.BR ftplockd (8)\n")
	return page.Bytes()
}

// roff returns a line of text as groff(7) wants it.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
