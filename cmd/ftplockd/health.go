package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// newHealthCommand returns the command that containers ask whether their server is well.
func newHealthCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Say whether the running server can grant locks",
		Long: `Health asks the running server whether it can grant locks: its journal can be synced, or it is the
active one of several and etcd answers. The exit status is 0 if it can, and 1 if it cannot (a server that stands by cannot), or
no server runs.

` + howFound,
		Example: "  ftplockd health --state /var/lib/ftplockd/state",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return options.show(cmd, "/health", func(w io.Writer, _ []byte) error {
				_, err := fmt.Fprintln(w, "ready")
				return err
			})
		},
	}
	options.addStateFlags(cmd)
	return cmd
}
