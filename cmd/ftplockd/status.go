package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/status"
)

// newStatusCommand returns the command that prints the state of the running server.
func newStatusCommand() *cobra.Command {
	return viewCommand(&cobra.Command{
		Use:   "status",
		Short: "Print the state of the running server and its transfers",
		Long: `Status prints whether the running server can grant locks, its part in a cluster, the numbers of locks, waiting clients and
sessions, and the transfers under way. With --json it prints one object; the keys keep their meaning from version to version.

` + howFound,
		Example: "  ftplockd status\n  ftplockd status --json --state /var/lib/ftplockd",
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
	return printTable(w, "PATH\tDIRECTION\tACCOUNT\tADDRESS\tSESSION\tBYTES\tSTARTED", rows, "no transfer is under way")
}

// newSessionsCommand returns the command that lists the logged-in clients.
func newSessionsCommand() *cobra.Command {
	return viewCommand(&cobra.Command{
		Use:     "sessions",
		Short:   "List the sessions that are logged in",
		Long:    "Sessions lists the sessions that are logged in: id, account, address, time of the login, and the number of held locks that each has acquired.",
		Example: "  ftplockd sessions",
	}, "/sessions", func(w io.Writer, sessions []status.Session) error {
		var rows []string
		for _, s := range sessions {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%d", s.ID, s.Account, s.Address, s.Opened.Format(time.RFC3339), s.Holds))
		}
		return printTable(w, "SESSION\tACCOUNT\tADDRESS\tSINCE\tLOCKS", rows, "no client is logged in")
	})
}

// newHealthCommand returns the command for the health check of a container.
func newHealthCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Report whether the running server can grant locks",
		Long: `Health asks the running server whether it can grant locks: it can sync its journal, or it is the
active one of several and etcd answers. The exit status is 0 if it can, and 1 if it cannot (a standby cannot) or if
no server runs.

` + howFound,
		Example: "  ftplockd health --state /var/lib/ftplockd/state",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := options.ask(cmd, "GET", "/health"); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return err
		},
	}
	options.addStateFlags(cmd)
	return cmd
}
