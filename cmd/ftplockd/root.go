package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/internal/server"
)

// newRootCommand returns the whole command tree. Without a subcommand it serves.
func newRootCommand() *cobra.Command {
	root := newServeCommand()
	root.Use = "ftplockd"
	root.Short = "an FTP server that is also a lock server"
	root.Long = `ftplockd is an FTP server that is also a lock server. MKD of a lock's name acquires the lock for one client, RMD releases it. If
the holder dies, the lock expires.

Without a subcommand it serves, like "ftplockd serve". Without a configuration it listens on 127.0.0.1:2121, has one account, and
shows a page at http://127.0.0.1:2180/. "ftplockd config example" prints every key.

The commands for a running server (status, locks, sessions, break, clear, kick, reload, health) and for its data (history, leftovers,
cluster) find the server by its configuration.

` + howServerIsFound
	root.Example = `  ftplockd
  ftplockd --config /etc/ftplockd/ftplockd.toml
  ftplockd --listen :2121 --root /srv/ftp --state /var/lib/ftplockd/state`
	root.Args = onlyCommands
	info, _ := debug.ReadBuildInfo()
	root.Version = versionLine(info)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceErrors = true // report writes them
	root.SilenceUsage = true
	root.SetFlagErrorFunc(nameFlags)
	root.AddCommand(
		newServeCommand(),
		newInitCommand(),
		newReloadCommand(),
		newLocksCommand(),
		newHistoryCommand(),
		newExplainCommand(),
		newStatusCommand(),
		newBreakCommand(),
		newSessionsCommand(),
		newLeftoversCommand(),
		newKickCommand(),
		newClearCommand(),
		newClusterCommand(),
		newHealthCommand(),
		newManCommand(),
		newConfigCommand(),
		newPasswdCommand(),
	)
	return root
}

// The exit statuses.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnavailable = 69 // EX_UNAVAILABLE of sysexits.h: the server cannot prove that it is active
	exitDisk        = 74 // EX_IOERR of sysexits.h: a write or sync of the journal failed
	exitDeposed     = 75 // EX_TEMPFAIL: another server is active; started again, this one stands by
)

// childEnd is the exit status of the child of process 1, see supervise.
type childEnd int

func (e childEnd) Error() string { return fmt.Sprintf("the server ended with status %d", int(e)) }

// outputWithin bounds the wait for the reader of standard error.
const outputWithin = 2 * time.Second

// execute runs the command line, writes its error and returns the exit status.
func execute(ctx context.Context, root *cobra.Command) int {
	parsed := false // false: the error is one of the command line
	root.PersistentPreRun = func(*cobra.Command, []string) { parsed = true }
	cmd, err := root.ExecuteContextC(ctx)
	return report(cmd, err, parsed)
}

// report writes the error of a command and returns its exit status. It waits for the reader of standard error for outputWithin at most. The
// errors of a configuration begin with file and line, as editors expect.
func report(cmd *cobra.Command, err error, parsed bool) int {
	var wrong config.Errors
	var usage server.UsageError
	var away server.SuspendedError
	var file *fs.PathError
	var child childEnd
	stderr := new(bytes.Buffer)
	defer func() {
		shown := make(chan struct{})
		go func() {
			defer close(shown)
			_, _ = stderr.WriteTo(cmd.ErrOrStderr())
		}()
		select {
		case <-shown:
		case <-time.After(outputWithin):
		}
	}()
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &child): // it has written its error
		return int(child)
	case errors.As(err, &file) && file.Path == os.Stdout.Name() && errors.Is(err, syscall.EPIPE): // as in "ftplockd history | head"
		return exitFailure
	case errors.As(err, &wrong):
		fmt.Fprintln(stderr, err)
		return exitUsage
	case !parsed:
		fmt.Fprintf(stderr, "ftplockd: %v\nTry \"%s --help\".\n", err, cmd.CommandPath())
		return exitUsage
	case errors.Is(err, journal.ErrGone):
		fmt.Fprintf(stderr, "ftplockd: %v; put the state directory back before you start ftplockd again, or tokens begin anew\n", err)
		return exitDisk
	case errors.Is(err, journal.ErrFailed):
		fmt.Fprintf(stderr, "ftplockd: %v; all acknowledged changes are on the disk: repair it, then start ftplockd again\n", err)
		return exitDisk
	case errors.Is(err, etcd.ErrDeposed), errors.Is(err, etcd.ErrHandOver):
		fmt.Fprintf(stderr, "ftplockd: %v; start this server again, and it stands by\n", err)
		return exitDeposed
	case errors.As(err, &away):
		fmt.Fprintln(stderr, "ftplockd:", err)
		return exitUnavailable
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "ftplockd:", err)
		return exitUsage
	}
	fmt.Fprintln(stderr, "ftplockd:", err)
	return exitFailure
}

// onlyCommands returns an error for an argument that is no subcommand, and suggests similar ones.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if cmd.SuggestionsMinimumDistance = 2; len(cmd.SuggestionsFor(args[0])) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", strings.Join(cmd.SuggestionsFor(args[0]), " or "))
	}
	return fmt.Errorf("unknown command %q%s", args[0], hint)
}

// nameFlags adds the flags of a command to the error of an unknown flag: the commands find their server by different ones.
func nameFlags(cmd *cobra.Command, err error) error {
	if _, unknown := errors.AsType[*pflag.NotExistError](err); !unknown {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return fmt.Errorf("%w; %s has %s", err, cmd.CommandPath(), strings.Join(names, ", "))
}

// versionLine returns the version, the commit and the Go version. info may be nil.
func versionLine(info *debug.BuildInfo) string {
	commit, modified := "", ""
	if info != nil {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = " commit " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = " with changes"
			}
		}
	}
	return fmt.Sprintf("ftplockd %s%s%s %s %s/%s", server.Version(), commit, modified, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
