package driver

import (
	"strings"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// hint is what the 257 of a directory says further if its name, or the one that the client said before links were resolved, looks
// like that of a lock. The log says it, too. Like every text behind the path it has no quote in it, see granted.
func (c *client) hint(n, said lock.Name) string {
	lower := lock.Name(strings.ToLower(string(n)))
	view, _ := c.account.inView(n)
	bare := lock.Name(strings.TrimRight(string(n), " "))
	switch _, otherCase := c.table().Rules().For(lower); {
	case c.isLockName(lock.Name(view)):
		c.warnOfHint(n, "a [[lock]] rule matches it as the account sees it, and not in the whole tree")
		return " as a directory, not a lock: this account has a home, and no rule matches the name there"
	case c.isLockName(said):
		c.warnOfHint(n, "a [[lock]] rule matches it as the client said it, and not where a symbolic link leads")
		return " as a directory, not a lock: a symbolic link leads elsewhere, and no rule matches the name there"
	case bare != n && c.isLockName(bare): // a record of fixed length that was sent as it is
		c.warnOfHint(n, "it ends in blanks")
		return " as a directory, not a lock: the name ends in blanks"
	case lower != n && otherCase:
		c.warnOfHint(n, "its letters would have to be in the other case")
		return " as a directory, not a lock: lock names are matched in their own case"
	case c.replacedRule(n) != "":
		c.warnOfHint(n, "the [[lock]] rules replace the default rule "+c.replacedRule(n))
		return " as a directory, not a lock: the configuration replaces the default rule " + c.replacedRule(n)
	case strings.HasSuffix(string(lower), "_lock"), strings.HasSuffix(string(lower), ".lock"):
		c.warnOfHint(n, "no [[lock]] rule matches it")
		return " as a directory, not a lock: no rule makes this name a lock"
	}
	return ""
}

// replacedRule returns the glob of the default rule that would make the name a lock, if the rules of the configuration replace
// it; "" otherwise.
func (c *client) replacedRule(n lock.Name) string {
	rules := c.server.settings.Load().ReplacedRules
	if rules == nil {
		return ""
	}
	rule, _ := rules.For(n)
	return rule.Match
}

func (c *client) warnOfHint(n lock.Name, reason string) {
	c.log.Info("a directory was made whose name looks like a lock's", "path", string(n), "reason", reason)
}
