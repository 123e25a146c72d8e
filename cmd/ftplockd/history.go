package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/internal/server"
	"github.com/ftplockd/ftplockd/internal/status"
)

// newHistoryCommand returns the command that prints the history of a lock or a file from the journal or etcd.
func newHistoryCommand() *cobra.Command {
	var options serveOptions
	var since string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Print the holders of a lock, the writers of a protected file, or all events",
		Long: `History prints the events of a lock from the journal or etcd, oldest first: time, event, client, session, token, time since the
grant, the note of a holder (SITE LOCK NOTE), and the files that it changed, with their bytes and SHA-256. For a file that a lock protects it prints the changes of
the file with account and token, the refused changes ("protect") and the discarded uploads ("discard"), with the reasons. It needs no
running server. NAME is the path in the served tree, such as /locks/demo; without it, history prints the events of all locks and
files. With --json it prints an array; the keys keep their meaning in later versions.`,
		Example: "  ftplockd history /phone_lock --since 24h\n  ftplockd history /phone.tsv --json\n  ftplockd history --since 1h",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := "" // all
			if len(args) == 1 {
				var err error
				if name, err = lockName(args[0]); err != nil {
					return err
				}
			}
			from, err := parseSince(since)
			if err != nil {
				return err
			}
			return options.offline(cmd, func() error { return options.history(cmd, lock.Name(name), historyView{from, name == "", asJSON}) })
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().StringVar(&since, "since", "", "print events from this `TIME` on: 2026-01-31T12:00:00Z, or 24h for the last 24 hours")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// parseSince returns a moment that is given in the form of RFC 3339, or as a duration before now; the zero time for "".
func parseSince(text string) (since time.Time, err error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	if since, err = time.Parse(time.RFC3339, text); err != nil {
		return time.Time{}, server.UsageError{Err: errors.New("--since must be a time such as 2026-01-31T12:00:00Z or a duration such as 24h")}
	}
	return since, nil
}

// historyView selects the events of a history and their format.
type historyView struct {
	since time.Time
	all   bool // of all names
	json  bool
}

// history prints the history of a lock, or with "" all events, from the log of the configuration. Without a configuration file that is the journal in the state directory.
func (o *serveOptions) history(cmd *cobra.Command, name lock.Name, h historyView) error {
	if o.ConfigFile != "" {
		c, err := o.Load()
		if err != nil {
			return withoutFile(err) // it may have [etcd]
		}
		if c.Etcd.On() {
			return o.openEtcd(cmd, func(ctx context.Context, c *etcd.Cluster) error {
				return h.show(cmd.OutOrStdout(), c.History(ctx, name), "etcd has no events"+ofName(name))
			})
		}
	}
	state, err := o.stateDirectory(cmd)
	if err != nil {
		return err
	}
	if _, err := os.Stat(state); err != nil {
		return server.StateError(state, err)
	}
	err = h.show(cmd.OutOrStdout(), journal.History(state, name), "the journal has no events"+ofName(name))
	if errors.Is(err, fs.ErrPermission) {
		return server.StateError(state, err)
	}
	return err
}

// ofName returns " of NAME", or "" for all events.
func ofName(name lock.Name) string {
	if name == "" {
		return ""
	}
	return " of " + printable(string(name))
}

// show prints the selected events. Those of all names have a column with the lock.
func (h historyView) show(w io.Writer, history iter.Seq2[lock.Entry, error], none string) error {
	events := []status.Event{}
	for e, err := range history {
		if err != nil {
			return err
		}
		if !e.At.Wall.Before(h.since) {
			events = append(events, status.FromEntry(e))
		}
	}
	if h.json {
		return printJSON(w, events)
	}
	var rows []string
	for _, e := range events {
		held := "-"
		if e.Held > 0 {
			held = inSeconds(e.Held)
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%s", e.Time.Format(time.RFC3339), e.Event,
			dash(e.By), dash(e.Session), e.Token, held, printable(noteOf(e))))
		if h.all {
			rows[len(rows)-1] = strings.Replace(rows[len(rows)-1], "\t", "\t"+dash(printable(e.Lock))+"\t", 1)
		}
	}
	header := "TIME\tEVENT\tBY\tSESSION\tTOKEN\tHELD FOR\tNOTE"
	if h.all {
		header = strings.Replace(header, "\t", "\tLOCK\t", 1)
	}
	return printTable(w, header, rows, none)
}

// noteOf returns the last column of a history.
func noteOf(e status.Event) string {
	if e.Path == "" {
		return cmp.Or(e.Note, e.Reason)
	}
	note := fmt.Sprintf("%s under %s", e.Path, e.Lock)
	if e.SHA256 != "" {
		note += fmt.Sprintf(", %d bytes, sha256 %s", *e.Bytes, e.SHA256)
	}
	if e.Reason != "" {
		note += ", " + e.Reason
	}
	return note
}
