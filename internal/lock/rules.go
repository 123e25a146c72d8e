package lock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Rules is an ordered set of rules, the first match of which wins. It does not change, and
// is for use by several goroutines.
type Rules struct {
	rules     []*compiledRule
	patterns  []*pattern // the files that they protect, in the order of the rules
	automatic []*pattern // those of automatic rules, also of rules that only report, and the directories that contain these files
	prefixes  []Name
	never     map[Name]struct{} // prefixes, to look up
	limited   bool              // some rule has a limit
}

// compiledRule is one of a set of rules, ready for use. It does not change.
type compiledRule struct {
	Rule       // as a hold has it: without Contention and Protection
	glob       nameGlob
	contention Contention // with its defaults
	protection Protection
	automatic  *Automatic
}

// NewRules checks the globs of the rules and compiles them; words left empty get their defaults. It
// reports everything that is wrong at once, each error with the number and match of its rule. Package config
// checks other words, and durations.
// No rules at all is fine: then nothing is a lock.
func NewRules(rules []Rule) (*Rules, error) {
	r := &Rules{never: make(map[Name]struct{})}
	var errs []error
	for i, rule := range rules {
		rule.OnDisconnect = cmp.Or(rule.OnDisconnect, KeepOnDisconnect)
		rule.Release = cmp.Or(rule.Release, ReleaseAddress)
		glob, err := newGlob(rule.Match)
		if err != nil {
			errs = append(errs, named(i, rule, err))
			continue
		}
		c := &compiledRule{glob: glob, contention: contentionOf(rule), protection: rule.Protection.clone(), automatic: rule.Automatic}
		rule.Contention, rule.Protection, rule.Automatic = nil, nil, nil
		c.Rule = rule
		r.rules = append(r.rules, c)
		r.limited = r.limited || c.contention.Limit > 0
		r.addPrefix(fixedPrefix(rule.Match))
	}
	for i, rule := range r.rules {
		if !strings.ContainsAny(rule.Match, `*?[{\`) && r.isPrefix(Name("/"+strings.TrimPrefix(rule.Match, "/"))) {
			errs = append(errs, named(i, rule.Rule, errors.New("another rule needs this name as a plain directory")))
		}
	}
	errs = append(errs, r.protect(rules)...)
	errs = append(errs, r.automate()...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	slices.Sort(r.prefixes)
	return r, nil
}

func named(i int, rule Rule, err error) error {
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

// addPrefix adds a directory and those above it: none of them can be a lock, for
// a lock comes and goes, and a fixed prefix stays.
func (r *Rules) addPrefix(n Name) {
	for ; n != "/" && !r.isPrefix(n); n = n.Parent() {
		r.never[n] = struct{}{}
		r.prefixes = append(r.prefixes, n)
	}
}

func (r *Rules) isPrefix(n Name) bool {
	_, ok := r.never[n]
	return ok
}

// For returns the first rule that matches the name, as a hold has it: without Contention and Protection; false if none
// does, and for "/" and every fixed prefix.
func (r *Rules) For(n Name) (Rule, bool) {
	rule := r.find(n)
	if rule == nil {
		return Rule{}, false
	}
	return rule.Rule, true
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

// limitedBy returns the rule of the name if that has a limit, or nil.
func (r *Rules) limitedBy(n Name) *compiledRule {
	if !r.limited {
		return nil
	}
	if rule := r.find(n); rule != nil && rule.contention.Limit > 0 {
		return rule
	}
	return nil
}

// Prefixes returns the directories that must exist for locks to be made in, the ones
// above before the ones below: the fixed prefixes of all rules (of "/locks/**" it is /locks)
// and the directories above them, but not "/". None of them is ever a lock.
func (r *Rules) Prefixes() []Name { return slices.Clone(r.prefixes) }

// Roots returns the directories that all locks lie below, for a search for directories that
// are locks: the fixed prefixes of the rules without those that lie below another. nil
// means anywhere: some rule, such as **/*_lock, has no fixed prefix.
func (r *Rules) Roots() []Name {
	var roots []Name
	for _, rule := range r.rules {
		p := fixedPrefix(rule.Match)
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

// fixedPrefix returns the directory that all names which the glob matches lie below.
func fixedPrefix(glob string) Name {
	base, _ := doublestar.SplitPattern("/" + strings.TrimPrefix(glob, "/"))
	return Name(base)
}
