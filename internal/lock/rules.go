package lock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Rules is an ordered list of rules; the first match counts. It never changes, and is for use by several goroutines.
type Rules struct {
	rules             []*compiledRule
	protectedPatterns []*pattern // protected paths, in the order of the rules
	automaticPatterns []*pattern // paths of rules that yield, including rules that only advise, and the directories that contain these paths
	prefixes          []Name
	prefixSet         map[Name]struct{} // prefixes as a set
	limited           bool              // some rule has a limit
}

// compiledRule is a rule, ready for use. It never changes.
type compiledRule struct {
	holdRule   Rule // without Contention and Protection, as in a Hold
	glob       nameGlob
	contention Contention // with its defaults
	protection Protection
}

// NewRules compiles rules and fills in defaults. It returns all errors at once, each with the number and the match of its rule. It checks
// globs and patterns; package config checks the other fields. Without rules nothing is a lock.
func NewRules(rules []Rule) (*Rules, error) {
	r := &Rules{prefixSet: make(map[Name]struct{})}
	var errs []error
	for i, rule := range rules {
		rule.OnDisconnect = cmp.Or(rule.OnDisconnect, KeepOnDisconnect)
		rule.Release = cmp.Or(rule.Release, ReleaseAddress)
		glob, err := newGlob(rule.Match)
		if err != nil {
			errs = append(errs, ruleError(i, rule, err))
			continue
		}
		c := &compiledRule{glob: glob, contention: contentionOf(rule), protection: rule.Protection.clone()}
		rule.Contention, rule.Protection = nil, nil
		c.holdRule = rule
		r.rules = append(r.rules, c)
		r.limited = r.limited || c.contention.Limit > 0
		r.addPrefix(fixedPrefix(rule.Match))
	}
	for i, rule := range r.rules {
		if !strings.ContainsAny(rule.holdRule.Match, `*?[{\`) && r.isPrefix(Name("/"+strings.TrimPrefix(rule.holdRule.Match, "/"))) {
			errs = append(errs, ruleError(i, rule.holdRule, errors.New("another rule needs this name as a plain directory")))
		}
	}
	errs = append(errs, r.compileProtected(rules)...)
	errs = append(errs, r.ambiguityErrors()...)
	r.compileAutomatic()
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	slices.Sort(r.prefixes)
	return r, nil
}

func ruleError(i int, rule Rule, err error) error {
	return fmt.Errorf("lock rule %d (match %q): %w", i+1, rule.Match, err)
}

// contentionOf returns a copy of the rule's Contention with the defaults filled in.
func contentionOf(rule Rule) Contention {
	var c Contention
	if rule.Contention != nil {
		c = *rule.Contention
	}
	c.Members = cmp.Or(c.Members, MembersOfHolder)
	c.Shared = slices.Clone(c.Shared)
	return c
}

// addPrefix adds a directory and those above it to the fixed prefixes. They always exist, so none of them can be a lock.
func (r *Rules) addPrefix(n Name) {
	for ; n != "/" && !r.isPrefix(n); n = n.Parent() {
		r.prefixSet[n] = struct{}{}
		r.prefixes = append(r.prefixes, n)
	}
}

func (r *Rules) isPrefix(n Name) bool {
	_, ok := r.prefixSet[n]
	return ok
}

// For returns the first rule that matches the name, without Contention and Protection. It returns false if none does, for "/",
// and for fixed prefixes.
func (r *Rules) For(n Name) (Rule, bool) {
	rule := r.find(n)
	if rule == nil {
		return Rule{}, false
	}
	return rule.holdRule, true
}

// find returns the first rule that matches the name, or nil.
func (r *Rules) find(n Name) *compiledRule {
	for _, rule := range r.rules {
		if rule.glob.Match(n) {
			if n == "/" || r.isPrefix(n) {
				return nil
			}
			return rule
		}
	}
	return nil
}

// limitedBy returns the rule of the name if the rule has a limit, or nil.
func (r *Rules) limitedBy(n Name) *compiledRule {
	if !r.limited {
		return nil
	}
	if rule := r.find(n); rule != nil && rule.contention.Limit > 0 {
		return rule
	}
	return nil
}

// MembersAnyone reports whether every session may acquire locks below the name while it is held.
func (r *Rules) MembersAnyone(n Name) bool {
	rule := r.find(n)
	return rule != nil && rule.contention.Members == MembersAnyone
}

// Prefixes returns the fixed prefixes of all rules, such as /locks for "/locks/**", and the directories above them without "/", sorted. They
// must exist before locks can be made in them, and are never locks.
func (r *Rules) Prefixes() []Name { return slices.Clone(r.prefixes) }

// Roots returns the outermost fixed prefixes of the rules: all locks lie below them. nil means anywhere, because a rule such as **/*_lock
// has no fixed prefix.
func (r *Rules) Roots() []Name {
	var roots []Name
	for _, rule := range r.rules {
		p := fixedPrefix(rule.holdRule.Match)
		if p == "/" {
			return nil
		}
		covered := func(other Name) bool { return p.Within(other) }
		if slices.ContainsFunc(roots, covered) {
			continue
		}
		roots = slices.DeleteFunc(roots, func(other Name) bool { return other.Within(p) })
		roots = append(roots, p)
	}
	return roots
}

// fixedPrefix returns the innermost directory that contains all names which match the glob.
func fixedPrefix(glob string) Name {
	base, _ := doublestar.SplitPattern("/" + strings.TrimPrefix(glob, "/"))
	return Name(base)
}
