package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/status"
)

// watchEvery is the time between two requests of --watch.
const watchEvery = time.Second

// newLocksCommand returns the command that lists the locks of the running server.
func newLocksCommand() *cobra.Command {
	var options serveOptions
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "List the locks that are held",
		Long: `Locks lists the locks that are held: name, holder, address, session, age, time to the end, number of waiting clients,
token. For an automatic lock it adds the number of changes by its job, and the last file. A second table has the jobs that
automatic locks refuse, and the reasons (with --json: in ftplockd status --json).
With --json it prints one object for each hold; the keys keep their meaning from version to version. With --watch it prints the list
again whenever a lock was acquired or ended or the queue has changed, until interrupted; --json --watch prints one line each time.
If another server may have taken over, it prints no locks, and the exit status is 69.`,
		Example: "  ftplockd locks\n  ftplockd locks --json --state /var/lib/ftplockd",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := showLocks
			switch {
			case asJSON && watch:
				show = func(w io.Writer, locks []status.Lock) error { return printJSON(w, locks, "") }
			case asJSON:
				show = func(w io.Writer, locks []status.Lock) error { return printJSON(w, locks, "  ") }
			}
			if watch {
				return watchLocks(cmd, &options, show)
			}
			locks, err := get[[]status.Lock](&options, cmd, "/locks")
			if err == nil {
				err = show(cmd.OutOrStdout(), locks)
			}
			if err != nil || asJSON {
				return err
			}
			s, err := get[status.Server](&options, cmd, "/status")
			if err != nil {
				return err
			}
			return showRefused(cmd.OutOrStdout(), s.RefusedJobs)
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&watch, "watch", false, "print again when something changes")
	return cmd
}

// watchLocks shows the locks again when the tokens or the queues have changed.
func watchLocks(cmd *cobra.Command, options *serveOptions, show func(io.Writer, []status.Lock) error) error {
	ctx := cmd.Context()
	last := "none seen"
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		locks, err := get[[]status.Lock](options, cmd, "/locks")
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var key strings.Builder
		for _, l := range locks {
			fmt.Fprintln(&key, l.Name, l.Token, l.Waiting)
		}
		if key.String() != last {
			last = key.String()
			if err := show(cmd.OutOrStdout(), locks); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// showLocks prints a table.
func showLocks(w io.Writer, locks []status.Lock) error {
	var rows []string
	header, automatic := "NAME\tHOLDER\tADDRESS\tSESSION\tAGE\tEXPIRES IN\tWAITING\tTOKEN", slices.ContainsFunc(locks, func(l status.Lock) bool { return l.Automatic })
	if automatic {
		header += "\tAUTOMATIC"
	}
	for _, l := range locks {
		name := printable(l.Name)
		if l.NameEncoded != "" {
			name = l.NameEncoded
		}
		expires := "never"
		if !l.Expires.IsZero() {
			expires = inSeconds(l.ExpiresIn)
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d",
			name, l.Holder, dash(l.Address), dash(l.Session), inSeconds(l.Age), expires, l.Waiting, l.Token))
		if automatic {
			rows[len(rows)-1] += "\t" + changesOf(l)
		}
	}
	return printTable(w, header, rows, "no locks are held")
}

// changesOf describes the changes by the job of an automatic lock.
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
func showRefused(w io.Writer, jobs []status.RefusedJob) error {
	if len(jobs) == 0 {
		return nil
	}
	var rows []string
	for _, j := range jobs {
		reason := j.Reason
		if j.Report {
			reason = "would be: " + reason
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", printable(j.Lock), printable(j.Account), dash(j.Address), j.Since.Format(time.RFC3339), printable(reason)))
	}
	fmt.Fprintln(w)
	return printTable(w, "REFUSED AT\tACCOUNT\tADDRESS\tSINCE\tWHY", rows, "")
}
