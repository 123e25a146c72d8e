package lock

import (
	"errors"
	"fmt"
	"iter"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// pattern is one of the paths that a rule protects. It alone maps a protected path to the
// names of its locks. The text that a wildcard matched is taken literally, never as a glob.
type pattern struct {
	rule  *compiledRule // the rule that it belongs to
	parts []part
	match []part // of the rule
	wild  int    // how many wildcards match has
}

// part is a piece of a glob. Each element of the glob begins with a literal that has its slash, or is one part alone: a **.
type part struct {
	kind partKind
	text string // of a literal the literal text, else the glob
	n    int    // the number of the wildcard in match that this is, or stands for; 0: none of those
}

type partKind uint8

const (
	partLiteral partKind = iota
	partStar             // *: any bytes but slashes
	partOne              // ? or [a-z]: one character
	partBraces           // {a,b}, as doublestar matches it
	partDeep             // **: any number of elements, each with its slash, none as well
)

// splitter reads a glob.
type splitter struct {
	parts   []part
	first   int // of the parts of the element that is being read
	literal string
	wild    int
	refer   func(n int) (part, error) // what $n stands for; nil: $ is a character like others
}

// splitGlob splits a valid glob into parts. Its wildcards are numbered from 1 on, unless it refers to those of another.
func splitGlob(glob string, refer func(n int) (part, error)) ([]part, int, error) {
	s := splitter{refer: refer, literal: "/"}
	for rest := strings.TrimPrefix(glob, "/"); rest != ""; {
		n, err := s.next(rest)
		if err != nil {
			return nil, 0, err
		}
		rest = rest[n:]
	}
	err := s.endElement()
	return s.parts, s.wild, err
}

// next reads one piece and returns how long it is.
func (s *splitter) next(rest string) (int, error) {
	switch c := rest[0]; {
	case c == '/':
		err := s.endElement()
		s.literal = "/"
		return 1, err
	case c == '\\' && len(rest) > 1:
		s.literal += rest[1:2]
		return 2, nil
	case c == '*':
		n := len(rest) - len(strings.TrimLeft(rest, "*"))
		if n == 2 && s.isWhole(rest[n:]) {
			s.add(part{kind: partDeep, n: s.number()})
		} else { // all other stars are like one
			s.add(part{kind: partStar, text: "*", n: s.number()})
		}
		return n, nil
	case c == '?':
		s.add(part{kind: partOne, text: "?", n: s.number()})
		return 1, nil
	case c == '[':
		n := closing(rest, '[', ']')
		s.add(part{kind: partOne, text: rest[:n], n: s.number()})
		return n, nil
	case c == '{':
		n := closing(rest, '{', '}')
		if strings.Contains(rest[:n], "/") {
			return 0, fmt.Errorf("%s has a slash in it, which does not go with protects", rest[:n])
		}
		s.add(part{kind: partBraces, text: rest[:n], n: s.number()})
		return n, nil
	case c == '$' && s.refer != nil && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		return s.reference(rest)
	default:
		s.literal += rest[:1]
		return 1, nil
	}
}

// isWhole reports whether what was just read is an element alone.
func (s *splitter) isWhole(rest string) bool {
	return s.literal == "/" && len(s.parts) == s.first && (rest == "" || rest[0] == '/')
}

func (s *splitter) reference(rest string) (int, error) {
	end := 1
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(rest[1:end])
	if err != nil {
		return 0, fmt.Errorf("%s: no such number", rest[:end])
	}
	p, err := s.refer(n)
	if err != nil {
		return 0, err
	}
	if p.kind == partDeep && !s.isWhole(rest[end:]) {
		return 0, fmt.Errorf("$%d stands for a **, so there must be nothing else between its slashes", n)
	}
	s.add(p)
	return end, nil
}

func (s *splitter) number() int {
	if s.refer != nil {
		return 0
	}
	s.wild++
	return s.wild
}

// add adds a wildcard. A ** has the slash before it.
func (s *splitter) add(p part) {
	if p.kind == partDeep {
		s.literal = ""
	}
	s.flush()
	s.parts = append(s.parts, p)
}

func (s *splitter) flush() {
	if s.literal != "" {
		s.parts = append(s.parts, part{kind: partLiteral, text: s.literal})
		s.literal = ""
	}
}

func (s *splitter) endElement() error {
	s.flush()
	e := s.parts[s.first:]
	s.first = len(s.parts)
	if len(e) == 1 && e[0].kind == partLiteral && (e[0].text == "/" || path.Clean(e[0].text) != e[0].text) {
		return errors.New(`fits no path: none has "//", ".", ".." or a slash at its end`)
	}
	return nil
}

// closing returns how long the text is up to the bracket that closes its first one. The glob is valid.
func closing(text string, open, shut byte) int {
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
	return len(text)
}

// newPattern compiles a pattern for the locks of a rule.
func newPattern(rule *compiledRule, text, match string) (*pattern, error) {
	p := &pattern{rule: rule}
	if !doublestar.ValidatePattern(text) || text == "" {
		return nil, errors.New("is no glob; a bracket or brace is not closed")
	}
	var err error
	if p.match, p.wild, err = splitGlob(match, nil); err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	wildcards := make([]part, p.wild+1)
	for _, w := range p.match {
		wildcards[w.n] = w
	}
	used := make([]bool, p.wild+1)
	p.parts, _, err = splitGlob(text, func(n int) (part, error) {
		if n < 1 || n > p.wild {
			return part{}, fmt.Errorf("$%d: match has %s", n, wildcardCount(p.wild))
		}
		used[n] = true
		return wildcards[n], nil
	})
	if err != nil {
		return nil, err
	}
	for n := 1; n <= p.wild; n++ {
		if !used[n] {
			return nil, fmt.Errorf("lacks $%d: any number of locks would protect the same path", n)
		}
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

// maxSteps bounds the search for the locks of one path. Only patterns with several wildcards between
// two slashes come near it, on paths that were made for that.
const maxSteps = 1 << 16

// fitting tries all ways in which a pattern fits a path, or may fit some path below it.
type fitting struct {
	values []string // what the wildcards stand for
	bound  []bool
	below  bool
	steps  int
	found  func()
}

// names calls found with each name that the pattern leads from the path to. It returns false
// if it gave up.
func (p *pattern) names(path Name, found func(Name)) bool {
	s := fitting{values: make([]string, p.wild+1), bound: make([]bool, p.wild+1)}
	s.found = func() {
		if n, ok := p.expand(s.values); ok {
			found(n)
		}
	}
	s.fit(p.parts, string(path))
	return s.steps < maxSteps
}

// below reports whether the pattern may fit a path below the directory. It may return true wrongly.
func (p *pattern) below(dir Name) bool {
	if dir == "/" {
		return true
	}
	may := false
	s := fitting{values: make([]string, p.wild+1), bound: make([]bool, p.wild+1), below: true, found: func() { may = true }}
	s.fit(p.parts, string(dir))
	return may || s.steps >= maxSteps
}

// expand puts the values in the place of the wildcards of match. Not every text is a name.
func (p *pattern) expand(values []string) (Name, bool) {
	name := ""
	for _, part := range p.match {
		if part.kind == partLiteral {
			name += part.text
		} else {
			name += values[part.n]
		}
	}
	return Name(name), name != "" && path.Clean(name) == name
}

// fit matches parts with a whole text, which is a path or the rest of one.
func (s *fitting) fit(parts []part, text string) {
	if s.steps++; s.steps >= maxSteps {
		return
	}
	if len(parts) == 0 {
		if text == "" && !s.below {
			s.found()
		}
		return
	}
	p, rest := parts[0], parts[1:]
	if s.below && p.begins() && (text == "" || p.kind == partDeep && text[0] == '/') {
		s.found()
		return
	}
	for n := range p.fits(text, len(rest) == 0 || rest[0].begins()) {
		s.bind(p.n, text[:n], func() { s.fit(rest, text[n:]) })
	}
}

// fits yields how much of the text, from its beginning, the part may stand for. The last one of an element stands for all
// that is left of that.
func (p part) fits(text string, last bool) iter.Seq[int] {
	element := len(text)
	if slash := strings.IndexByte(text, '/'); slash >= 0 {
		element = slash
	}
	return func(yield func(int) bool) {
		switch p.kind {
		case partLiteral:
			if strings.HasPrefix(text, p.text) {
				yield(len(p.text))
			}
		case partOne:
			if _, size := utf8.DecodeRuneInString(text[:element]); size > 0 && p.isText(text[:size]) {
				yield(size)
			}
		case partDeep:
			for n := 0; n <= len(text); n++ {
				if (n == 0 || text[0] == '/' && (n == len(text) || text[n] == '/')) && !yield(n) {
					return
				}
			}
		default:
			n := 0
			if last {
				n = element
			}
			for ; n <= element; n++ {
				if p.isText(text[:n]) && !yield(n) {
					return
				}
			}
		}
	}
}

// bind goes on with the value for a wildcard, unless it has another one.
func (s *fitting) bind(n int, value string, next func()) {
	switch {
	case n == 0:
		next()
	case s.bound[n]:
		if s.values[n] == value {
			next()
		}
	default:
		s.values[n], s.bound[n] = value, true
		next()
		s.bound[n] = false
	}
}
