package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/server"
)

// newVersionCommand returns the command that prints the version.
func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and what it was built with",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().Version)
			return err
		},
	}
}

// versionLine returns the version as one line. info may be nil.
func versionLine(info *debug.BuildInfo) string {
	commit, modified := "", ""
	if info != nil {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = " commit " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = " with changes"
			}
		}
	}
	return fmt.Sprintf("ftplockd %s%s%s %s %s/%s", server.Version(), commit, modified, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
