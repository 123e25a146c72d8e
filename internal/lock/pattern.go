package lock

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// pattern is one of the protected paths of a rule. It maps a path to the names of its locks. The text that a wildcard matched counts
// literally, never as a glob.
type pattern struct {
	rule       *compiledRule // its rule
	parts      []part
	matchParts []part    // of the rule
	elements   []matcher // of parts, compiled
	template   []part    // matchParts with one part for wildcards that follow each other in parts as in match
	wildcards  int       // number of wildcards in match
	index      int       // number of the path in the rule, from 0
}

// part is a piece of a glob. Each element of a glob begins with a literal that contains its slash, or is a single part: a **.
type part struct {
	kind     partKind
	text     string // the text of a literal, otherwise the glob
	wildcard int    // the number of the wildcard in match that it is or refers to; 0: none
}

type partKind uint8

const (
	partLiteral partKind = iota
	partStar             // *: any bytes but slashes
	partOne              // ? or [a-z]: one character
	partBraces           // {a,b}, as doublestar matches it
	partDeep             // **: any number of elements, each with its slash, none as well
)

// splitGlob splits a valid glob into parts. Its wildcards are numbered from 1 on. With refer, $n stands for a part of another glob, and
// wildcards have no numbers.
func splitGlob(glob string, refer func(n int) (part, error)) (parts []part, wild int, err error) {
	for element := range strings.SplitSeq(strings.TrimPrefix(glob, "/"), "/") {
		literal := "/"
		add := func(p part) {
			if p.kind == partDeep {
				literal = "" // a ** has the slash before it
			}
			if literal != "" {
				parts = append(parts, part{kind: partLiteral, text: literal})
				literal = ""
			}
			if p.wildcard == 0 && refer == nil {
				wild++
				p.wildcard = wild
			}
			parts = append(parts, p)
		}
		for rest := element; rest != ""; {
			n := 1
			switch c := rest[0]; {
			case element == "**":
				n = 2
				add(part{kind: partDeep})
			case c == '\\' && len(rest) > 1:
				literal += rest[1:2]
				n = 2
			case c == '*': // several are like one
				n = len(rest) - len(strings.TrimLeft(rest, "*"))
				add(part{kind: partStar, text: "*"})
			case c == '?':
				add(part{kind: partOne, text: "?"})
			case c == '[':
				n = bracketLength(rest, '[', ']')
				add(part{kind: partOne, text: rest[:n]})
			case c == '{':
				if n = bracketLength(rest, '{', '}'); n == 0 {
					return nil, 0, fmt.Errorf("%s/ has a slash in it, which does not go with protects", rest)
				}
				add(part{kind: partBraces, text: rest[:n]})
			case c == '$' && refer != nil && len(digits(rest[1:])) > 0:
				number := digits(rest[1:])
				n = 1 + len(number)
				i, err := strconv.Atoi(number)
				if err != nil {
					return nil, 0, fmt.Errorf("$%s: no such number", number)
				}
				p, err := refer(i)
				if err != nil {
					return nil, 0, err
				}
				if p.kind == partDeep && len(element) != n {
					return nil, 0, fmt.Errorf("$%d stands for a **, so there must be nothing else between its slashes", i)
				}
				add(p)
			default:
				literal += rest[:1]
			}
			rest = rest[n:]
		}
		if literal != "" {
			parts = append(parts, part{kind: partLiteral, text: literal})
		}
		if literal == "/" || literal == "/." || literal == "/.." {
			return nil, 0, errors.New(`fits no path: none has "//", ".", ".." or a slash at its end`)
		}
	}
	return parts, wild, nil
}

// digits returns the digits at the beginning of the text.
func digits(text string) string {
	return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
}

