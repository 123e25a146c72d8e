package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the man pages.
const manCommand = "__man"

// newManCommand returns the command that writes the man pages of packages.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    manCommand + " DIR",
		Short:  "Write a man page for each command into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			hideCompletion(root)
			// The date is that of SOURCE_DATE_EPOCH, or today.
			if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "netlock", Manual: "ftplockd"}, args[0]); err != nil {
				return fail(exitInternal, "man pages: %w", err)
			}
			return nil
		},
	}
}

// hideCompletion leaves out the pages of the completion command: packages install the files that it writes.
func hideCompletion(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.Hidden = cmd.Hidden || cmd.Name() == "completion"
	}
}
