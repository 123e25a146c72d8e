package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/server"
)

// newExplainCommand returns the command that prints the effect of the rules on a path.
func newExplainCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "explain PATH",
		Short: "Print the rule that matches a path, and its effect",
		Long: `Explain prints whether a path is the name of a lock, its rule, the limits of the lock, the sessions that can release it, the
files that it protects, and the locks that protect the path. It reads only the configuration: it needs no running server, and does
not report whether a lock is held. PATH is a path in the served tree, such as /locks/demo.

` + howServerIsFound,
		Example: "  ftplockd explain /locks/demo\n  ftplockd explain /phone.tsv --config /etc/ftplockd/ftplockd.toml",
		Args:    oneArgument("PATH", "ftplockd explain /locks/demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := lockName(args[0])
			if err != nil {
				return err
			}
			return options.offline(cmd, func() error {
				c, err := options.Load()
				if err != nil {
					return err
				}
				rules, err := lock.NewRules(server.RulesOf(c))
				if err != nil {
					return err
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				if err := explain(w, c, rules, lock.Name(name)); err != nil {
					return err
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().StringVar(&options.ConfigFile, "config", "", "configuration `FILE` (TOML) of the server (see ftplockd --help)")
	return cmd
}

// explain prints the effect of the rules on a path, one fact a line.
func explain(w *tabwriter.Writer, c *config.Config, rules *lock.Rules, name lock.Name) error {
	fact := func(key, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", key, fmt.Sprintf(format, args...)) }
	shown := printable(string(name))
	rule, isLock := rules.For(name)
	switch {
	case isLock:
		i := slices.IndexFunc(c.Rules, func(r config.Rule) bool { return r.Match == rule.Match })
		fact("path", "%s is the name of a lock: MKD acquires it, RMD releases it", shown)
		fact("rule", "[[lock]] number %d, match = %q", i+1, rule.Match)
		explainRule(fact, c.Rules[i], rules, name)
	case slices.Contains(rules.Prefixes(), name):
		fact("path", "%s is a directory that contains locks; it is no lock, and cannot be removed", shown)
		return nil
	default:
		fact("path", "%s is no lock: MKD makes an ordinary directory", shown)
		if err := explainNearMiss(fact, rules, name); err != nil {
			return err
		}
	}
	guards, err := rules.Guards(name)
	if err != nil {
		return fmt.Errorf("%s %w", shown, err)
	}
	for _, g := range guards {
		fact("protected by", "%s: only its holder can change the path", printable(string(g)))
	}
	if len(guards) == 0 && !isLock {
		fact("protected by", "no lock: every account that can write can change the path")
	}
	return nil
}

// explainNearMiss prints why no rule matches a path that is a lock by a default rule, or in lower case, or without the blanks at its end.
func explainNearMiss(fact func(key, format string, args ...any), rules *lock.Rules, name lock.Name) error {
	defaults, err := lock.NewRules(server.RulesOf(config.Default()))
	if err != nil {
		return err
	}
	if rule, ok := defaults.For(name); ok {
		fact("rule", "none: the [[lock]] rules of the configuration replace the default rule %q", rule.Match)
		return nil
	}
	if other := lock.Name(strings.ToLower(strings.TrimRight(string(name), " "))); other != name {
		if _, ok := rules.For(other); ok {
			fact("rule", "none: a rule matches %q, but letters in another case and blanks make another name", other)
		}
	}
	return nil
}

// explainRule prints the limits and rights of the lock with a name.
func explainRule(fact func(key, format string, args ...any), r config.Rule, rules *lock.Rules, name lock.Name) {
	limit := func(key string, d time.Duration, effect string) {
		if d > 0 {
			fact(key, "%s: %s", d, effect)
		}
	}
	idleSince, kept := "the last sign of life of its holder", "the lock"
	switch r.Automatic {
	case config.AutomaticOn:
		fact("automatic", "true: the first change of a job acquires the lock")
		fact("turn", "%s: the first read of a job holds the lock this long", r.Turn.Duration)
		fact("grace", "%s: the lock ends this time after the last connection of its job that read or changed files there", r.Grace.Duration)
		idleSince, kept = "the last change of its job (a lock that MKD acquired: the last sign of life of its holder)", "a lock that MKD acquired"
	case config.AutomaticReport:
		fact("automatic", "report: the server logs the changes that it would refuse, and refuses none")
	}
	limit("max_age", r.MaxAge.Duration, "the lock ends this time after its grant or renewal")
	limit("max_idle", r.MaxIdle.Duration, "the lock ends this time after "+idleSince)
	if r.MaxAge.Duration == 0 && r.MaxIdle.Duration == 0 {
		fact("max_age", "none: the lock does not end by itself")
	}
	if lock.Disconnect(r.OnDisconnect) == lock.ReleaseOnDisconnect {
		fact("on_disconnect", "release: %s ends %s after the connection of its holder", kept, r.Grace.Duration)
	} else {
		fact("on_disconnect", "keep: %s outlives the connection of its holder", kept)
	}
	limit("lock_delay", r.LockDelay.Duration, "after the lock was taken away, no client gets it for this time")
	fact("release", "%s: %s", r.Release, releasers(lock.ReleasePolicy(r.Release)))
	waiters := "MKD of a held lock"
	if r.Automatic == config.AutomaticOn {
		waiters = "the first read or change of a job, or MKD, while the lock is held"
	}
	limit("wait", r.Wait.Duration, waiters+" waits for this time")
	if len(r.Shared) > 0 {
		fact("shared", "%s can hold the lock together", printable(strings.Join(r.Shared, ", ")))
	}
	if r.Limit > 0 {
		fact("limit", "at most %d held locks of this rule in one directory", r.Limit)
	}
	for _, p := range rules.ProtectedBy(name) {
		fact("protects", "%s", printable(p))
	}
	if len(r.Protects) > 0 {
		fact("write_as", "%s", r.WriteAs)
	}
}

// releasers describes the sessions that can release a lock.
func releasers(p lock.ReleasePolicy) string {
	switch p {
	case lock.ReleaseSession:
		return "only the session that acquired it, and sessions of its job"
	case lock.ReleaseUser:
		return "the session that acquired it; after its end, sessions of its account"
	case lock.ReleaseAnyone:
		return "every session"
	}
	return "the session that acquired it; after its end, sessions of its account from the same address"
}
