package main

import (
	"encoding/json"
	"fmt"
	"io"

	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/status"
)

// newStatusCommand returns the command that prints the state of the running server.
func newStatusCommand() *cobra.Command {
	var options serveOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the state of the running server and its transfers",
		Long: `Status prints whether the running server can grant locks, its part in a cluster, how many locks, waiting clients and
sessions it has, and the transfers under way. With --json it prints one object; the keys keep their meaning from version to version.

` + howFound,
		Example: "  ftplockd status\n  ftplockd status --json --state /var/lib/ftplockd",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return options.show(cmd, "/status", showJSON(true))
			}
			return options.show(cmd, "/status", showStatus)
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// showStatus prints the state of a server as two tables.
func showStatus(w io.Writer, body []byte) error {
	var s status.Server
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
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
