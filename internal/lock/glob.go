package lock

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// nameGlob is a compiled doublestar glob over names: * is any bytes but a slash, ** any number of
// whole elements, ? one character or one byte that is no UTF-8, [a-z] and {a,b} as usual; a
// backslash takes the next character as it is. Letters match in their own case only. A glob
// without a leading slash gets one, so that "**/phone_lock" matches /phone_lock and /a/phone_lock.
// It is for use by several goroutines.
type nameGlob struct {
	text    string
	shape   shape
	literal string // what shape compares with
	first   string // for shapeLast, too
	pattern string // for shapeAny: escaped as names are
}

// shape is a form of glob that is matched faster than in general: a rule is looked up for
// every command of every client.
type shape uint8

const (
	shapeAny    shape = iota // whatever doublestar says
	shapeEqual               // "/phone_lock"
	shapeBelow               // "/locks/**": literal is "/locks/"
	shapeSuffix              // "**/*_lock" with "_lock", "**/phone_lock" with "/phone_lock"
	shapeLast                // "**/.*-lock": the last element begins with "." and ends with "-lock"
	shapeAll                 // "**"
)

const meta = `*?[{\`

// newGlob compiles a glob. Its errors say what is wrong with it.
func newGlob(glob string) (*nameGlob, error) {
	if glob == "" {
		return nil, fmt.Errorf("the glob is empty")
	}
	rooted := "/" + strings.TrimPrefix(glob, "/")
	if !doublestar.ValidatePattern(rooted) {
		return nil, fmt.Errorf("bad glob %q", glob)
	}
	if escapesSlash(rooted) {
		return nil, fmt.Errorf("glob %q escapes a slash, which never stands for anything else", glob)
	}
	for element := range strings.SplitSeq(rooted[1:], "/") {
		if element == "" || element == "." || element == ".." {
			return nil, fmt.Errorf("glob %q can match nothing: it has an element %q", glob, element)
		}
	}
	g := &nameGlob{text: glob, pattern: escape(rooted)}
	g.shape, g.first, g.literal = shapeOf(rooted)
	return g, nil
}

// escapesSlash reports whether a backslash takes a slash as it is.
func escapesSlash(glob string) bool {
	for i := 0; i+1 < len(glob); i++ {
		if glob[i] == '\\' {
			i++
			if glob[i] == '/' {
				return true
			}
		}
	}
	return false
}

func shapeOf(glob string) (s shape, first, literal string) {
	plain := func(s string) bool { return !strings.ContainsAny(s, meta) }
	if plain(glob) {
		return shapeEqual, "", glob
	}
	if glob == "/**" {
		return shapeAll, "", ""
	}
	if base, ok := strings.CutSuffix(glob, "/**"); ok && plain(base) {
		return shapeBelow, "", base + "/"
	}
	if last, ok := strings.CutPrefix(glob, "/**/*"); ok && plain(last) && !strings.Contains(last, "/") {
		return shapeSuffix, "", last
	}
	if last, ok := strings.CutPrefix(glob, "/**"); ok && plain(last) && strings.HasPrefix(last, "/") {
		return shapeSuffix, "", last
	}
	if last, ok := strings.CutPrefix(glob, "/**/"); ok && !strings.Contains(last, "/") && utf8.ValidString(last) {
		if first, literal, ok := strings.Cut(last, "*"); ok && plain(first) && plain(literal) {
			return shapeLast, first, literal
		}
	}
	return shapeAny, "", ""
}

// String returns the glob as it was given to newGlob.
func (g *nameGlob) String() string { return g.text }

// Match reports whether the glob matches the whole name.
func (g *nameGlob) Match(n Name) bool {
	s := string(n)
	switch g.shape {
	case shapeEqual:
		return s == g.literal
	case shapeBelow:
		return strings.HasPrefix(s, g.literal) || s == g.literal[:len(g.literal)-1]
	case shapeSuffix:
		return strings.HasSuffix(s, g.literal)
	case shapeLast:
		if !strings.HasSuffix(s, g.literal) {
			return false
		}
		last := s[strings.LastIndexByte(s, '/')+1:]
		return len(last) >= len(g.first)+len(g.literal) && strings.HasPrefix(last, g.first)
	case shapeAll:
		return true
	}
	return doublestar.MatchUnvalidated(g.pattern, escape(s))
}

// escape gives each byte that is no UTF-8 a character of its own at the end of Unicode's
// last private area. doublestar reads all of them as U+FFFD, so that any would match any other.
func escape(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 {
			r = 0x10FF00 + rune(s[0])
		}
		b.WriteRune(r)
		s = s[size:]
	}
	return b.String()
}
