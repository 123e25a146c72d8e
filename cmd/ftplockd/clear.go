package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/status"
)

// newClearCommand returns the command that lets a refused job go on.
func newClearCommand() *cobra.Command {
	var options serveOptions
	var job string
	cmd := &cobra.Command{
		Use:   "clear NAME",
		Short: "Let a job that an automatic lock refuses change files again",
		Long: `Clear lets the jobs that an automatic lock refuses change files again, all or the one of --job. "ftplockd locks" lists them, and why
they are refused. A job that goes on may have computed its changes from files that another job has changed since: it is safer to
start the program again after its connections have ended. NAME is the lock's path in the served tree, such as /www/.deploy-lock.`,
		Example: "  ftplockd clear /www/.deploy-lock --job ci@10.0.0.7",
		Args:    oneArgument("NAME", "ftplockd clear /www/.deploy-lock"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := lockName(args[0])
			if err != nil {
				return err
			}
			body, err := options.ask(cmd, http.MethodPost, "/clear?"+url.Values{"name": {name}, "job": {job}}.Encode())
			if err != nil {
				return err
			}
			var n int
			if err := json.Unmarshal(body, &n); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cleared, refused jobs: %d\n", n)
			return err
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().StringVar(&job, "job", "", "clear the job of this `ACCOUNT[@ADDRESS]` only")
	return cmd
}

// changesOf returns what the job of an automatic lock has done.
func changesOf(l status.Lock) string {
	switch {
	case !l.Automatic:
		return "-"
	case l.Files == 0:
		return "no changes yet"
	}
	return fmt.Sprintf("changes: %d, last %s", l.Files, printable(l.LastFile))
}

// showRefused prints the jobs that automatic locks refuse, if there are any.
func showRefused(w io.Writer, body []byte) error {
	var s status.Server
	if err := json.Unmarshal(body, &s); err != nil || len(s.RefusedJobs) == 0 {
		return err
	}
	var rows []string
	for _, j := range s.RefusedJobs {
		reason := j.Reason
		if j.Report {
			reason = "would be: " + reason
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", printable(j.Lock), printable(j.Account), dash(j.Address), j.Since.Format(time.RFC3339), printable(reason)))
	}
	fmt.Fprintln(w)
	return printTable(w, "REFUSED AT\tACCOUNT\tADDRESS\tSINCE\tWHY", rows, "")
}
