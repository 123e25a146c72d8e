package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/server"
)

// newClusterCommand returns the commands about several servers with locks in etcd.
func newClusterCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Print the servers with one set of locks, and the members of etcd",
		Long: `Cluster prints the members of etcd: version, leader, number of changes behind the leader, size of the database, state.
Then it prints the servers: first the active one, then the standbys in the order in which they take over, then the
servers that are not ready to serve, with the reason. The last line has the
number of terms, the time since the last sign of life of the active server, and the start of a suspension. The command sends
requests only to etcd, so it works on each machine that has the configuration file.`,
		Example: "  ftplockd cluster --config /etc/ftplockd.toml",
		Args:    onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return options.withEtcd(cmd, func(ctx context.Context, c *etcd.Cluster) error {
				status, err := c.Status(ctx)
				return errors.Join(showMembers(cmd.OutOrStdout(), status), err, showServers(cmd.OutOrStdout(), status, err))
			})
		},
	}
	cmd.AddCommand(newStepDownCommand(&options), newRaiseBaseCommand(&options))
	cmd.PersistentFlags().StringVar(&options.ConfigFile, "config", "", "configuration `FILE` (TOML) of the servers")
	return cmd
}

// stepDownWithin limits the time until the next server serves.
const stepDownWithin = 20 * time.Second

func newStepDownCommand(options *serveOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "step-down",
		Short: "Make the active server hand over to the first standby",
		Long: `Step-down makes the active server hand over to the server that has stood by for the longest time. The active server ends its
sessions with 421, its transfers within 300 ms, and then itself, with status 75; its service manager starts it again, and it stands
by. Locks stay held. Step-down returns when the next server serves, and prints that server. It fails without a standby, if the next
server cannot serve and the first one is active again, or if none serves within 20 s.`,
		Example: "  ftplockd cluster step-down --config /etc/ftplockd.toml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return options.withEtcd(cmd, func(ctx context.Context, c *etcd.Cluster) error {
				ctx, cancel := context.WithTimeout(ctx, stepDownWithin)
				defer cancel()
				began := time.Now()
				next, err := c.StepDown(ctx)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has taken over, after %s\n", describeServer(next), time.Since(began).Round(time.Millisecond))
				return err
			})
		},
	}
}

func newRaiseBaseCommand(options *serveOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "raise-base N",
		Short: "Make all further tokens larger by N, after etcd was restored from a backup",
		Long: `Raise-base makes all further tokens larger by N. After a restore, etcd would grant tokens again that it granted after the backup:
choose N larger than the number of grants since then. Stop all servers first. Held locks keep their tokens.`,
		Example: "  ftplockd cluster raise-base 1000000000 --config /etc/ftplockd.toml",
		Args:    oneArgument("N", "ftplockd cluster raise-base 1000000000"),
		RunE: func(cmd *cobra.Command, args []string) error {
			by, err := strconv.ParseUint(args[0], 10, 62)
			if err != nil || by == 0 {
				return server.UsageError{Err: fmt.Errorf("%q is no number above 0", args[0])}
			}
			return options.withEtcd(cmd, func(ctx context.Context, c *etcd.Cluster) error {
				last, err := c.RaiseBase(ctx, by)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "all further tokens are larger than %d\n", last)
				return err
			})
		},
	}
}

// minEtcdTimeout is the least time limit of a request to etcd.
const minEtcdTimeout = 3 * time.Second

// withEtcd runs f with the etcd of a configuration.
func (o *serveOptions) withEtcd(cmd *cobra.Command, f func(context.Context, *etcd.Cluster) error) error {
	return o.withServer(func() error { return o.openEtcd(cmd, f) })
}

func (o *serveOptions) openEtcd(cmd *cobra.Command, f func(context.Context, *etcd.Cluster) error) error {
	c, err := o.Load()
	if err != nil {
		return err
	}
	if !c.Etcd.On() {
		return server.UsageError{Err: errors.New("there is no cluster: give --config a file that has etcd.endpoints")}
	}
	clock, err := server.NewClock()
	if err != nil {
		return err
	}
	// The commands report the errors of etcd themselves.
	options, err := server.EtcdOptions(c, clock, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	options.RequestTimeout = max(options.RequestTimeout, minEtcdTimeout) // no lease depends on it
	opened := etcd.Open(options)
	if err = opened.Check(cmd.Context()); err == nil {
		err = f(cmd.Context(), opened)
	}
	return errors.Join(err, opened.Close())
}

func describeServer(s etcd.Server) string {
	return printable(s.String())
}

func showMembers(w io.Writer, status etcd.Status) error {
	var rows []string
	for _, m := range status.Members {
		state := "ok"
		switch {
		case m.Alarm != "":
			state = m.Alarm
		case m.Alone:
			state = "no leader: it does not reach most of the others"
		}
		if m.Err != nil {
			rows = append(rows, fmt.Sprintf("%s\t-\t-\t-\t-\t%s", m.Endpoint, printable(m.Err.Error())))
			continue
		}
		leader := "no"
		if m.Leader {
			leader = "yes"
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%d\t%.1f MiB\t%s", m.Endpoint, printable(m.Version), leader, m.Lag, float64(m.Size)/(1<<20), state))
	}
	return printTable(w, "ETCD\tVERSION\tLEADER\tBEHIND\tDATABASE\tSTATE", rows, "etcd has no members")
}

// showServers prints the servers; nothing if etcd did not answer.
func showServers(w io.Writer, status etcd.Status, failed error) error {
	if failed != nil {
		return nil
	}
	var rows []string
	row := func(state string, s etcd.Server) {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", state, printable(s.Name), printable(strings.Join(s.Addresses, ", ")),
			printable(s.Version), s.Since.UTC().Format(time.RFC3339)))
	}
	for i, s := range status.Servers {
		state := "active"
		switch {
		case i > 0:
			state = fmt.Sprintf("standby %d", i)
		case !status.TakingOver.IsZero():
			state = "taking over since " + status.TakingOver.UTC().Format(time.RFC3339)
		case !status.Suspended.IsZero():
			state = "suspended"
		}
		row(state, s)
	}
	for _, s := range status.NotReady {
		row("not ready: "+printable(s.NotReady), s)
	}
	fmt.Fprintln(w)
	if err := printTable(w, "STATE\tSERVER\tADDRESSES\tVERSION\tSTARTED", rows, "no server is active or stands by"); err != nil {
		return err
	}
	beat := "there was no sign of life yet"
	if status.Beat >= 0 {
		beat = fmt.Sprintf("the last sign of life was %s ago", status.Beat.Round(100*time.Millisecond))
	}
	if !status.Suspended.IsZero() {
		beat += fmt.Sprintf("; the active server has been suspended since %s: etcd has not confirmed its changes", status.Suspended.Format(time.RFC3339))
	}
	_, err := fmt.Fprintf(w, "\nterm %d; %s\n", status.Epoch, beat)
	return err
}
