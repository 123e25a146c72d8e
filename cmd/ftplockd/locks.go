package main

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/status"
)

// newLocksCommand returns the command that lists the locks of the running server.
func newLocksCommand() *cobra.Command {
	var options serveOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "List the held locks",
		Long: `Locks lists the held locks: name, holder, address, session, age, time to the end, number of waiting clients, token. For an
automatic lock it adds the number of changes by its job, and the last file; for a lock with a note, the note. A second table lists the waiting clients, a lock's in
their order, and a third one the jobs that automatic locks refuse, with the reasons (as JSON: ftplockd status --json). With --json it prints an array with an object for each hold; the keys keep
their meaning in later versions. If another server may have taken over, it prints no locks and exits with status 69. To see changes, use
watch(1).`,
		Example: "  ftplockd locks\n  ftplockd locks --json --state /var/lib/ftplockd/state",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			locks, err := get[[]status.Lock](&options, cmd, "/locks")
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), locks)
			}
			if err := showLocks(cmd.OutOrStdout(), locks); err != nil {
				return err
			}
			if err := options.showWaiting(cmd, locks); err != nil {
				return err
			}
			refused, err := get[[]status.RefusedJob](&options, cmd, "/refused")
			if err != nil {
				return err
			}
			return showRefused(cmd.OutOrStdout(), refused)
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// showLocks prints a table.
func showLocks(w io.Writer, locks []status.Lock) error {
	var rows []string
	header, automatic := "NAME\tHOLDER\tADDRESS\tSESSION\tAGE\tEXPIRES IN\tWAITING\tTOKEN", slices.ContainsFunc(locks, func(l status.Lock) bool { return l.Automatic })
	if automatic {
		header += "\tAUTOMATIC"
	}
	noted := slices.ContainsFunc(locks, func(l status.Lock) bool { return l.Note != "" })
	if noted {
		header += "\tNOTE"
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
		if noted {
			rows[len(rows)-1] += "\t" + dash(printable(l.Note))
		}
	}
	return printTable(w, header, rows, "no locks are held")
}

// showWaiting prints the queues of held locks, if clients wait.
func (o *serveOptions) showWaiting(cmd *cobra.Command, locks []status.Lock) error {
	var rows []string
	var last string
	for _, l := range locks {
		if l.Waiting == 0 || l.Name == last { // a shared lock has an entry for each holder
			continue
		}
		last = l.Name
		queue, err := get[[]status.Waiter](o, cmd, "/waiting?"+url.Values{"name": {l.Name}}.Encode())
		if err != nil {
			return err
		}
		for _, w := range queue {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", printable(l.Name), printable(w.Account), dash(w.Address), dash(w.Session), inSeconds(w.Waited)))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return printTable(cmd.OutOrStdout(), "WAITING FOR\tACCOUNT\tADDRESS\tSESSION\tWAITED", rows, "")
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
