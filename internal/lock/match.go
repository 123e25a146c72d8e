package lock

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// matcher matches one element of a path, or any number of them for a **. Regular expressions match in linear time.
type matcher struct {
	deep    bool           // a **
	literal string         // the element, if re is nil
	re      *regexp.Regexp // of the element, see escape
	// wildcards are the numbers of the submatches of re, or of the **. 0: of no wildcard.
	wildcards []int
	// cut is set if two submatches of any length can share the text in several ways. A NUL then divides them in re.
	cut bool
}

// item is a part of an element, or several parts with one value.
type item struct {
	parts    []part
	wildcard int // its number; 0: the value is not used
	variable bool
}

var errManyShares = errors.New("its wildcards can share a text in too many ways: keep them in the order and with the texts between them that match has, or write several paths")

// compile sets elements and template. Only one place of the pattern may fit a path in several ways: a second **, or two wildcards of any
// length in one element. So the locks of a path are few, and quickly found.
func (p *pattern) compile() error {
	p.elements, p.template = nil, slices.Clone(p.matchParts)
	choices, deeps := 0, 0
	for _, e := range elementsOf(p.parts) {
		m := matcher{deep: e[0].kind == partDeep}
		if m.deep {
			m.wildcards = []int{e[0].wildcard}
			deeps++
		} else {
			items := p.itemsOf(e)
			variable := 0
			for _, i := range items {
				if i.variable {
					variable++
				}
			}
			m.cut = variable > 1
			choices += max(variable-1, 0)
			if err := m.compile(items); err != nil {
				return err
			}
		}
		p.elements = append(p.elements, m)
	}
	if choices+max(deeps-1, 0) > 1 {
		return errManyShares
	}
	return nil
}

// itemsOf joins parts of an element that are one text in the names of locks, too, and parts whose values are not used.
func (p *pattern) itemsOf(e element) (items []item) {
	e = slices.Clone(e)
	e[0].text = strings.TrimPrefix(e[0].text, "/")
	for len(e) > 0 {
		n := 1
		switch first := e[0]; {
		case first.wildcard != 0:
			n = p.joinable(e)
		case first.kind != partLiteral:
			for i, part := range e {
				if part.wildcard != 0 {
					break
				}
				if part.kind != partLiteral {
					n = i + 1
				}
			}
		}
		joined := item{parts: e[:n], wildcard: e[0].wildcard, variable: slices.ContainsFunc(e[:n], part.variable)}
		if n > 1 && joined.wildcard != 0 {
			at := slices.IndexFunc(p.template, func(t part) bool { return t.wildcard == joined.wildcard })
			p.template = slices.Delete(p.template, at+1, at+n)
		}
		items = append(items, joined)
		e = e[n:]
	}
	return items
}

// joinable returns how many parts, from the first one to a wildcard, follow each other in match, too, and occur only here. With the match /l/a*b*,
// the parts $1, b and $2 of the path /d/$1b$2 have one joint value.
func (p *pattern) joinable(e element) int {
	n := 1
	at := slices.IndexFunc(p.template, func(t part) bool { return t.wildcard == e[0].wildcard })
	for i, part := range e {
		if at+i >= len(p.template) || p.template[at+i] != part || p.uses(part.wildcard) > 1 {
			break
		}
		if part.wildcard != 0 {
			n = i + 1
		}
	}
	return n
}

// uses returns how often the pattern refers to the wildcard; 0 for no wildcard.
func (p *pattern) uses(wildcard int) (n int) {
	for _, part := range p.parts {
		if wildcard != 0 && part.wildcard == wildcard {
			n++
		}
	}
	return n
}

