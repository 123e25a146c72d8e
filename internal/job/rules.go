package job

import (
	"slices"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Rule makes the locks of a lock.Rule automatic. That rule has the same Match, and its Protection yields.
type Rule struct {
	Match   string
	Wait    time.Duration // how long a look or a change waits while another job holds the lock
	Turn    time.Duration // time that the first look of a run holds the lock; 0: it does not
	Session bool          // each session is a job; otherwise all sessions of an account from one address are one
	Report  bool          // log refusals without refusing anything. The Protection must advise
}

// Rules are the automatic rules of a table's rules. They never change.
type Rules struct {
	locks *lock.Rules
	all   []Rule
}

// NewRules returns the automatic rules among the rules of a table.
func NewRules(locks *lock.Rules, rules []Rule) *Rules { return &Rules{locks, slices.Clone(rules)} }

// alike reports whether the same sites have the same jobs under other rules.
func (r *Rules) alike(other *Rules) bool {
	return r.locks.AutomaticAlike(other.locks) && slices.EqualFunc(r.all, other.all, func(a, b Rule) bool { return a.Match == b.Match && a.Session == b.Session })
}

// siteRule is the rule of one site.
type siteRule struct {
	Rule
	grace time.Duration
}

// site returns the automatic lock of a path, with its rule; "" if the path has none.
func (r *Rules) site(path lock.Name) (lock.Name, *siteRule) {
	if len(r.all) == 0 {
		return "", nil
	}
	name := r.locks.AutomaticLock(path)
	if rule := r.ruleOf(name); rule != nil {
		return name, rule
	}
	return "", nil
}

// ruleOf returns the rule of an automatic lock, or nil.
func (r *Rules) ruleOf(name lock.Name) *siteRule {
	is, ok := r.locks.For(name)
	if name == "" || !ok {
		return nil
	}
	for _, rule := range r.all {
		if rule.Match == is.Match {
			return &siteRule{rule, is.Grace}
		}
	}
	return nil
}
