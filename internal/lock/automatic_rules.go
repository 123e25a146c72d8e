package lock

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Automatic makes the locks of a rule automatic: the first change of a protected file acquires the lock for the job, see [Session.Change].
type Automatic struct {
	Report  bool          // log refusals without refusing anything
	Session bool          // each session is a job; otherwise all sessions of an account from one address are one
	Turn    time.Duration // time that the first look of a job holds the lock; 0: it does not
}

// compileAutomatic compiles the patterns of the automatic rules. A rule that only reports protects nothing.
func (r *Rules) compileAutomatic() []error {
	enforced := r.protectedPatterns[:0:0]
	for _, p := range r.protectedPatterns {
		if p.rule.automatic == nil {
			enforced = append(enforced, p)
			continue
		}
		all := []*pattern{p}
		if root := p.rootPattern(); root != nil {
			all = append(all, root)
		}
		if !p.rule.automatic.Report {
			enforced = append(enforced, all...)
		}
		r.automaticPatterns = append(r.automaticPatterns, all...)
	}
	errs := r.ambiguityErrors()
	r.protectedPatterns = enforced
	return errs
}

// rootPattern returns the pattern of the directory that contains the protected paths. It is nil if the pattern also protects that directory, or if
// the path of the directory does not determine the lock. MKD of the directory is a change, and a listing of it is a look.
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

// sameLock reports whether two patterns protect the same paths by the same automatic locks.
func (p *pattern) sameLock(other *pattern) bool {
	is, was := p.rule, other.rule
	return is.holdRule.Match == was.holdRule.Match && is.automatic.Report == was.automatic.Report && is.automatic.Session == was.automatic.Session &&
		slices.Equal(p.parts, other.parts)
}

// ambiguityErrors returns an error for each automatic rule that may protect a path by two locks, or a path that another rule also protects.
// Each path has at most one automatic lock.
func (r *Rules) ambiguityErrors() []error {
	var errs []error
	refuse := func(p *pattern, err error) {
		i := slices.Index(r.rules, p.rule)
		errs = append(errs, ruleError(i, p.rule.holdRule, &ProtectsError{i, p.index, err}))
	}
	for i, p := range r.protectedPatterns {
		if p.rule.automatic == nil {
			continue
		}
		if slices.ContainsFunc(p.matchParts, func(m part) bool { return m.kind == partDeep }) {
			refuse(p, errors.New("with automatic, match has no **: several locks could protect one path"))
		}
		for j, other := range r.protectedPatterns {
			twice := other.rule.automatic != nil && j > i // the error names the later rule
			if p.rule != other.rule && !twice && overlap(elementsOf(p.parts), elementsOf(other.parts)) {
				refuse(p, fmt.Errorf("with automatic, no other lock protects the same path: rule %d (match %q) may protect one, too",
					slices.Index(r.rules, other.rule)+1, other.rule.holdRule.Match))
			}
		}
	}
	return errs
}

// Automatic returns the automatic lock of a path, or of a directory that contains paths with a lock; "" if there is none.
func (r *Rules) Automatic(path Name) (lock Name) {
	if len(r.automaticPatterns) == 0 || r.find(path) != nil {
		return ""
	}
	if path == "/" {
		path = ""
	}
	for _, p := range r.automaticPatterns {
		p.names(path, func(n Name) {
			if lock == "" && r.find(n) == p.rule {
				lock = n
			}
		})
		if lock != "" {
			return lock
		}
	}
	return ""
}

// automaticFor returns the rule of an automatic lock; nil if the name has none.
func (r *Rules) automaticFor(name Name) *compiledRule {
	if len(r.automaticPatterns) == 0 {
		return nil
	}
	if rule := r.find(name); rule != nil && rule.automatic != nil {
		return rule
	}
	return nil
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

// Automates reports whether any path has an automatic lock.
func (r *Rules) Automates() bool { return len(r.automaticPatterns) > 0 }

// AutomaticTree returns the automatic lock of all paths at and below a directory; "" if they have none or several.
func (r *Rules) AutomaticTree(dir Name) (lock Name) {
	for _, p := range r.automaticPatterns {
		if last := p.parts[len(p.parts)-1]; last.kind == partDeep {
			p.names(dir, func(n Name) {
				if r.find(n) == p.rule {
					lock = n
				}
			})
		}
	}
	return lock
}

// AutomaticRoot reports whether a path has an automatic lock and its parent directory has none.
func (r *Rules) AutomaticRoot(path Name) bool {
	return len(r.automaticPatterns) > 0 && r.Automatic(path) != "" && r.Automatic(path.Parent()) == ""
}
