package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/internal/server"
)

// newRootCommand returns the whole command tree. Without a subcommand it serves.
func newRootCommand() *cobra.Command {
	root := newServeCommand()
	root.Use = "ftplockd"
	root.Short = "an FTP server that is a lock server"
	root.Long = `ftplockd is an FTP server that is a lock server: MKD of a lock's name acquires the
lock for exactly one client, RMD gives it back. Locks whose holder died are cleaned up.

Without a subcommand it serves, like "ftplockd serve". Without a configuration it
listens on 127.0.0.1:2121, with one account, and shows a page at http://127.0.0.1:2180/;
see "ftplockd config example".

Commands about a running server (status, locks, sessions, break, clear, kick, reload, health) and about its data (history, leftovers,
cluster) find it by its configuration. ` + howFound
	root.Example = `  ftplockd
  ftplockd --config /etc/ftplockd.toml
  ftplockd --listen :2121 --root /srv/ftp --state /var/lib/ftplockd`
	root.Args = onlyCommands
	info, _ := debug.ReadBuildInfo()
	root.Version = versionLine(info)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceErrors = true // report writes them
	root.SilenceUsage = true
	root.AddCommand(
		newServeCommand(),
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
		newVersionCommand(),
	)
	return root
}

// The exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitAway    = 69 // EX_UNAVAILABLE of sysexits.h: the server cannot prove that it is the active one of several
	exitDisk    = 74 // EX_IOERR of sysexits.h: the disk has failed the journal
	exitDeposed = 75 // EX_TEMPFAIL: another server takes over; started again, this one stands by
)

// outputWithin bounds the wait for the reader of standard error.
const outputWithin = 2 * time.Second

// execute runs the command line, writes its error and returns the exit status.
func execute(ctx context.Context, root *cobra.Command) int {
	began := false // false: the error is one of the command line
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	cmd, err := root.ExecuteContextC(ctx)
	return report(cmd, err, began)
}

// report writes the error of a command and returns its exit status. It waits for the reader of standard error for outputWithin.
// The errors of a configuration begin with file and line, so that editors find them.
func report(cmd *cobra.Command, err error, began bool) int {
	var wrong config.Errors
	var usage server.UsageError
	var away server.SuspendedError
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
	case errors.As(err, &wrong):
		fmt.Fprintln(stderr, wrong)
		return exitUsage
	case !began:
		fmt.Fprintf(stderr, "ftplockd: %v\nTry \"%s --help\".\n", err, cmd.CommandPath())
		return exitUsage
	case errors.Is(err, journal.ErrGone):
		fmt.Fprintf(stderr, "ftplockd: %v; put the state directory back before ftplockd is started again, or tokens begin anew\n", err)
		return exitDisk
	case errors.Is(err, journal.ErrFailed):
		fmt.Fprintf(stderr, "ftplockd: %v; what was acknowledged is kept: see to the disk, then start ftplockd again\n", err)
		return exitDisk
	case errors.Is(err, etcd.ErrDeposed), errors.Is(err, etcd.ErrHandOver):
		fmt.Fprintf(stderr, "ftplockd: %v; started again it stands by\n", err)
		return exitDeposed
	case errors.As(err, &away):
		fmt.Fprintln(stderr, "ftplockd:", err)
		return exitAway
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "ftplockd:", err)
		return exitUsage
	}
	fmt.Fprintln(stderr, "ftplockd:", err)
	return exitFailure
}

// onlyCommands refuses arguments that are no subcommand, and suggests similar ones.
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
