package lock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// pattern is one of the paths that a rule protects, and the only place that turns a protected path into the
// name of a lock. What a wildcard matched is text there, never part of another glob.
type pattern struct {
	rule     *compiledRule // whose it is
	text     string        // as it was given
	elements []element
	match    []element // of the rule
	wild     int       // how many wildcards match has
}

// element is what stands between two slashes of a glob.
type element struct {
	deep  bool // **: any number of elements, none as well
	n     int  // of a deep one: as in part
	parts []part
}

// part is a piece of an element.
type part struct {
	kind partKind
	text string // of a literal: what it is; else the glob
	n    int    // the number of the wildcard in match that this is, or stands for; 0: none of those
}

type partKind uint8

const (
	partLiteral partKind = iota
	partStar             // *: any bytes
	partOne              // ? or [a-z]: one character
	partBraces           // {a,b}: what doublestar says
)

// splitter reads a glob.
type splitter struct {
	elements []element
	current  element
	literal  strings.Builder
	wild     int
	refer    func(n int) (part, bool, error) // what $n stands for, and whether that is a **; nil: $ is a character like others
}

// splitGlob takes a valid glob to pieces. Its wildcards are numbered from 1 on, unless it refers to those of another.
func splitGlob(glob string, refer func(n int) (part, bool, error)) ([]element, int, error) {
	s := splitter{refer: refer}
	for rest := strings.TrimPrefix(glob, "/"); rest != ""; {
		n, err := s.next(rest)
		if err != nil {
			return nil, 0, err
		}
		rest = rest[n:]
	}
	err := s.endElement()
	return s.elements, s.wild, err
}

// next reads one piece and returns how long it is.
func (s *splitter) next(rest string) (int, error) {
	switch c := rest[0]; {
	case c == '/':
		return 1, s.endElement()
	case c == '\\' && len(rest) > 1:
		s.literal.WriteByte(rest[1])
		return 2, nil
	case c == '*':
		return s.star(rest), nil
	case c == '?':
		s.add(part{kind: partOne, text: "?"})
		return 1, nil
	case c == '[':
		n := closing(rest, '[', ']')
		s.add(part{kind: partOne, text: rest[:n]})
		return n, nil
	case c == '{':
		n := closing(rest, '{', '}')
		if strings.Contains(rest[:n], "/") {
			return 0, fmt.Errorf("%s has a slash in it, which does not go with protects", rest[:n])
		}
		s.add(part{kind: partBraces, text: rest[:n]})
		return n, nil
	case c == '$' && s.refer != nil && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		return s.reference(rest)
	default:
		s.literal.WriteByte(c)
		return 1, nil
	}
}

// star reads one or more stars: two that are a whole element are a deep one, all others are like one.
func (s *splitter) star(rest string) int {
	n := len(rest) - len(strings.TrimLeft(rest, "*"))
	whole := s.literal.Len() == 0 && len(s.current.parts) == 0 && !s.current.deep && (n == len(rest) || rest[n] == '/')
	if n == 2 && whole {
		s.current.deep, s.current.n = true, s.number()
		return n
	}
	s.add(part{kind: partStar, text: "*"})
	return n
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
	p, deep, err := s.refer(n)
	if err != nil {
		return 0, err
	}
	if !deep {
		s.flush()
		s.current.parts = append(s.current.parts, p)
		return end, nil
	}
	if s.literal.Len() > 0 || len(s.current.parts) > 0 || s.current.deep || end < len(rest) && rest[end] != '/' {
		return 0, fmt.Errorf("$%d stands for a **, so there must be nothing else between its slashes", n)
	}
	s.current.deep, s.current.n = true, n
	return end, nil
}

func (s *splitter) number() int {
	if s.refer != nil {
		return 0
	}
	s.wild++
	return s.wild
}

func (s *splitter) add(p part) {
	s.flush()
	p.n = s.number()
	s.current.parts = append(s.current.parts, p)
}

func (s *splitter) flush() {
	if s.literal.Len() > 0 {
		s.current.parts = append(s.current.parts, part{kind: partLiteral, text: s.literal.String()})
		s.literal.Reset()
	}
}

