package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
)

// ProtectsError reports an invalid pattern among the paths that a rule protects.
type ProtectsError struct {
	Rule int   // which rule, from 0
	Path int   // which of its paths, from 0
	Err  error // why
}

func (e *ProtectsError) Error() string { return fmt.Sprintf("protects[%d]: %s", e.Path+1, e.Err) }
func (e *ProtectsError) Unwrap() error { return e.Err }

// clone copies the Protection; nil is the one of nothing.
func (p *Protection) clone() Protection {
	if p == nil {
		return Protection{}
	}
	c := *p
	c.Paths = slices.Clone(p.Paths)
	return c
}

// compileProtected compiles the patterns that the rules protect. The errors hold a *ProtectsError for each path that is wrong.
func (r *Rules) compileProtected(rules []Rule) []error {
	var errs []error
	if len(r.rules) != len(rules) {
		return nil // there are errors already, and the numbers would be wrong
	}
	for i, rule := range r.rules {
		for j, text := range rule.protection.Paths {
			p, err := newPattern(rule, text, rule.holdRule.Match)
			if err == nil {
				err = r.checkProtectsFile(p)
			}
			if err != nil {
				errs = append(errs, ruleError(i, rule.holdRule, &ProtectsError{i, j, err}))
				continue
			}
			p.index = j
			r.protectedPatterns = append(r.protectedPatterns, p)
		}
	}
	return errs
}

// checkProtectsFile returns an error for a pattern that matches only names of locks: MKD and RMD alone make and remove them, so it would protect
// nothing. A pattern that also matches other paths protects those.
func (r *Rules) checkProtectsFile(p *pattern) error {
	name := p.example()
	if rule := r.find(name); rule != nil {
		return fmt.Errorf("protects no file: %s is the name of a lock of rule %d (match %q)", name, slices.Index(r.rules, rule)+1, rule.holdRule.Match)
	}
	return nil
}

// ambiguityErrors returns an error for each rule that yields and may protect a path by two locks, or a path that another such rule also
// protects: neither would have precedence. Each path has at most one such lock.
func (r *Rules) ambiguityErrors() []error {
	var errs []error
	refuse := func(p *pattern, err error) {
		i := slices.Index(r.rules, p.rule)
		errs = append(errs, ruleError(i, p.rule.holdRule, &ProtectsError{i, p.index, err}))
	}
	for i, p := range r.protectedPatterns {
		if !p.rule.protection.Automatic {
			continue
		}
		if slices.ContainsFunc(p.matchParts, func(m part) bool { return m.kind == partDeep }) {
			refuse(p, errors.New("match contains **: several locks could protect one path, and none has precedence"))
		}
		for _, other := range r.protectedPatterns[:i] { // the error names the later rule
			if p.rule != other.rule && other.rule.protection.Automatic && overlap(elementsOf(p.parts), elementsOf(other.parts)) {
				refuse(p, fmt.Errorf("rule %d (match %q) may protect the same path, and neither has precedence",
					slices.Index(r.rules, other.rule)+1, other.rule.holdRule.Match))
			}
		}
	}
	return errs
}

// ProtectedBy returns the paths that the lock with the name protects, as globs in which the text of the name stands for $1, $2, ...
func (r *Rules) ProtectedBy(name Name) (globs []string) {
	rule := r.find(name)
	for _, p := range r.protectedPatterns {
		if p.rule != rule {
			continue
		}
		values, glob := p.valuesOf(name), ""
		for _, part := range p.parts {
			if part.wildcard != 0 && values != nil {
				glob += values[part.wildcard]
			} else if part.kind == partDeep {
				glob += "/**"
			} else {
				glob += part.text
			}
		}
		globs = append(globs, glob)
	}
	return globs
}

