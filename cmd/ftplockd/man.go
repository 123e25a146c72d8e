package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/ftplockd/ftplockd/config"
)

// newManCommand returns the command that writes the manual pages of packages.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages below a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			commands, files := filepath.Join(args[0], "man8"), filepath.Join(args[0], "man5")
			if err := errors.Join(os.MkdirAll(commands, 0o755), os.MkdirAll(files, 0o755)); err != nil {
				return err
			}
			return errors.Join(
				// The date is that of SOURCE_DATE_EPOCH, or today.
				doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "ftplockd", Manual: "ftplockd"}, commands),
				os.WriteFile(filepath.Join(files, "ftplockd.toml.5"), configurationPage(config.Example()), 0o644),
			)
		},
	}
}
