package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/server"
)

// newClusterCommand returns the commands about several servers with locks in etcd.
func newClusterCommand() *cobra.Command {
	var options serveOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Print the servers with one set of locks, and the members of etcd",
		Long: `Cluster prints the members of etcd: version, leader, number of changes behind the leader, size of the database, state.
Then it prints the servers: first the active one, then the standbys in the order in which they take over, then the
servers that are not ready to serve, with the reason. The last line has the
number of terms, the time since the last sign of life of the active server, and the start of a suspension. The command sends
requests only to etcd, so it works on each machine that has the configuration file.

Warnings follow on standard error, such as a certificate of this machine that expires soon. With --json Cluster prints one object;
the keys keep their meaning in later versions. The exit status is 1 if etcd does not answer, or if no server is active.`,
		Example: "  ftplockd cluster --config /etc/ftplockd/ftplockd.toml",
		Args:    onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return options.withEtcd(cmd, func(ctx context.Context, c *etcd.Cluster) error {
				view, err := readCluster(ctx, c)
				if loaded, loadErr := options.Load(); loadErr == nil { // withEtcd has reported an error
					view.Certificates = server.Expiries(loaded)
				}
				if asJSON {
					return errors.Join(printJSON(cmd.OutOrStdout(), view), err, view.check(err))
				}
				return errors.Join(view.show(cmd.OutOrStdout(), err), err, view.warn(cmd.ErrOrStderr()), view.check(err))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
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
		Example: "  ftplockd cluster step-down --config /etc/ftplockd/ftplockd.toml",
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
choose N larger than the number of grants since then. The number of the next term grows by 100,000, so that the next active server
removes unfinished uploads of the terms after the backup. Stop all servers first. Held locks keep their tokens.`,
		Example: "  ftplockd cluster raise-base 1000000000 --config /etc/ftplockd/ftplockd.toml",
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