// valuesOf returns the texts that the wildcards of match stand for in a name, from index 1 on; nil if the name does not match.
func (p *pattern) valuesOf(name Name) []string {
	expr := ""
	for _, part := range p.matchParts {
		switch part.kind {
		case partLiteral:
			expr += regexp.QuoteMeta(part.text)
		case partDeep:
			expr += "((?:/[^/]+)*)"
		default:
			expr += "(" + expression(part.text, "[^/]") + ")"
		}
	}
	re, err := regexp.Compile("^(?s:" + expr + ")$")
	if err != nil {
		return nil
	}
	return re.FindStringSubmatch(string(name))
}

// rootPattern returns the pattern of the directory that contains the protected paths. It is nil if the pattern also protects that directory, or if
// the path of the directory does not determine the lock.
func (p *pattern) rootPattern() *pattern {
	elements := elementsOf(p.parts)
	last := elements[len(elements)-1]
	if last[0].kind == partDeep {
		return nil
	}
	root := *p
	root.parts = p.parts[:len(p.parts)-len(last)]
	for _, w := range last {
		if w.wildcard != 0 && !slices.ContainsFunc(root.parts, func(other part) bool { return other.wildcard == w.wildcard }) {
			return nil
		}
	}
	if root.compile() != nil {
		return nil
	}
	return &root
}

// element is the parts of a glob from one slash up to the next.
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

// overlap reports whether some path may match both globs. It never returns false wrongly. It returns true wrongly for globs that differ only
// in elements with wildcards.
func overlap(a, b []element) bool {
	for i := range min(len(a), len(b)) {
		if a[i][0].kind == partDeep || b[i][0].kind == partDeep {
			return true
		}
		if a[i].literal() && b[i].literal() && a[i][0].text != b[i][0].text {
			return false
		}
	}
	long := a
	if len(b) > len(a) {
		long = b
	}
	rest := long[min(len(a), len(b)):] // ** also matches no element
	return !slices.ContainsFunc(rest, func(e element) bool { return e[0].kind != partDeep })
}

// literal reports whether the element has no wildcard.
func (e element) literal() bool { return len(e) == 1 && e[0].kind == partLiteral }

// Protects reports whether any path is protected.
func (r *Rules) Protects() bool { return len(r.protectedPatterns) > 0 }

// ProtectsBelow reports whether a path below the directory may be protected. It may return true wrongly, but never false.
func (r *Rules) ProtectsBelow(dir Name) bool {
	return slices.ContainsFunc(r.protectedPatterns, func(p *pattern) bool { return p.below(dir) })
}

// ProtectsThroughLink reports whether a link with the name of the directory may lead around a lock. A path below it may be protected, and the
// directory that the link leads to may lack that protection. It may return true wrongly, but never false.
func (r *Rules) ProtectsThroughLink(dir Name) bool {
	return slices.ContainsFunc(r.protectedPatterns, func(p *pattern) bool { return p.belowLink(dir) })
}

// errManyWays is the error for a path that matches a pattern in too many ways.
var errManyWays error = &matchingError{"fits a protected pattern in too many ways", fs.ErrPermission}

// Guards returns the names of all locks that protect the path, held or not, in the order of the rules, each once. A name of a lock is never
// protected. The cost grows with the number of rules, not with that of locks.
//
// If the path matches a pattern in too many ways, the error matches fs.ErrPermission.
func (r *Rules) Guards(path Name) ([]Name, error) {
	var guards, yielding []Name
	if path == "/" || len(r.protectedPatterns) == 0 || r.find(path) != nil {
		return nil, nil
	}
	for _, p := range r.protectedPatterns {
		to := &guards
		if p.rule.protection.Automatic {
			to = &yielding
		}
		whole := p.names(path, func(n Name) {
			if r.find(n) == p.rule && !slices.Contains(*to, n) {
				*to = append(*to, n)
			}
		})
		if !whole {
			return nil, errManyWays
		}
	}
	if len(guards) == 0 {
		return yielding, nil
	}
	return guards, nil
}