func (s *splitter) endElement() error {
	s.flush()
	e := s.current
	s.current = element{}
	if !e.deep && len(e.parts) == 0 || len(e.parts) == 1 && e.parts[0].kind == partLiteral && (e.parts[0].text == "." || e.parts[0].text == "..") {
		return errors.New(`fits no path: none has "//", ".", ".." or a slash at its end`)
	}
	s.elements = append(s.elements, e)
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
	p := &pattern{rule: rule, text: text}
	if !doublestar.ValidatePattern(text) || text == "" {
		return nil, errors.New("is no glob; a bracket or brace is not closed")
	}
	var err error
	if p.match, p.wild, err = splitGlob(match, nil); err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	wildcards := make(map[int]part)
	deep := make(map[int]bool)
	for _, e := range p.match {
		deep[e.n] = e.deep
		for _, w := range e.parts {
			wildcards[w.n] = w
		}
	}
	used := make(map[int]bool)
	p.elements, _, err = splitGlob(text, func(n int) (part, bool, error) {
		if n < 1 || n > p.wild {
			return part{}, false, fmt.Errorf("$%d: match has %s", n, wildcardCount(p.wild))
		}
		used[n] = true
		return wildcards[n], deep[n], nil
	})
	if err != nil {
		return nil, err
	}
	for n := range p.wild {
		if !used[n+1] {
			return nil, fmt.Errorf("lacks $%d: any number of locks would protect the same path", n+1)
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

// fitting goes through all ways in which a pattern fits a path.
type fitting struct {
	values []string // what the wildcards stand for
	bound  []bool
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
	s.fit(p.elements, strings.Split(string(path[1:]), "/"))
	return s.steps < maxSteps
}

// expand puts the values in the place of the wildcards of match.
func (p *pattern) expand(values []string) (Name, bool) {
	var b strings.Builder
	for _, e := range p.match {
		if e.deep {
			if values[e.n] != "" {
				b.WriteString("/" + values[e.n])
			}
			continue
		}
		start := b.Len()
		b.WriteByte('/')
		for _, part := range e.parts {
			if part.kind == partLiteral {
				b.WriteString(part.text)
			} else {
				b.WriteString(values[part.n])
			}
		}
		if text := b.String()[start:]; text == "/" || text == "/." || text == "/.." {
			return "", false
		}
	}
	return Name(b.String()), b.Len() > 0
}

func (s *fitting) step() bool {
	s.steps++
	return s.steps < maxSteps
}

// fit matches elements with those of a path.
func (s *fitting) fit(pattern []element, path []string) {
	if !s.step() {
		return
	}
	if len(pattern) == 0 {
		if len(path) == 0 {
			s.found()
		}
		return
	}
	e, rest := pattern[0], pattern[1:]
	if !e.deep {
		if len(path) > 0 {
			s.fitParts(e.parts, path[0], func() { s.fit(rest, path[1:]) })
		}
		return
	}
	for k := range len(path) + 1 {
		s.bind(e.n, strings.Join(path[:k], "/"), func() { s.fit(rest, path[k:]) })
	}
}

// fitParts matches parts with the whole text, and then goes on with next.
func (s *fitting) fitParts(parts []part, text string, next func()) {
	if !s.step() {
		return
	}
	if len(parts) == 0 {
		if text == "" {
			next()
		}
		return
	}
	p, rest := parts[0], parts[1:]
	if p.kind == partLiteral {
		if after, ok := strings.CutPrefix(text, p.text); ok {
			s.fitParts(rest, after, next)
		}
		return
	}
	from, to := 0, len(text)
	switch {
	case p.kind == partOne && text == "":
		return
	case p.kind == partOne:
		_, size := utf8.DecodeRuneInString(text)
		from, to = size, size
	case len(rest) == 0:
		from = to
	}
	for k := from; k <= to; k++ {
		if p.fits(text[:k]) {
			s.bind(p.n, text[:k], func() { s.fitParts(rest, text[k:], next) })
		}
	}
}

// fits reports whether a wildcard may stand for the text, which has no slash.
func (p part) fits(text string) bool {
	return p.text == "*" || p.text == "?" || doublestar.MatchUnvalidated(escape(p.text), escape(text))
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

// below reports whether the pattern may fit a path below the directory. It may say so wrongly.
func (p *pattern) below(dir Name) bool {
	if dir == "/" {
		return true
	}
	return reaches(p.elements, strings.Split(string(dir[1:]), "/"))
}

func reaches(pattern []element, dir []string) bool {
	for i, text := range dir {
		if i == len(pattern) {
			return false
		}
		if pattern[i].deep {
			return true
		}
		fits := false
		s := fitting{values: nil}
		s.fitParts(unbound(pattern[i].parts), text, func() { fits = true })
		if !fits && s.steps < maxSteps {
			return false
		}
	}
	return len(pattern) > len(dir)
}

// unbound are parts that stand for themselves.
func unbound(parts []part) []part {
	free := make([]part, len(parts))
	for i, p := range parts {
		p.n = 0
		free[i] = p
	}
	return free
}
