package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/internal/status"
)

// historyOptions select and format the history of a lock.
type historyOptions struct {
	since sinceFlag
	json  bool
}

// newHistoryCommand returns the command that prints the history of a lock or a file, from the journal or etcd.
func newHistoryCommand() *cobra.Command {
	var options serveOptions
	var history historyOptions
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Print who held a lock when, or who wrote a protected file",
		Long: `History prints the events of a lock from the journal or etcd, oldest first: time, event, client, session, token, how long the
lock had been held, and the files that its holder published, with their bytes and SHA-256. The token of an end is that of the hold
that ended. For a file that a lock protects it prints who published it, under which token. It needs no running server. NAME is the
path in the served tree, such as /locks/demo. With --json it prints an array; the keys keep their meaning from version to version.`,
		Example: "  ftplockd history /phone_lock --since 24h\n  ftplockd history /phone.tsv --json",
		Args:    oneArgument("NAME", "ftplockd history /locks/demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := lockName(args[0])
			if err != nil {
				return err
			}
			return options.found(func() error { return options.history(cmd, lock.Name(name), history) })
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().Var(&history.since, "since", "print events from this `TIME` on: 2026-01-31T12:00:00Z, or 24h for the last 24 hours")
	cmd.Flags().BoolVar(&history.json, "json", false, "print JSON")
	return cmd
}

// sinceFlag is a moment, given in the form of RFC 3339 or as a duration before now.
type sinceFlag struct{ time.Time }

// Set implements pflag.Value.
func (f *sinceFlag) Set(text string) (err error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		f.Time = time.Now().Add(-d)
		return nil
	}
	if f.Time, err = time.Parse(time.RFC3339, text); err != nil {
		return errors.New("must be a time such as 2026-01-31T12:00:00Z or a duration such as 24h")
	}
	return nil
}

// Type implements pflag.Value.
func (f *sinceFlag) Type() string { return "TIME" }

// String implements pflag.Value.
func (f *sinceFlag) String() string {
	if f.IsZero() {
		return "" // the help then shows no default
	}
	return f.Format(time.RFC3339)
}

// history prints the history of a lock from the log that the configuration names. Without a configuration file that is the journal in
// the state directory.
func (o *serveOptions) history(cmd *cobra.Command, name lock.Name, h historyOptions) error {
	if o.ConfigFile != "" {
		c, err := o.Load()
		if err != nil {
			return err
		}
		if c.Etcd.On() {
			return o.openEtcd(cmd, func(ctx context.Context, c *etcd.Cluster) error {
				return h.show(cmd.OutOrStdout(), c.History(ctx, name), "etcd has no events of "+printable(string(name)))
			})
		}
	}
	state, err := o.stateDirectory()
	if err != nil {
		return err
	}
	if _, err := os.Stat(state); err != nil {
		return fmt.Errorf("no server uses the state directory %s: %w", state, err)
	}
	return h.show(cmd.OutOrStdout(), journal.History(state, name), "the journal has no events of "+printable(string(name)))
}

// show prints the selected events.
func (h historyOptions) show(w io.Writer, history iter.Seq2[lock.Entry, error], none string) error {
	events, rows := []status.Event{}, []string(nil)
	for e, err := range history {
		if err != nil {
			return err
		}
		if e.At.Wall.Before(h.since.Time) {
			continue
		}
		if h.json {
			events = append(events, status.FromEntry(e))
			continue
		}
		session, held := "-", "-"
		if e.By.Session != 0 {
			session = e.By.Session.String()
		}
		if e.Held > 0 {
			held = inSeconds(e.Held.Seconds())
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%s", e.At.Wall.UTC().Format(time.RFC3339), e.Cause,
			dash(e.By.String()), session, e.Token, held, printable(noteOf(e))))
	}
	if h.json {
		text, err := json.MarshalIndent(events, "", "  ")
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", text)
		}
		return err
	}
	return printTable(w, "TIME\tEVENT\tBY\tSESSION\tTOKEN\tHELD FOR\tNOTE", rows, none)
}

// noteOf returns the last column of a history.
func noteOf(e lock.Entry) string {
	if e.File == nil {
		return e.Note
	}
	note := fmt.Sprintf("%s under %s", e.File.Path, e.Name)
	if e.File.SHA256 != "" {
		note += fmt.Sprintf(", %d bytes, sha256 %s", e.File.Bytes, e.File.SHA256)
	}
	if e.Note != "" {
		note += ", " + e.Note
	}
	return note
}
