package driver

import (
	"path"
	"strings"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// hint returns the end of the 257 of a directory whose name looks like a lock's name; sent is the name before links were resolved. The log has
// the reason, too. Like all text behind the path it contains no quote, see granted.
func (c *client) hint(n, sent lock.Name) string {
	reason := c.whyNoLock(n, sent)
	if reason == "" {
		return ""
	}
	c.log.Info("a directory was made whose name looks like a lock's", "path", string(n), "reason", reason)
	return " as a directory, not a lock: " + reason
}

// nearLockName returns a similar name that is a lock, as the client sees it; "" if there is none.
func (c *client) nearLockName(n lock.Name) string {
	name := strings.ToLower(strings.TrimSpace(string(n)))
	near := []string{name, strings.ReplaceAll(name, "-", "_"), string(n) + "_lock", string(n) + ".lock"}
	for _, dir := range c.table().Rules().Prefixes() {
		near = append(near, path.Join(string(dir), path.Base(string(n))))
	}
	for _, other := range near {
		if view, ok := c.account.inView(lock.Name(other)); ok && c.isLockName(lock.Name(other)) {
			return view
		}
	}
	return ""
}

// whyNoLock returns the reason why a name that looks like a lock's name is none; "" for other names.
func (c *client) whyNoLock(n, sent lock.Name) string {
	lower, trimmed := lock.Name(strings.ToLower(string(n))), lock.Name(strings.TrimRight(string(n), " "))
	replaced := lock.Rule{}
	if rules := c.server.settings.Load().ReplacedRules; rules != nil {
		replaced, _ = rules.For(n)
	}
	view, _ := c.account.inView(n)
	switch {
	case c.isLockName(lock.Name(view)):
		return "this account has a home, and no rule matches the name there"
	case c.isLockName(sent):
		return "a symbolic link leads elsewhere, and no rule matches the name there"
	case trimmed != n && c.isLockName(trimmed): // a record of fixed length that was sent as it is
		return "the name ends in blanks"
	case lower != n && c.isLockName(lower):
		return "lock names are matched in their own case"
	case replaced.Match != "":
		return "the configuration replaces the default rule " + replaced.Match
	case strings.HasSuffix(string(lower), "_lock"), strings.HasSuffix(string(lower), ".lock"):
		return "no rule makes this name a lock"
	}
	return ""
}
