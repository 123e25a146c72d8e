package driver

import (
	"io/fs"
	"path"
	"strings"
)

func hasGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

func cleaned(view string) string { return path.Clean("/" + view) }

var errTooMany = &refusal{text: "fits too many names", is: fs.ErrInvalid}

// globbing is the search for what a pattern with *, ? and [...] in any of its elements fits. Names that begin with
// a dot are found by patterns that do, or with all.
type globbing struct {
	client *client
	all    bool
	looks  int // how many names it looked at: in a tree with links it could go in circles
}

// glob finds what a pattern fits, or fails with errTooMany.
func (c *client) glob(pattern string, all bool) ([]entry, error) {
	// Cleaned, as every path is: each ".." that follows a star would look at the whole directory again.
	pattern = path.Clean(pattern)
	shown := ""
	if strings.HasPrefix(pattern, "/") {
		shown = "/"
	}
	g := globbing{client: c, all: all}
	found := []entry{{shown: shown}}
	for element := range strings.SplitSeq(strings.Trim(pattern, "/"), "/") {
		var next []entry
		for _, e := range found {
			next = append(next, g.element(e.shown, element)...)
			if g.looks > c.server.maxLooks {
				return nil, errTooMany
			}
		}
		found = next
	}
	return found, nil
}

// element finds what one element of the pattern fits in a directory.
func (g *globbing) element(dir, element string) []entry {
	g.looks++
	if !hasGlob(element) {
		name := joinShown(dir, element)
		info, err := g.client.stat(g.client.abs(name))
		if err != nil {
			return nil
		}
		return []entry{entryOf(name, info)}
	}
	entries, err := g.client.list(g.client.abs(dir))
	if err != nil {
		return nil
	}
	g.looks += len(entries)
	var found []entry
	for _, e := range entries {
		hidden := strings.HasPrefix(e.shown, ".") && !strings.HasPrefix(element, ".") && !g.all
		if fits, err := path.Match(element, e.shown); err == nil && fits && !hidden {
			e.shown = joinShown(dir, e.shown)
			found = append(found, e)
		}
	}
	return found
}

// joinShown is path.Join without cleaning: the client gets back the directory as it wrote it.
func joinShown(dir, name string) string {
	if dir == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}
