package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// newHistoryCommand returns the command that tells what became of a lock, from the journal.
func newHistoryCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Tell who held a lock when, or who wrote a protected file",
		Long: `History prints what the journal, or etcd, knows of a lock, oldest first: when, what happened, who it was, the token, for how long
the lock had been held; and what its holder published: file, bytes, SHA-256. The token of a release, or of another end, is that of the hold that ended; "-" if its
grant is older than the history. Of a file that a lock protects it prints
who published it, under which token. It needs no running server. NAME is the path in the served tree, such as /locks/demo.`,
		Example: "  ftplockd history /phone_lock\n  ftplockd history /phone.tsv",
		Args:    oneArgument("NAME", "ftplockd history /locks/demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := lockName(args[0])
			if err != nil {
				return err
			}
			return options.found(func() error { return options.history(cmd, lock.Name(name)) })
		},
	}
	options.addStateFlags(cmd)
	return cmd
}

// history prints what is known of a lock where the configuration says that locks are kept. As long as there is no configuration file that is
// in the state directory.
func (o *serveOptions) history(cmd *cobra.Command, name lock.Name) error {
	if o.ConfigFile != "" {
		c, err := o.load()
		if err != nil {
			return err
		}
		if c.Etcd.On() {
			return o.openEtcd(cmd, func(ctx context.Context, c *etcd.Cluster) error {
				return showHistory(cmd.OutOrStdout(), c.History(ctx, name), "etcd knows nothing of "+printable(string(name)))
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
	return showHistory(cmd.OutOrStdout(), journal.History(state, name), "the journal knows nothing of "+printable(string(name)))
}

func showHistory(w io.Writer, history iter.Seq2[lock.Entry, error], none string) error {
	var rows []string
	for e, err := range history {
		if err != nil {
			return err
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
	return printTable(w, "TIME\tEVENT\tBY\tSESSION\tTOKEN\tHELD FOR\tNOTE", rows, none)
}

// noteOf is what the last column of a history says.
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
