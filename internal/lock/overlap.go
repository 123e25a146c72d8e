package lock

import (
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// element is the parts of a glob that stand between two slashes, with the first slash.
type element []part

func elementsOf(parts []part) []element {
	var all []element
	for _, p := range parts {
		if p.begins() {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], p)
	}
	return all
}

func isDeep(e element) bool { return e[0].kind == partDeep }

// overlap reports whether some path may fit both globs. It never returns false wrongly. It may return true wrongly for globs with
// braces or classes of characters.
func overlap(a, b []element) bool {
	return common(len(a), len(b),
		func(i int) bool { return isDeep(a[i]) }, func(j int) bool { return isDeep(b[j]) },
		func(i, j int) bool { return overlapParts(a[i], b[j]) })
}

// common decides whether two sequences have a common form, where some members of each stand for any number
// of the other's, and all others for one.
func common(m, n int, anyA, anyB func(int) bool, same func(i, j int) bool) bool {
	can := make([][]bool, m+1)
	for i := m; i >= 0; i-- {
		can[i] = make([]bool, n+1)
		for j := n; j >= 0; j-- {
			switch {
			case i == m && j == n:
				can[i][j] = true
			case i < m && anyA(i):
				can[i][j] = can[i+1][j] || j < n && can[i][j+1]
			case j < n && anyB(j):
				can[i][j] = can[i][j+1] || i < m && can[i+1][j]
			case i < m && j < n:
				can[i][j] = can[i+1][j+1] && same(i, j)
			}
		}
	}
	return can[0][0]
}

// unit is a byte of a literal, or a wildcard.
type unit struct {
	part
	char byte
}

func (u unit) any() bool { return u.kind == partStar || u.kind == partBraces }

func overlapParts(a, b []part) bool {
	ua, ub := units(a), units(b)
	return common(len(ua), len(ub),
		func(i int) bool { return ua[i].any() }, func(j int) bool { return ub[j].any() },
		func(i, j int) bool { return ua[i].meets(ub[j]) })
}

// units splits parts into bytes and wildcards. A wildcard for one character may stand for several bytes, since a character may have up
// to four.
func units(parts []part) []unit {
	var all []unit
	for _, p := range parts {
		switch p.kind {
		case partLiteral:
			for i := range len(p.text) {
				all = append(all, unit{p, p.text[i]})
			}
		case partOne: // of up to four bytes
			all = append(all, unit{part: p}, unit{part: part{kind: partStar, text: "*"}})
		default:
			all = append(all, unit{part: p})
		}
	}
	return all
}

// meets compares two units that both stand for one byte, or the first of a character.
func (u unit) meets(o unit) bool {
	switch {
	case u.kind == partLiteral && o.kind == partLiteral:
		return u.char == o.char
	case u.kind == partLiteral:
		return u.char >= utf8.RuneSelf || o.isText(string(rune(u.char)))
	case o.kind == partLiteral:
		return o.meets(u)
	}
	return true
}

// isText reports whether a wildcard may stand for the text, which has no slash.
func (p part) isText(text string) bool {
	return p.text == "*" || p.text == "?" || doublestar.MatchUnvalidated(escape(p.text), escape(text))
}

// begins reports whether the part is the first one of an element.
func (p part) begins() bool {
	return p.kind == partDeep || p.kind == partLiteral && strings.HasPrefix(p.text, "/")
}
