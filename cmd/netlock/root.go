package main

import (
	"errors"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// settings are the flags that several commands have.
type settings struct {
	config   string // the profiles' file; "": NETLOCK_CONFIG or the user's own
	verbose  bool
	try      bool
	timeout  timeout
	shared   bool
	renew    bool
	conflict int // the exit status when another client holds the lock
}

// newRootCommand returns the whole command tree. Without a subcommand it holds a lock for its parent.
func newRootCommand() *cobra.Command {
	s := &settings{conflict: exitHeld}
	root := newHoldCommand(s)
	root.Version = version()
	root.SilenceErrors = true // report says them, once
	root.SilenceUsage = true
	f := root.PersistentFlags()
	f.StringVar(&s.config, "config", "", "the file with the profiles (default: $NETLOCK_CONFIG, or netlock/netlock.toml in the user's configuration directory)")
	f.BoolVar(&s.verbose, "verbose", false, "say on standard error what is done, and whose the exit status is")
	root.AddCommand(
		newRunCommand(s),
		newPutCommand(s),
		newGetCommand(s),
		newWaitCommand(s),
		newListCommand(s),
		newInfoCommand(s),
		newProfilesCommand(s),
		newGuardCommand(),
		newManCommand(),
	)
	return root
}

// version is that of the module, as the Go toolchain has stamped it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// waitingFlags adds the flags of all commands that take a lock. The short ones are those of flock(1).
func (s *settings) waitingFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&s.try, "try", "n", false, "do not wait: if another client holds the lock, exit with status 75")
	s.timeoutFlag(cmd)
	f.BoolVarP(&s.shared, "shared", "s", false, "hold it together with other readers; uses the profile's shared_user, if there is one")
	f.BoolFuncP("exclusive", "x", "hold it alone, which is the default; the last of -s and -x counts", func(string) error {
		s.shared = false
		return nil
	})
	f.BoolVar(&s.renew, "renew", false, "ask for a full age again and again, where the server can renew a lock")
	f.IntVarP(&s.conflict, "conflict-exit-code", "E", exitHeld, "the exit status when another client holds the lock (--try, --timeout)")
}

func (s *settings) timeoutFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(&s.timeout, "timeout", "w", "wait so long (90s, 1m, or seconds) for password, server and lock, then exit with status 75, or 69 if the server cannot be reached; 0: as --try")
}

// check complains about what the flags cannot mean.
func (s *settings) check() error {
	if s.conflict < 0 || s.conflict > 255 {
		return errors.New("--conflict-exit-code is a number from 0 to 255")
	}
	s.try = s.try || s.timeout.set && s.timeout.duration == 0
	return nil
}

// timeout is a duration that was given, or not.
type timeout struct {
	duration
	set bool
}

// Set implements pflag.Value.
func (t *timeout) Set(text string) error {
	t.set = true
	return t.duration.Set(text)
}
