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
		Short: "Print which rule matches a path, and what follows",
		Long: `Explain prints whether a path is the name of a lock, by which rule, how long such a lock lives, which sessions may release it, what
it protects, and which locks protect the path. It reads the configuration only: it needs no running server, and does not report
whether a lock is held. PATH is a path in the served tree, such as /locks/demo.

` + howFound,
		Example: "  ftplockd explain /locks/demo\n  ftplockd explain /phone.tsv --config /etc/ftplockd.toml",
		Args:    oneArgument("PATH", "ftplockd explain /locks/demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := lockName(args[0])
			if err != nil {
				return err
			}
			return options.found(func() error {
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

// explain prints the effect of the rules on a path, a fact in each line.
func explain(w *tabwriter.Writer, c *config.Config, rules *lock.Rules, name lock.Name) error {
	fact := func(key, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", key, fmt.Sprintf(format, args...)) }
	shown := printable(string(name))
	rule, isLock := rules.For(name)
	switch {
	case isLock:
		i := slices.IndexFunc(c.Rules, func(r config.Rule) bool { return r.Match == rule.Match })
		fact("path", "%s is the name of a lock: MKD acquires it, RMD releases it", shown)
		fact("rule", "[[lock]] number %d, match = %q", i+1, rule.Match)
		explainRule(fact, c.Rules[i])
	case slices.Contains(rules.Prefixes(), name):
		fact("path", "%s is a directory that contains locks; it is no lock, and cannot be removed", shown)
		return nil
	default:
		fact("path", "%s is no lock: MKD makes an ordinary directory", shown)
	}
	guards, err := rules.Guards(name)
	if err != nil {
		return fmt.Errorf("%s %w", shown, err)
	}
	for _, g := range guards {
		fact("protected by", "%s: only its holder may change the path", printable(string(g)))
	}
	if len(guards) == 0 && !isLock {
		fact("protected by", "no lock: every account that may write can change the path")
	}
	return nil
}

// explainRule prints the limits and rights of a rule.
func explainRule(fact func(key, format string, args ...any), r config.Rule) {
	limit := func(key string, d time.Duration, effect string) {
		if d > 0 {
			fact(key, "%s: %s", d, effect)
		}
	}
	limit("max_age", r.MaxAge.Duration, "the lock ends so long after it was acquired or renewed")
	limit("max_idle", r.MaxIdle.Duration, "the lock ends so long after the last sign of life of its holder")
	if r.MaxAge.Duration == 0 && r.MaxIdle.Duration == 0 {
		fact("max_age", "none: the lock does not end by itself")
	}
	if lock.Disconnect(r.OnDisconnect) == lock.ReleaseOnDisconnect {
		fact("on_disconnect", "release: the lock ends %s after the connection of its holder", r.Grace.Duration)
	} else {
		fact("on_disconnect", "keep: the lock outlives the connection of its holder")
	}
	limit("lock_delay", r.LockDelay.Duration, "a lock that was taken away cannot be acquired for so long")
	fact("release", "%s: %s", r.Release, releasers(lock.ReleasePolicy(r.Release)))
	limit("wait", r.Wait.Duration, "MKD of a held lock waits so long for it")
	if len(r.Shared) > 0 {
		fact("shared", "%s may hold the lock together", printable(strings.Join(r.Shared, ", ")))
	}
	if r.Limit > 0 {
		fact("limit", "at most %d locks of this rule in one directory at a time", r.Limit)
	}
	for _, p := range r.Protects {
		fact("protects", "%s, with $1, $2, ... as the wildcards of match matched the name", printable(p))
	}
	if len(r.Protects) > 0 {
		fact("write_as", "%s", r.WriteAs)
	}
}

// releasers describes the sessions that may release a lock.
func releasers(p lock.ReleasePolicy) string {
	switch p {
	case lock.ReleaseSession:
		return "only the session that acquired it"
	case lock.ReleaseUser:
		return "the session that acquired it, and its account when that session has ended"
	case lock.ReleaseAnyone:
		return "every session"
	}
	return "the session that acquired it, and its account from the same address when that session has ended"
}
