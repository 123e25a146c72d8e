package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settings are the values of the options.
type settings struct {
	verbose   bool
	try       bool
	timeout   timeout
	shared    bool
	renew     bool
	conflict  int // the exit status when another client holds the lock
	killAfter duration
}

// newRootCommand returns the command tree. Without a subcommand it is flock(1) with a URL; without a command it holds a lock for its parent.
func newRootCommand() *cobra.Command {
	s := &settings{conflict: exitHeld, killAfter: duration(killAfter)}
	root := &cobra.Command{
		Use:   "netlock [OPTIONS] URL [COMMAND [ARGUMENT...]]",
		Short: "hold a lock on an FTP server",
		Long: `Netlock holds a lock on an FTP server (a directory that MKD makes for exactly one client) while a command runs.
It is flock(1) with a URL in the place of the file. It exits with the command's status, or with 128+n if signal n ended
the command. Options stand before the URL. "-c LINE" in the place of COMMAND runs a line by $SHELL.

The command has a process group of its own (on Windows a job), which gets the signals that netlock gets. If the lock is lost,
the group gets SIGTERM, and SIGKILL after --kill-after, but always before the server can grant the lock to another client; the
exit status is 79 then. Netlock neither waits for processes that the command leaves running nor ends them.

The command finds in its environment NETLOCK_SERVER, host and port, NETLOCK_PATH, the lock's name there, NETLOCK_TOKEN, its
fencing token, and NETLOCK_NONCE, a secret with which other connections of the account act for the lock: SITE LOCK AS (the
last two are empty on a server that has none).

Without a COMMAND netlock holds the lock for the program that started it. It prints one line: OK when it has the lock, or the
reason why not. Then it prints a dot every few seconds, and releases the lock when its standard output is closed, when
the program that started it has ended, or on SIGTERM, SIGINT, SIGHUP or SIGQUIT. If the lock is lost it prints so and ends.

A URL is ftp://user@host:port/path, with ftpes:// for explicit and ftps:// for implicit TLS. /path is relative to the
directory after login, /%2Fpath absolute. The password is that of the URL, of NETLOCK_PASSWORD, or of ~/.netrc.

Differences from flock(1):
  The default of -E is 75, not 1. Errors have the statuses below; flock uses sysexits.h, too, but fewer of them.
  -w is the time for the server and the lock together. It may have a unit: 90s, 1m30s.
  -s works where the server shares locks between accounts; otherwise it is refused with status 73.
  -e is written -x. -o is always on: what the command leaves running does not hold the lock.
  A COMMAND that begins with a dash stands behind "--".
  -u, -F (--no-fork), --fcntl and a file descriptor in the place of the file do not exist. A script that locks itself
  runs itself again: [ "$NETLOCK_PATH" ] || exec netlock URL "$0" "$@"
  Without a COMMAND the lock is held for the parent process.
  The command has a process group of its own, and finds the lock in its environment.
  A netlock in a netlock of the same URL is refused with status 64; flock would wait for itself.
  A lock can be lost while it is held: netlock then ends the command. It also ends when netlock is killed.
  --verbose writes to standard error.`,
		Example: `  netlock ftp://phoneacc@ftp.example.com/phone_lock ./upload.sh
  netlock -w 60 ftp://phoneacc@ftp.example.com/phone_lock make phones
  netlock -n -E 0 ftp://phoneacc@ftp.example.com/nightly_lock ./backup    # another machine does it
  netlock ftp://phoneacc@ftp.example.com/phone_lock -c 'sort phone.tsv > new && mv new phone.tsv'

  open LOCKER, "netlock $url |" or die;           # Perl: this program holds the lock from "OK"
  (my $line = <LOCKER>) =~ /^OK/ or die $line;    # until it closes the pipe
  close LOCKER;

` + statusText,
		Version:       version(),
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true, // report writes them
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				cmd.SetOut(cmd.ErrOrStderr())
				_ = cmd.Help()
				return silent(exitUsage)
			}
			return s.start(cmd.Context(), args, false)
		},
	}
	run := &cobra.Command{
		Use:   "run [OPTIONS] URL COMMAND [ARGUMENT...]",
		Short: "hold a lock while a command runs",
		Long:  `Run is netlock with a COMMAND. It refuses to hold a lock without one.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.start(cmd.Context(), args, true)
		},
	}
	for _, cmd := range []*cobra.Command{root, run} {
		f := cmd.Flags()
		f.SetInterspersed(false)
		f.Var(&s.killAfter, "kill-after", "the time between SIGTERM and SIGKILL when the lock is lost")
		f.BoolP("close", "o", false, "no effect: processes that the command leaves running never hold the lock")
		s.lockFlags(cmd)
	}
	root.Flags().BoolP("version", "V", false, "print the version")
	root.PersistentFlags().BoolVar(&s.verbose, "verbose", false, "write each step to standard error, and whether the exit status is the command's")
	root.SetGlobalNormalizationFunc(longNames)
	root.AddCommand(run, newPutCommand(s), newGetCommand(s), newInfoCommand(s), newGuardCommand(), newManCommand())
	return root
}

// start runs a command under a lock, or holds the lock for the parent.
func (s *settings) start(ctx context.Context, args []string, needed bool) error {
	if len(args) == 0 {
		return errors.New("the URL is missing: netlock URL COMMAND")
	}
	command := args[1:]
	switch {
	case len(command) == 0 && !needed:
		h := &holder{settings: s}
		return h.run(ctx, args[0])
	case len(command) > 0 && (command[0] == "-c" || command[0] == "--command"):
		if len(command) != 2 {
			return fmt.Errorf("%s needs exactly one argument: netlock URL %[1]s 'LINE'", command[0])
		}
		command = shell(command[1])
	case len(command) > 0 && command[0] == "--":
		command = command[1:]
	case len(command) > 0 && strings.HasPrefix(command[0], "-"):
		return fmt.Errorf("%s: options stand before the URL; a command that begins with a dash stands behind --", command[0])
	}
	if len(command) == 0 {
		return errors.New("the command is missing: netlock URL COMMAND")
	}
	r := &runner{settings: s}
	return r.run(ctx, args[0], command)
}

// shell returns the command that runs a line by the user's shell, as flock(1) does.
func shell(line string) []string {
	if runtime.GOOS == "windows" {
		return []string{"cmd", "/c", line}
	}
	return []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh"), "-c", line}
}

// version returns the version of the module, which the Go toolchain has stamped.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// lockFlags adds the flags of the commands that acquire a lock: those of flock(1), and --renew.
func (s *settings) lockFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&s.try, "nonblock", "n", false, "do not wait: if another client holds the lock, exit with status 75")
	s.timeoutFlag(cmd)
	f.BoolVarP(&s.shared, "shared", "s", false, "share the lock with other readers")
	f.BoolFuncP("exclusive", "x", "hold the lock alone, the default; the last of -s and -x counts", func(string) error {
		s.shared = false
		return nil
	})
	f.BoolVar(&s.renew, "renew", false, "renew the lock whenever half of its age is over, if the server can do that")
	f.IntVarP(&s.conflict, "conflict-exit-code", "E", exitHeld, "the exit status when another client holds the lock (-n, -w)")
}

func (s *settings) timeoutFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(&s.timeout, "timeout", "w", "wait at most this long (seconds, or 90s, 1m) for the server and the lock; then exit with status 75, or 69 if the server cannot be reached; 0 is -n")
}

// longNames maps other names of flags, in flock(1) and in earlier versions, to their names.
func longNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "nb", "try":
		name = "nonblock"
	case "wait":
		name = "timeout"
	}
	return pflag.NormalizedName(name)
}

// check returns an error if a flag has a value that it cannot have.
func (s *settings) check() error {
	if s.conflict < 0 || s.conflict > 255 {
		return errors.New("--conflict-exit-code is a number from 0 to 255")
	}
	s.try = s.try || s.timeout.set && s.timeout.duration == 0
	return nil
}

// duration is a flag with a unit (90s, 1m30s) or a number of seconds.
type duration time.Duration

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if seconds, ferr := strconv.ParseFloat(text, 64); ferr == nil && seconds >= 0 && seconds < 1e9 {
		parsed, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || parsed < 0 {
		return errors.New(`must be a number of seconds, or a duration such as "30s"`)
	}
	*d = duration(parsed)
	return nil
}

// String implements pflag.Value.
func (d *duration) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *duration) Type() string { return "seconds" }

// timeout is a duration that may not be given.
type timeout struct {
	duration
	set bool
}

// Set implements pflag.Value.
func (t *timeout) Set(text string) error {
	t.set = true
	return t.duration.Set(text)
}
