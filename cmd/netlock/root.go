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
	try       bool
	timeout   duration // negative: none
	shared    bool
	renew     bool
	conflict  int  // the exit status when another client holds the lock
	quiet     bool // do not report that another client holds the lock
	killAfter duration
	note      *string // nil: defaultNote
}

// newRootCommand returns the command tree. The root command runs a COMMAND under a lock. Without a COMMAND it holds the lock for the parent process.
func newRootCommand() *cobra.Command {
	s := &settings{timeout: -1, conflict: exitHeld, killAfter: duration(killAfter)}
	root := &cobra.Command{
		Use:   "netlock [OPTIONS] URL [COMMAND [ARGUMENT...]]",
		Short: "hold a lock on an FTP server",
		Long: `Netlock holds a lock on an FTP server while a command runs. A lock is a
directory, which MKD makes for one client. Netlock is flock(1) with a URL
instead of a file. It waits for the lock unless -n or -w is given. It exits with
the command's status, or with 128+n if signal n ended the command. Options stand
before the URL. With "-c LINE" instead of COMMAND, $SHELL runs a line.

The command has a process group of its own (on Windows a job), to which netlock
passes its signals. If SIGINT, SIGTERM or SIGHUP ends the command after netlock
received it, netlock ends by the same signal, so that ^C ends the calling
script. If the lock is lost, the group gets SIGTERM, and SIGKILL after
--kill-after, always before the server can grant the lock to another client; the
exit status is then 79. When the command has ended, netlock ignores processes
that it left running.

The environment of the command has NETLOCK_SERVER (host and port),
NETLOCK_ACCOUNT, NETLOCK_PATH (the lock's absolute name on the server),
NETLOCK_TOKEN (its fencing token) and NETLOCK_JOB_KEY, a secret job key with
which other connections of the account act for the lock (SITE LOCK AS). The last
two are empty for servers other than ftplockd.

ftplockd shows a note with the lock, also to clients that wait for it: the host
name, the process id of netlock (without a COMMAND that of its parent) and the
name of the command without its arguments, or the text of --note.

A script locks itself with this line; /phone_lock is the lock of the URL:
  [ "$NETLOCK_PATH" = /phone_lock ] || exec netlock URL "$0" "$@"

Without a COMMAND, netlock holds the lock for its parent process. It prints one
line: OK when it has the lock, or an error. Then it prints a dot every two
seconds. It releases the lock when its standard output is closed, when the
parent ends, or on SIGTERM, SIGINT, SIGHUP or SIGQUIT. If the lock is lost, it
prints an error and exits.

A URL is ftp://user@host:port/path, with ftpes:// for explicit and ftps:// for
implicit TLS. /path is relative to the directory after login, /%2Fpath is
absolute. The password comes from the URL, from NETLOCK_PASSWORD, or from
~/.netrc.

Differences from flock(1):
  The default of -E is 75, not 1. The statuses of errors are below.
  -w limits the time for the server and the lock together. It accepts units.
  -s needs a server whose locks can be shared; otherwise netlock exits with
  status 73.
  There is no -e: use -x. -o is always on: processes that the command leaves
  running do not hold the lock.
  A COMMAND that begins with a dash stands behind "--".
  There is no -u, no -F (--no-fork), no --fcntl, no --verbose, and no file
  descriptor instead of the file.
  Without a COMMAND, netlock holds the lock for the parent process.
  The command has a process group of its own.
  A netlock inside a netlock of the same lock exits with status 64; flock would
  wait for itself.
  A lock can be lost while it is held: netlock then ends the command. If netlock
  is killed, a guard process ends the command.`,
		Example: `  netlock ftp://phoneacc@ftp.example.com/phone_lock ./upload.sh
  netlock -w 60 ftp://phoneacc@ftp.example.com/phone_lock make phones
  netlock ftp://phoneacc@ftp.example.com/phone_lock -c 'sort new >phone.tsv'

  # for cron: if another machine has the lock, do nothing, without a message
  netlock -nqE 0 ftp://phoneacc@ftp.example.com/nightly_lock ./backup

  # Perl: this program holds the lock from "OK" until it closes the pipe
  open LOCKER, "netlock $url |" or die;
  (my $line = <LOCKER>) =~ /^OK/ or die $line;
  close LOCKER;

` + statusText,
		Version:               version(),
		Args:                  cobra.ArbitraryArgs,
		SilenceErrors:         true, // report writes them
		SilenceUsage:          true,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				cmd.SetOut(cmd.ErrOrStderr())
				_ = cmd.Help()
				return exitOnly(exitUsage)
			}
			return s.start(cmd.Context(), args[0], args[1:])
		},
	}
	f := root.Flags()
	f.SetInterspersed(false)
	f.Var(&s.killAfter, "kill-after", "the time between SIGTERM and SIGKILL when the lock is lost")
	f.BoolP("close", "o", false, "no effect: it is always on")
	f.BoolP("version", "V", false, "print the version")
	s.lockFlags(root)
	root.SetGlobalNormalizationFunc(longNames)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.AddCommand(newPutCommand(s), newGetCommand(s), newInfoCommand(s), newGuardCommand(), newManCommand())
	return root
}

