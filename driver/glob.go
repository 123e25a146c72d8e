package driver

import (
	"io"
	"io/fs"
	"path"
	"strings"
)

func hasGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

func cleaned(view string) string { return path.Clean("/" + view) }

// patternMax is how long a pattern may be.
const patternMax = 1024

var (
	errTooMany     = &refusal{text: "fits too many names", is: fs.ErrInvalid}
	errLongPattern = &refusal{text: "is too long for a pattern", is: fs.ErrInvalid}
)

// globbing is the search for what a pattern with *, ? and [...] in any of its elements fits; there are no braces. Names that begin
// with a dot are found by patterns that do, or with all. It ends when its client has gone.
type globbing struct {
	client *client
	all    bool
	looks  int // how many names it looked at: in a tree with links it could go in circles
}

// glob finds the directories in which the last element of a pattern is to be looked for, or single names if that is no pattern.
func (g *globbing) glob(pattern string) ([]source, error) {
	// Cleaned, as every path is: each ".." that follows a star would look at the whole directory again.
	if pattern = path.Clean(pattern); len(pattern) > patternMax {
		return nil, errLongPattern
	}
	shown := ""
	if strings.HasPrefix(pattern, "/") {
		shown = "/"
	}
	elements := strings.Split(strings.Trim(pattern, "/"), "/")
	last := len(elements) - 1
	directories := []string{shown}
	for _, element := range elements[:last] {
		var next []string
		for _, dir := range directories {
			if err := g.directories(dir, element, &next); err != nil {
				return nil, err
			}
		}
		directories = next
	}
	var found []source
	for _, dir := range directories {
		in := source{view: g.client.abs(dir), shown: dir, pattern: elements[last]}
		if !hasGlob(in.pattern) {
			in = source{view: g.client.abs(joinShown(dir, in.pattern)), shown: joinShown(dir, in.pattern), single: true}
			if err := g.look(1); err != nil {
				return nil, err
			}
			if _, err := g.client.stat(in.view); err != nil {
				continue
			}
		}
		found = append(found, in)
	}
	return found, nil
}

// look counts names that are looked at. It fails when there were too many, or nobody waits for what they fit.
func (g *globbing) look(names int) error {
	g.looks += names
	switch {
	case g.looks > g.client.server.maxLooks:
		return errTooMany
	case g.client.conn.Gone():
		return errHungUp
	}
	return nil
}

// directories adds those that one element of the pattern fits in a directory.
func (g *globbing) directories(dir, element string, found *[]string) error {
	c := g.client
	if !hasGlob(element) {
		name := joinShown(dir, element)
		if info, err := c.stat(c.abs(name)); err == nil && info.IsDir() {
			*found = append(*found, name)
		}
		return g.look(1)
	}
	names, err := c.openNames(c.abs(dir))
	if err != nil {
		return g.look(1)
	}
	defer names.Close()
	for {
		piece, err := names.next()
		if err == io.EOF {
			return g.look(1)
		}
		if err != nil {
			return err
		}
		if err := g.look(len(piece)); err != nil {
			return err
		}
		for _, name := range piece {
			if !g.fits(element, name) {
				continue
			}
			if e, ok := names.describe(name); !ok || !e.info.IsDir() {
				continue
			}
			if *found = append(*found, joinShown(dir, name)); len(*found) > singlesMax {
				return errTooMany
			}
		}
	}
}

// fits reports whether an element of the pattern fits a name.
func (g *globbing) fits(element, name string) bool {
	if strings.HasPrefix(name, ".") && !strings.HasPrefix(element, ".") && !g.all {
		return false
	}
	fits, err := path.Match(element, name)
	return err == nil && fits
}

// joinShown is path.Join without cleaning: the client gets back the directory as it wrote it.
func joinShown(dir, name string) string {
	if dir == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}
