package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// settings are the flags that several commands have.
type settings struct {
	config  string // the profiles' file; "": NETLOCK_CONFIG or the user's own
	try     bool
	timeout time.Duration
	shared  bool
	renew   bool
}

// newRootCommand returns the whole command tree. Without a subcommand it holds a lock for its parent.
func newRootCommand() *cobra.Command {
	s := new(settings)
	root := newHoldCommand(s)
	root.SilenceErrors = true // report says them, once
	root.SilenceUsage = true
	root.PersistentFlags().StringVar(&s.config, "config", "", "the file with the profiles (default: $NETLOCK_CONFIG, or netlock/netlock.toml in the user's configuration directory)")
	root.AddCommand(
		newRunCommand(s),
		newPutCommand(s),
		newGetCommand(s),
		newWaitCommand(s),
		newListCommand(s),
		newInfoCommand(s),
		newProfilesCommand(s),
		newGuardCommand(),
	)
	return root
}

// waitingFlags adds the flags of all commands that take a lock.
func (s *settings) waitingFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.try, "try", false, "do not wait: if somebody else holds the lock, exit with status 75")
	f.DurationVar(&s.timeout, "timeout", 0, "wait so long for the lock and the server, then exit with status 75 or 69; 0: for ever")
	f.BoolVar(&s.shared, "shared", false, "hold it together with other readers; uses the profile's shared_user, if there is one")
	f.BoolVar(&s.renew, "renew", false, "ask for a full age again and again, where the server can renew a lock")
}

// check complains about what the flags cannot mean.
func (s *settings) check() error {
	switch {
	case s.timeout < 0:
		return errors.New("--timeout must not be negative")
	case s.timeout > 0 && s.try:
		return errors.New("--try does not wait for the lock and --timeout does: say one of them")
	}
	return nil
}
