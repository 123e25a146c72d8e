package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

// newClearCommand returns the command that ends the refusal of a job.
func newClearCommand() *cobra.Command {
	var options serveOptions
	var job string
	cmd := &cobra.Command{
		Use:   "clear NAME",
		Short: "Let a job change files again that an automatic lock refuses",
		Long: `Clear lets the jobs that an automatic lock refuses change files again: all of them, or the one of --job. "ftplockd locks" lists them
with the reasons. Such a job may have computed its changes from files that another job has changed since then, so it is safer to
start its program again after its connections have ended. NAME is the lock's path in the served tree, such as /www/.deploy-lock.`,
		Example: "  ftplockd clear /www/.deploy-lock --job ci@10.0.0.7",
		Args:    oneArgument("NAME", "ftplockd clear /www/.deploy-lock"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := lockName(args[0])
			if err != nil {
				return err
			}
			n, err := request[int](&options, cmd, http.MethodPost, "/clear?"+url.Values{"name": {name}, "job": {job}}.Encode())
			if err != nil {
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
