package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// newMigrateCommand returns the command that moves locks between the two logs.
func newMigrateCommand() *cobra.Command {
	var options serveOptions
	var to string
	cmd := &cobra.Command{
		Use:   "migrate --to etcd|journal [--config FILE]",
		Short: "Move the locks and their history to etcd, or back",
		Long: `Migrate moves the locks that are held, with holders, ages and tokens, and the history: from the journal in
the state directory to etcd, or back. FILE has the section [etcd] in both cases. All servers must be stopped.

The journal that was left is put aside in the state directory; the keys that were left in etcd are closed. A server that
is started there by mistake refuses. If migrate breaks off, call it again: nothing is closed before the copy is whole.`,
		Example: "  ftplockd migrate --to etcd --config /etc/ftplockd/ftplockd.toml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to != "etcd" && to != "journal" {
				return usageError{errors.New("say where the locks are to go: --to etcd, or --to journal")}
			}
			return options.withEtcd(cmd, func(ctx context.Context, cluster *etcd.Cluster) error {
				return options.migrate(ctx, cmd.OutOrStdout(), cluster, to)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`WHERE` the locks are to go: etcd, journal")
	cmd.Flags().StringVar(&options.ConfigFile, "config", "", "configuration `FILE` (TOML)")
	return cmd
}

// migrate keeps every server from both places meanwhile: from the state directory by its lock, from etcd by what each transaction compares.
func (o *serveOptions) migrate(ctx context.Context, w io.Writer, cluster *etcd.Cluster, to string) (err error) {
	c, err := o.load()
	if err != nil {
		return err
	}
	if to == "journal" {
		if err := makeState(c.State); err != nil {
			return err
		}
	}
	clock, err := newClock()
	if err != nil {
		return err
	}
	state, err := journal.OpenStopped(c.State, clock, clock.BootID())
	if err != nil {
		return fmt.Errorf("%s: %w", c.State, err)
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	if to == "journal" {
		return migrateToJournal(ctx, w, c, cluster, state)
	}
	return migrateToEtcd(ctx, w, c, state, cluster)
}

func migrateToEtcd(ctx context.Context, w io.Writer, c *config.Config, state *journal.Stopped, cluster *etcd.Cluster) error {
	loaded, history, err := state.Export()
	if err != nil {
		return err
	}
	lines := 0
	err = cluster.Import(ctx, loaded, counted(history, &lines))
	if errors.Is(err, etcd.ErrNotEmpty) {
		return fmt.Errorf("%[1]w; if they are of no use, or a copy of what is still in %[2]s, remove them (etcdctl del --prefix %[3]slock/; etcdctl del --prefix %[3]shistory/) and call this again", err, c.State, c.Etcd.Prefix)
	}
	if err != nil {
		return err
	}
	aside, err := state.Retire(time.Now())
	if err != nil {
		return fmt.Errorf("all is in etcd, but the journal cannot be put aside: move %s away before any server starts: %w", c.State, err)
	}
	tell(w, loaded, lines, "etcd, below "+c.Etcd.Prefix)
	fmt.Fprintln(w, "the journal that they came from is in", aside)
	_, err = fmt.Fprintln(w, "start the servers, each with the same section [etcd]")
	return err
}

func migrateToJournal(ctx context.Context, w io.Writer, c *config.Config, cluster *etcd.Cluster, state *journal.Stopped) error {
	loaded, history, err := cluster.Export(ctx)
	if err != nil {
		return err
	}
	lines := 0
	if err := state.Import(loaded, counted(history, &lines)); err != nil {
		return err
	}
	host, _ := os.Hostname()
	if err := cluster.Retire(ctx, loaded.Last, fmt.Sprintf("its locks have moved to %s on %s", c.State, host)); err != nil {
		return fmt.Errorf("all is in %s, but etcd cannot be closed: start no server with [etcd]: %w", c.State, err)
	}
	tell(w, loaded, lines, c.State)
	_, err = fmt.Fprintln(w, "take the section [etcd] out of the configuration, and start the server")
	return err
}

func tell(w io.Writer, loaded lock.Loaded, lines int, to string) {
	fmt.Fprintf(w, "%d locks and %d lines of history are in %s; tokens go on above %d\n", len(loaded.Holds), lines, to, loaded.Last)
}

// counted counts what goes through.
func counted(history iter.Seq2[lock.Entry, error], lines *int) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for e, err := range history {
			if *lines++; !yield(e, err) {
				return
			}
		}
	}
}