// start runs a command under a lock, or holds the lock for the parent.
func (s *settings) start(ctx context.Context, url string, command []string) error {
	if len(command) == 0 {
		return s.hold(ctx, url)
	}
	switch {
	case command[0] == "-c" || command[0] == "--command":
		if len(command) != 2 {
			return fmt.Errorf("%s needs exactly one argument: netlock URL %[1]s 'LINE'", command[0])
		}
		command = shell(command[1])
	case command[0] == "--":
		command = command[1:]
	case strings.HasPrefix(command[0], "-"):
		return fmt.Errorf("%s: options stand before the URL; a command that begins with a dash stands behind --", command[0])
	}
	if len(command) == 0 {
		return errors.New("the command is missing: netlock URL COMMAND")
	}
	r := &runner{settings: s}
	return r.run(ctx, url, command)
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

// lockFlags adds the flags of the commands that acquire a lock: those of flock(1), --renew and --note.
func (s *settings) lockFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&s.try, "nonblock", "n", false, "do not wait for the lock: exit with status 75 if another client holds it")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "do not write to standard error that another client holds the lock (-n, -w)")
	s.timeoutFlag(cmd)
	f.BoolVarP(&s.shared, "shared", "s", false, "share the lock with other readers")
	f.BoolFuncP("exclusive", "x", "hold the lock alone (the default); the last of -s and -x counts", func(string) error {
		s.shared = false
		return nil
	})
	f.BoolVar(&s.renew, "renew", false, "renew the lock whenever half of its lifetime has passed; only with ftplockd")
	f.Func("note", "show `TEXT` with the lock, up to 80 bytes ('' shows none; the default is host name, process id and command); only with ftplockd", func(text string) error {
		s.note = &text
		return nil
	})
	f.IntVarP(&s.conflict, "conflict-exit-code", "E", exitHeld, "the exit status when another client holds the lock (-n, -w)")
}

func (s *settings) timeoutFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(&s.timeout, "timeout", "w", "wait at most so long for the server and the lock (seconds, or 90s, 1m; no limit by default), then exit with status 75, or with 69 if the server did not answer; 0 is -n")
}

// longNames maps other names of flags, as in flock(1), to their names.
func longNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "nb":
		name = "nonblock"
	case "wait":
		name = "timeout"
	}
	return pflag.NormalizedName(name)
}

// noteOf returns the text of --note, or the host name, process id and name of the program that works under the lock, such as
// "web3 4711 backup.sh". It contains no arguments, because they can be secret.
func (s *settings) noteOf(pid int, program ...string) string {
	if s.note != nil {
		return *s.note
	}
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return strings.Join(append([]string{host, strconv.Itoa(pid)}, program...), " ")
}

// normalize returns an error if a flag has an impossible value. A timeout of 0 becomes -n.
func (s *settings) normalize() error {
	if s.conflict < 0 || s.conflict > 255 {
		return errors.New("--conflict-exit-code is a number from 0 to 255")
	}
	s.try = s.try || s.timeout == 0
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

// String implements pflag.Value. It returns "" for a duration that is not set.
func (d *duration) String() string {
	if *d < 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (d *duration) Type() string { return "seconds" }
