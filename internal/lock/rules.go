package lock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// Rules is an ordered set of rules, the first match of which wins. It does not change, and
// is for use by several goroutines.
type Rules struct {
	rules    []*compiledRule
	patterns []*pattern // what they protect, in their order
	prefixes []Name
	never    map[Name]struct{} // prefixes, to look up
	limited  bool              // some rule has a limit
}

// compiledRule is one of a set of rules, ready for use. It does not change.
type compiledRule struct {
	Rule       // as a hold has it: without Contention and Protection
	glob       *nameGlob
	contention Contention // with its defaults
	protection Protection
}

// limitOf returns the limit of the rule with that match; 0: it has none.
func (r *Rules) limitOf(match string) int {
	for _, rule := range r.rules {
		if rule.Match == match {
			return rule.contention.Limit
		}
	}
	return 0
}

// NewRules checks the rules and compiles them; words left empty get their defaults. It
// reports everything that is wrong at once, each error with the number and match of its rule.
// No rules at all is fine: then nothing is a lock.
func NewRules(rules []Rule) (*Rules, error) {
	r := &Rules{never: make(map[Name]struct{})}
	var errs []error
	for i, rule := range rules {
		rule.OnDisconnect = cmp.Or(rule.OnDisconnect, KeepOnDisconnect)
		rule.Release = cmp.Or(rule.Release, ReleaseAddress)
		glob, err := newGlob(rule.Match)
		if err = errors.Join(err, check(rule)); err != nil {
			errs = append(errs, named(i, rule, err))
			continue
		}
		c := &compiledRule{glob: glob, contention: contentionOf(rule), protection: rule.Protection.clone()}
		rule.Contention, rule.Protection = nil, nil
		c.Rule = rule
		r.rules = append(r.rules, c)
		r.limited = r.limited || c.contention.Limit > 0
		r.addPrefix(fixedPrefix(glob))
	}
	for i, rule := range r.rules {
		if rule.glob.shape == shapeEqual && r.isPrefix(Name(rule.glob.literal)) {
			errs = append(errs, named(i, rule.Rule, errors.New("another rule needs this name as a plain directory")))
		}
	}
	errs = append(errs, r.protect(rules)...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	slices.Sort(r.prefixes)
	return r, nil
}

func named(i int, rule Rule, err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	return fmt.Errorf("lock rule %d (match %q): %s", i+1, rule.Match, text)
}

func check(rule Rule) error {
	var errs []error
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"max_age", rule.MaxAge}, {"max_idle", rule.MaxIdle}, {"grace", rule.Grace}, {"lock_delay", rule.LockDelay},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is negative", d.key))
		}
	}
	if !slices.Contains([]ReleasePolicy{ReleaseAddress, ReleaseUser, ReleaseSession, ReleaseAnyone}, rule.Release) {
		errs = append(errs, fmt.Errorf("release %q is none of address, user, session, anyone", rule.Release))
	}
	if !slices.Contains([]Disconnect{KeepOnDisconnect, ReleaseOnDisconnect}, rule.OnDisconnect) {
		errs = append(errs, fmt.Errorf("on_disconnect %q is neither keep nor release", rule.OnDisconnect))
	}
	if rule.Release == ReleaseSession && rule.OnDisconnect == KeepOnDisconnect && rule.MaxAge == 0 && rule.MaxIdle == 0 {
		errs = append(errs, errors.New("release = session, on_disconnect = keep and neither max_age nor max_idle: nobody could ever end such a lock"))
	}
	if p := rule.Protection; p != nil && p.WriteAs != "" && p.WriteAs != WriteAsHolder && p.WriteAs != WriteAsAccount {
		errs = append(errs, fmt.Errorf("write_as %q is neither holder nor account", p.WriteAs))
	}
	return errors.Join(append(errs, rule.Contention.check()...)...)
}

// contentionOf returns a copy of the rule's Contention with the defaults filled in.
func contentionOf(rule Rule) Contention {
	var c Contention
	if rule.Contention != nil {
		c = *rule.Contention
	}
	c.Queue = cmp.Or(c.Queue, QueueOff)
	c.Members = cmp.Or(c.Members, MembersOfHolder)
	c.Shared = slices.Clone(c.Shared)
	return c
}

// keepsPlaces reports whether clients that poll have places.
func (c *Contention) keepsPlaces() bool { return c.Queue == QueueFair && c.QueueHold > 0 }

func (c *Contention) check() (errs []error) {
	if c == nil {
		return nil
	}
	if c.Wait < 0 {
		errs = append(errs, errors.New("wait is negative"))
	}
	if c.QueueHold < 0 {
		errs = append(errs, errors.New("queue_hold is negative"))
	}
	if c.Limit < 0 {
		errs = append(errs, errors.New("limit is negative"))
	}
	if c.Members != "" && c.Members != MembersOfHolder && c.Members != MembersAnyone {
		errs = append(errs, fmt.Errorf("members %q is neither holder nor anyone", c.Members))
	}
	if c.Queue != "" && c.Queue != QueueFair && c.Queue != QueueOff {
		errs = append(errs, fmt.Errorf("queue %q is neither fair nor off", c.Queue))
	}
	return errs
}

// fixedPrefix returns the directory that all names which the glob matches lie below.
func fixedPrefix(g *nameGlob) Name {
	base, _ := doublestar.SplitPattern("/" + strings.TrimPrefix(g.text, "/"))
	return Name(base)
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

// Prefixes returns the directories that must exist for locks to be made in, the ones
// above before the ones below: the fixed prefixes of all rules (of "/locks/**" it is /locks)
// and the directories above them, but not "/". None of them is ever a lock.
func (r *Rules) Prefixes() []Name { return slices.Clone(r.prefixes) }