// variable reports whether texts with different numbers of characters may match the part.
func (p part) variable() bool {
	switch p.kind {
	case partLiteral, partOne:
		return false
	case partBraces:
		inside := p.text[1 : len(p.text)-1]
		if strings.ContainsAny(inside, `*?[]{}\`) {
			return true
		}
		all := strings.Split(escape(inside), ",")
		return slices.ContainsFunc(all, func(one string) bool { return utf8.RuneCountInString(one) != utf8.RuneCountInString(all[0]) })
	}
	return true
}

// compile sets literal, or re and wildcards.
func (m *matcher) compile(items []item) (err error) {
	if len(items) == 1 && items[0].parts[0].kind == partLiteral {
		m.literal = items[0].parts[0].text
		return nil
	}
	expr, character, cut := "", ".", m.cut
	if cut {
		character = `[^\x00]`
	}
	for _, i := range items {
		text := ""
		for _, p := range i.parts {
			if p.kind == partLiteral {
				text += regexp.QuoteMeta(escape(p.text))
			} else {
				text += expression(escape(p.text), character)
			}
		}
		if i.variable || i.wildcard != 0 {
			m.wildcards = append(m.wildcards, i.wildcard)
			text = "(" + text + ")"
			if cut && i.variable {
				text += `\x{0}`
				cut = false
			}
		}
		expr += text
	}
	m.re, err = regexp.Compile(`^(?s:` + expr + `)$`)
	return err
}

// expression returns the regular expression of a glob for an element, in which the expression character matches all characters.
func expression(glob, character string) string {
	var expr strings.Builder
	depth := 0
	for i := 0; i < len(glob); {
		r, n := utf8.DecodeRuneInString(glob[i:])
		switch {
		case r == '\\':
			r, n = utf8.DecodeRuneInString(glob[i+1:])
			expr.WriteString(regexp.QuoteMeta(string(r)))
			n++
		case r == '*':
			expr.WriteString(character + "*")
		case r == '?':
			expr.WriteString(character)
		case r == '[':
			n = bracketLength(glob[i:], '[', ']')
			expr.WriteString(classExpression(glob[i+1 : i+n-1]))
		case r == '{':
			depth++
			expr.WriteString("(?:")
		case r == '}' && depth > 0:
			depth--
			expr.WriteString(")")
		case r == ',' && depth > 0:
			expr.WriteString("|")
		default:
			expr.WriteString(regexp.QuoteMeta(string(r)))
		}
		i += n
	}
	return expr.String()
}

// classExpression returns the regular expression of a class, such as a-z or ^a, as doublestar matches it.
func classExpression(class string) string {
	expr := "["
	if class[0] == '^' || class[0] == '!' {
		expr, class = `[^\x{0}`, class[1:]
	}
	next := func() rune {
		if class[0] == '\\' && len(class) > 1 {
			class = class[1:]
		}
		r, n := utf8.DecodeRuneInString(class)
		class = class[n:]
		return r
	}
	for class != "" {
		low := next()
		expr += fmt.Sprintf(`\x{%x}`, low)
		if len(class) > 1 && class[0] == '-' {
			class = class[1:]
			if high := next(); low <= high {
				expr += fmt.Sprintf(`-\x{%x}`, high)
			}
		}
	}
	return expr + "]"
}

// each calls found with the values of the wildcards for each way in which the element matches the text. It returns false if there are too many to
// try.
func (m *matcher) each(text string, found func(values []string)) bool {
	if m.re == nil {
		if text == m.literal {
			found(nil)
		}
		return true
	}
	escaped := escape(text)
	if !m.cut {
		m.try(text, escaped, len(escaped), found)
		return true
	}
	if len(text) > longestCut {
		return false
	}
	for i := range len(escaped) + 1 {
		if i == len(escaped) || utf8.RuneStart(escaped[i]) {
			m.try(text, escaped[:i]+"\x00"+escaped[i:], i, found)
		}
	}
	return true
}

// longestCut is the longest text, in bytes, that a wildcard shares with another one. No file has a longer name.
const longestCut = 1024

// try calls found if the element matches the escaped text, which may be cut by a NUL at an offset.
func (m *matcher) try(text, escaped string, cut int, found func(values []string)) {
	at := m.re.FindStringSubmatchIndex(escaped)
	if at == nil {
		return
	}
	values := make([]string, len(m.wildcards))
	for i := range values {
		from, to := at[2*i+2], at[2*i+3]
		values[i] = escaped[from:to]
		if len(escaped) > len(text)+1 { // bytes that are no UTF-8
			before := utf8.RuneCountInString(escaped[:from])
			if from > cut {
				before--
			}
			values[i] = characters(text, before, utf8.RuneCountInString(values[i]))
		}
	}
	found(values)
}

// characters returns n characters of a text from a character on. A byte that is no UTF-8 is a character.
func characters(text string, from, n int) string {
	skip := func(text string, n int) (bytes int) {
		for range n {
			_, size := utf8.DecodeRuneInString(text[bytes:])
			bytes += size
		}
		return bytes
	}
	text = text[skip(text, from):]
	return text[:skip(text, n)]
}

// maxWays bounds the number of ways in which a pattern fits a path. Each way is a lock that all changes of the path depend on.
const maxWays = 64

// fitting finds the ways in which a pattern fits a path, or may fit some path below it.
type fitting struct {
	values []string // values of the wildcards
	bound  []bool
	below  bool
	ways   int
	found  func()
}

func (p *pattern) newFitting(below bool) *fitting {
	return &fitting{values: make([]string, p.wildcards+1), bound: make([]bool, p.wildcards+1), below: below}
}

// fit matches elements with the whole text, a path or the rest of one.
func (s *fitting) fit(elements []matcher, text string) {
	if s.ways > maxWays {
		return
	}
	if len(elements) == 0 {
		if text == "" && !s.below {
			s.ways++
			s.found()
		}
		return
	}
	m, rest := &elements[0], elements[1:]
	switch {
	case s.below && (text == "" || m.deep):
		s.found()
		s.ways++
	case m.deep:
		s.fitDeep(m, rest, text)
	case text != "":
		n := 1 + len(text[1:])
		if slash := strings.IndexByte(text[1:], '/'); slash >= 0 {
			n = 1 + slash
		}
		if !m.each(text[1:n], func(values []string) { s.bind(m.wildcards, values, func() { s.fit(rest, text[n:]) }) }) {
			s.ways = maxWays + 1
		}
	}
}

// fitDeep gives a ** as many elements as the others leave, or each smaller number if another ** follows.
func (s *fitting) fitDeep(m *matcher, rest []matcher, text string) {
	left, another := strings.Count(text, "/"), false
	for _, other := range rest {
		if other.deep {
			another = true
		} else {
			left--
		}
	}
	for n := 0; left >= 0; left-- {
		if another || left == 0 {
			s.bind(m.wildcards, []string{text[:n]}, func() { s.fit(rest, text[n:]) })
		}
		if n < len(text) {
			n++
			if slash := strings.IndexByte(text[n:], '/'); slash >= 0 {
				n += slash
			} else {
				n = len(text)
			}
		}
	}
}

// bind continues with values for wildcards, unless one of these has another value already.
func (s *fitting) bind(wildcards []int, values []string, next func()) {
	if len(wildcards) == 0 {
		next()
		return
	}
	n, value := wildcards[0], values[0]
	switch {
	case n == 0 || s.bound[n] && s.values[n] == value:
		s.bind(wildcards[1:], values[1:], next)
	case !s.bound[n]:
		s.values[n], s.bound[n] = value, true
		s.bind(wildcards[1:], values[1:], next)
		s.bound[n] = false
	}
}
