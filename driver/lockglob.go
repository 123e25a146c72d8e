package driver

import (
	"errors"
	"path"
	"strings"
)

const (
	// maxGlob is how long a glob of SITE LOCKS may be.
	maxGlob = 256
	// maxGlobWork bounds the work of one SITE LOCKS: the sum over all comparisons of the lengths that were compared, multiplied.
	maxGlobWork = 200_000_000
	// gonePause is after how many locks it is looked again whether the client is still there.
	gonePause = 1000
)

var errGlobWork = errors.New("too much work for a pattern: shorten it")

// lockGlob is a glob that a client sent: * is any characters but a slash, ** any number of whole elements, ? one
// character, [a-z] one of several. It has no braces: thirty of them would keep the server busy for ever.
type lockGlob struct {
	elements []string
	work     int
}

// newLockGlob reads a glob. One without a leading slash gets one.
func newLockGlob(text string) (*lockGlob, error) {
	switch {
	case len(text) > maxGlob:
		return nil, errors.New("a pattern has at most 256 bytes")
	case strings.ContainsAny(text, "{}"):
		return nil, errors.New("a pattern here has *, **, ? and [a-z], and no braces")
	}
	g := &lockGlob{elements: strings.Split(strings.TrimPrefix(text, "/"), "/")}
	for _, e := range g.elements {
		if _, err := path.Match(e, ""); err != nil {
			return nil, errors.New("no such pattern: " + quoted(text))
		}
	}
	return g, nil
}

// fits reports whether the glob fits a whole path. The last ** that stood for too few elements stands for one more; no
// earlier one needs to be tried again.
func (g *lockGlob) fits(view string) (bool, error) {
	names := strings.Split(strings.TrimPrefix(view, "/"), "/")
	deep, from := -1, 0 // the last **, and the first element behind what it stands for
	i, j := 0, 0
	for j < len(names) {
		if g.work > maxGlobWork {
			return false, errGlobWork
		}
		switch {
		case i < len(g.elements) && g.elements[i] == "**":
			deep, from = i, j
			i++
		case i < len(g.elements) && g.matches(g.elements[i], names[j]):
			i, j = i+1, j+1
		case deep >= 0:
			from++
			i, j = deep+1, from
		default:
			return false, nil
		}
	}
	for i < len(g.elements) && g.elements[i] == "**" {
		i++
	}
	return i == len(g.elements), nil
}

func (g *lockGlob) matches(element, name string) bool {
	g.work += (len(element) + 1) * (len(name) + 1)
	ok, err := path.Match(element, name)
	return err == nil && ok
}
