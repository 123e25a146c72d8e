package driver

import (
	"cmp"
	"path"
	"strings"

	"github.com/ftplockd/ftplockd/internal/control"
)

func hasGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

// patternMax is how long a pattern may be.
const patternMax = 1024

var (
	errTooMany     = &refusal{text: "fits too many names"}
	errLongPattern = &refusal{text: "is too long for a pattern"}
)

// glob finds the names that a pattern fits: *, ? and [...] in any of its elements, no braces. The last element is
// looked for when the listing is sent. Only a pattern that begins with a dot, or -a, finds names that do.
func (l *listing) glob(pattern string) error {
	// Cleaned, as every path is: each ".." behind a star would search the whole directory again.
	if pattern = path.Clean(pattern); len(pattern) > patternMax {
		return errLongPattern
	}
	top := ""
	if strings.HasPrefix(pattern, "/") {
		top = "/"
	}
	l.sources = []source{{entry: entry{shown: top}}}
	elements := strings.Split(strings.Trim(pattern, "/"), "/")
	for i, element := range elements {
		if err := l.expand(element, i == len(elements)-1); err != nil {
			return err
		}
	}
	return nil
}

// expand replaces each source, a directory, by the names in it that one element of a pattern fits: directories, unless it is the last
// element.
func (l *listing) expand(element string, last bool) error {
	c := l.client
	directories := l.sources
	l.sources = nil
	add := func(s source) error {
		l.sources = append(l.sources, s)
		switch {
		case len(l.sources) > heldMax:
			return errTooMany
		case last && s.info == nil:
			return l.hold(len(s.shown) + len(s.in) + directoryBytes)
		case last:
			return l.hold(len(s.shown) + entryBytes)
		}
		return nil
	}
	for _, dir := range directories {
		c.look(c.conn.Command(), c.abs(dir.shown))
		var err error
		switch {
		case last && hasGlob(element):
			err = add(source{entry{shown: dir.shown}, c.abs(dir.shown), element})
		case hasGlob(element):
			err = l.eachIn(c.abs(dir.shown), element, func(names *names, name string) error {
				info, _, err := names.describe(name)
				if info == nil || !info.IsDir() {
					return err
				}
				return add(source{entry: entry{shown: joinShown(dir.shown, name)}})
			})
		default:
			shown := joinShown(dir.shown, element)
			info, serr := c.stat(c.abs(shown))
			err = cmp.Or(c.unforeseen(serr), l.look(1))
			if err == nil && serr == nil && (last || info.IsDir()) {
				err = add(source{entry: entry{shown: shown, info: info}})
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// look counts names that a pattern looks at. It fails when there are too many, or the client is gone.
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

// fits reports whether a name in a directory is shown. A name with a line end would look like two.
func (l *listing) fits(pattern, name string) bool {
	if strings.ContainsAny(name, "\r\n") || strings.HasPrefix(name, ".") && !strings.HasPrefix(pattern, ".") && !l.options.has("aA") {
		return false
	}
	fits, err := path.Match(cmp.Or(pattern, "*"), name)
	return err == nil && fits
}

// joinShown is path.Join without cleaning: the client reads the directory as it wrote it.
func joinShown(dir, name string) string {
	if dir == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}
