package lock

import (
	"fmt"
	"io/fs"
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
	return Protection{slices.Clone(p.Paths), p.WriteAs}
}

// protect compiles the patterns that the rules protect. The errors hold a *ProtectsError for each path that is wrong.
func (r *Rules) protect(rules []Rule) []error {
	var errs []error
	if len(r.rules) != len(rules) {
		return nil // there are errors already, and the numbers would be wrong
	}
	for i, rule := range r.rules {
		for j, text := range rule.protection.Paths {
			p, err := newPattern(rule, text, rule.Match)
			if err == nil {
				err = r.protectable(p)
			}
			if err != nil {
				errs = append(errs, named(i, rule.Rule, &ProtectsError{i, j, err}))
				continue
			}
			p.index = j
			r.patterns = append(r.patterns, p)
		}
	}
	return errs
}

// protectable refuses a pattern that fits names of locks: they come and go by MKD and RMD alone, so that it would protect nothing. One
// that fits names of locks and other paths protects the others.
func (r *Rules) protectable(p *pattern) error {
	name := p.example()
	if rule := r.find(name); rule != nil {
		return fmt.Errorf("protects no file: %s is the name of a lock of rule %d (match %q)", name, slices.Index(r.rules, rule)+1, rule.Match)
	}
	return nil
}

// Protects reports whether any path is protected.
func (r *Rules) Protects() bool { return len(r.patterns) > 0 }

// ProtectsBelow reports whether a path below the directory may be protected. It may return true wrongly, but never
// false.
func (r *Rules) ProtectsBelow(dir Name) bool {
	return slices.ContainsFunc(r.patterns, func(p *pattern) bool { return p.below(dir) })
}

// errManyWays is returned for a path that fits a pattern in too many ways to find the locks that protect it.
var errManyWays error = &kind{"fits a protected pattern in too many ways", fs.ErrPermission}

// Guards returns the names of all locks that protect the path, in the order of the rules, each once; none if it is not
// protected, as no name of a lock is. They need not be held. The cost grows with the rules, not with what is held.
//
// For a path that fits a pattern in too many ways it returns an error that matches fs.ErrPermission.
func (r *Rules) Guards(path Name) ([]Name, error) {
	var guards []Name
	if path == "/" || len(r.patterns) == 0 || r.find(path) != nil {
		return nil, nil
	}
	for _, p := range r.patterns {
		whole := p.names(path, func(n Name) {
			if r.find(n) == p.rule && !slices.Contains(guards, n) {
				guards = append(guards, n)
			}
		})
		if !whole {
			return nil, errManyWays
		}
	}
	return guards, nil
}
