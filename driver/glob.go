package driver

import (
	"cmp"
	"io/fs"
	"path"
	"strings"

	"github.com/ftplockd/ftplockd/internal/control"
)

func hasGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

// patternMax is how long a pattern may be.
const patternMax = 1024

var (
	errTooMany     = &refusal{text: "fits too many names", is: fs.ErrInvalid}
	errLongPattern = &refusal{text: "is too long for a pattern", is: fs.ErrInvalid}
)

// glob finds what a pattern with *, ? and [...] in any of its elements fits; there are no braces. The last element is
// looked for when the listing is sent. Names that begin with a dot are found by patterns that do, or with all.
func (l *listing) glob(pattern string) error {
	// Cleaned, as every path is: each ".." that follows a star would look at the whole directory again.
	if pattern = path.Clean(pattern); len(pattern) > patternMax {
		return errLongPattern
	}
	shown := ""
	if strings.HasPrefix(pattern, "/") {
		shown = "/"
	}
	elements := strings.Split(strings.Trim(pattern, "/"), "/")
	last := elements[len(elements)-1]
	directories := []string{shown}
	for _, element := range elements[:len(elements)-1] {
		var next []string
		for _, dir := range directories {
			if err := l.directories(dir, element, &next); err != nil {
				return err
			}
		}
		directories = next
	}
	for _, dir := range directories {
		if hasGlob(last) {
			view := l.client.abs(dir)
			l.sources = append(l.sources, source{view, dir, last})
			if err := l.hold(len(view) + len(dir)); err != nil {
				return err
			}
			continue
		}
		if err := l.look(1); err != nil {
			return err
		}
		shown := joinShown(dir, last)
		info, err := l.client.stat(l.client.abs(shown))
		if err == nil {
			l.held = append(l.held, entry{shown: shown, info: info})
			if err := l.hold(len(shown) + entryBytes); err != nil {
				return err
			}
		} else if err = l.client.unforeseen(err); err != nil {
			return err
		}
	}
	return nil
}

// look counts names that a pattern looks at. It fails when there were too many, or nobody waits for what it fits.
func (l *listing) look(names int) error {
	l.looks += names
	switch {
	case l.looks > l.client.server.maxLooks:
		return errTooMany
	case l.client.conn.Gone():
		return control.ErrHungUp
	}
	return nil
}

// directories adds those that one element of the pattern fits in a directory.
func (l *listing) directories(dir, element string, found *[]string) error {
	c := l.client
	if !hasGlob(element) {
		name := joinShown(dir, element)
		info, err := c.stat(c.abs(name))
		if err == nil && info.IsDir() {
			*found = append(*found, name)
		}
		return cmp.Or(c.unforeseen(err), l.look(1))
	}
	return l.eachIn(c.abs(dir), element, func(names *names, name string) error {
		if info, _, err := names.describe(name); info == nil || !info.IsDir() {
			return err
		}
		if *found = append(*found, joinShown(dir, name)); len(*found) > heldMax {
			return errTooMany
		}
		return nil
	})
}

// fits reports whether a name in a directory is shown.
func (l *listing) fits(pattern, name string) bool {
	if strings.HasPrefix(name, ".") && !strings.HasPrefix(pattern, ".") && !l.options.all {
		return false
	}
	fits, err := path.Match(cmp.Or(pattern, "*"), name)
	return err == nil && fits
}

// joinShown is path.Join without cleaning: the client gets back the directory as it wrote it.
func joinShown(dir, name string) string {
	if dir == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}