// bracketLength returns the length of the text up to the bracket that closes the first one; 0 if none does.
func bracketLength(text string, open, shut byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case open:
			if depth == 0 || open == '{' { // there are no classes in classes
				depth++
			}
		case shut:
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// newPattern compiles a pattern for the locks of a rule.
func newPattern(rule *compiledRule, text, match string) (*pattern, error) {
	p := &pattern{rule: rule}
	if !doublestar.ValidatePattern(text) || text == "" {
		return nil, errors.New("is no glob; a bracket or brace is not closed")
	}
	var err error
	if p.matchParts, p.wildcards, err = splitGlob(match, nil); err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	wildcards := make([]part, p.wildcards+1)
	for _, w := range p.matchParts {
		wildcards[w.wildcard] = w
	}
	used := make([]bool, p.wildcards+1)
	p.parts, _, err = splitGlob(text, func(n int) (part, error) {
		if n < 1 || n > p.wildcards {
			return part{}, fmt.Errorf("$%d: match has %s", n, wildcardCount(p.wildcards))
		}
		used[n] = true
		return wildcards[n], nil
	})
	if err != nil {
		return nil, err
	}
	for n := 1; n <= p.wildcards; n++ {
		if !used[n] {
			return nil, fmt.Errorf("lacks $%d: any number of locks would protect the same path", n)
		}
	}
	if err := p.compile(); err != nil {
		return nil, err
	}
	return p, nil
}

func wildcardCount(n int) string {
	switch n {
	case 0:
		return "no wildcards"
	case 1:
		return "one wildcard"
	}
	return fmt.Sprintf("%d wildcards", n)
}

// example returns a path that the pattern fits.
func (p *pattern) example() Name {
	text := ""
	for _, part := range p.parts {
		text += part.example()
	}
	return Name(text)
}

func (p part) example() string {
	switch p.kind {
	case partLiteral:
		return p.text
	case partDeep:
		return "/~"
	}
	for c := '~'; c > ' '; c-- {
		if p.isText(string(c)) {
			return string(c)
		}
	}
	first, _, _ := strings.Cut(strings.Trim(p.text, "{}"), ",")
	return first
}

// isText reports whether a wildcard may stand for the text, which has no slash.
func (p part) isText(text string) bool {
	return p.text == "*" || p.text == "?" || doublestar.MatchUnvalidated(escape(p.text), escape(text))
}

// begins reports whether the part is the first one of an element.
func (p part) begins() bool {
	return p.kind == partDeep || p.kind == partLiteral && strings.HasPrefix(p.text, "/")
}

// names calls found with each name of a lock that the pattern derives from the path. It returns false if there are more than maxWays.
func (p *pattern) names(path Name, found func(Name)) bool {
	s := p.newFitting(false)
	s.found = func() {
		if n, ok := p.expand(s.values); ok {
			found(n)
		}
	}
	s.fit(p.elements, string(path))
	return s.ways <= maxWays
}

// below reports whether the pattern may fit a path below the directory. It may return true wrongly.
func (p *pattern) below(dir Name) bool {
	if dir == "/" {
		return true
	}
	s := p.newFitting(true)
	s.found = func() { s.ways = maxWays } // one is enough
	s.fit(p.elements, string(dir))
	return s.ways > 0
}

// belowLink is below for a link. With the match `**/x`, a link above both the file and its lock changes both
// paths alike, so it hides nothing.
func (p *pattern) belowLink(dir Name) bool {
	lock, file := elementsOf(p.matchParts), elementsOf(p.parts)
	if len(lock) != 2 || lock[0][0].kind != partDeep || lock[1][0].kind == partDeep || file[0][0] != lock[0][0] {
		return p.below(dir)
	}
	afterDeep := *p
	afterDeep.elements = p.elements[1:]
	for i := range dir {
		if dir[i] == '/' && i+1 < len(dir) && afterDeep.below(dir[i:]) {
			return true
		}
	}
	return false
}

// expand replaces the wildcards of match by the values. It returns false if the result is no clean path.
func (p *pattern) expand(values []string) (Name, bool) {
	name := ""
	for _, part := range p.template {
		if part.kind == partLiteral {
			name += part.text
		} else {
			name += values[part.wildcard]
		}
	}
	return Name(name), name != "" && path.Clean(name) == name
}
