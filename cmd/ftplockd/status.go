package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/status"
)

// newStatusCommand returns the command that prints the state of the running server.
func newStatusCommand() *cobra.Command {
	return viewCommand(&cobra.Command{
		Use:   "status",
		Short: "Print the state of the running server and its transfers",
		Long: `Status prints whether the running server can grant locks, its state in a cluster, how many locks, waiting clients and sessions it
has, and the transfers in progress. With --json it prints one object; the keys keep their meaning in later versions.

` + howServerIsFound,
		Example: "  ftplockd status\n  ftplockd status --json --state /var/lib/ftplockd/state",
	}, "/status", showStatus)
}

// showStatus prints the state of a server as two tables.
func showStatus(w io.Writer, s status.Server) error {
	ready := "yes"
	if !s.Ready {
		ready = "no: " + printable(s.Error)
	}
	row := fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%d", s.Version, printable(s.State), ready, s.Started.Format(time.RFC3339), s.Locks, s.Waiting, s.Sessions)
	if err := printTable(w, "VERSION\tSTATE\tREADY\tSTARTED\tLOCKS\tWAITING\tSESSIONS", []string{row}, ""); err != nil {
		return err
	}
	var rows []string
	for _, t := range s.Transfers {
		direction := "download"
		if t.Upload {
			direction = "upload"
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s", printable(t.Path), direction, printable(t.Account), t.Address, t.Session, t.Bytes, t.Started.Format(time.RFC3339)))
	}
	fmt.Fprintln(w)
	return printTable(w, "PATH\tDIRECTION\tACCOUNT\tADDRESS\tSESSION\tBYTES\tSTARTED", rows, "no transfer is in progress")
}

// newSessionsCommand returns the command that lists the logged-in clients.
func newSessionsCommand() *cobra.Command {
	return viewCommand(&cobra.Command{
		Use:     "sessions",
		Short:   "List the logged-in sessions",
		Long:    "Sessions lists the logged-in sessions: id, account, address, time of the login, and the number of locks that the session acquired and that are still held.",
		Example: "  ftplockd sessions",
	}, "/sessions", func(w io.Writer, sessions []status.Session) error {
		var rows []string
		for _, s := range sessions {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%d", s.ID, s.Account, s.Address, s.Opened.Format(time.RFC3339), s.Holds))
		}
		return printTable(w, "SESSION\tACCOUNT\tADDRESS\tSINCE\tLOCKS", rows, "no client is logged in")
	})
}

// healthWithin is the time limit of a health check. A server whose disk hangs answers within two seconds.
const healthWithin = 3 * time.Second

var errNoAnswer = errors.New("the server does not answer")

// newHealthCommand returns the command for the health check of a container.
func newHealthCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Report whether the running server can grant locks",
		Long: `Health exits with status 0 if the running server can grant locks: it can sync its journal, or it is the active server of a cluster
and etcd answers. It exits with status 1 if the server cannot (a standby cannot), if no server runs, or after 3 s without an answer.

` + howServerIsFound,
		Example: "  ftplockd health --state /var/lib/ftplockd/state",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), healthWithin, errNoAnswer)
			defer cancel()
			cmd.SetContext(ctx)
			if _, err := options.ask(cmd, http.MethodGet, "/health"); err != nil {
				if ctx.Err() != nil {
					err = context.Cause(ctx)
				}
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return err
		},
	}
	options.addStateFlags(cmd)
	return cmd
}
