package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/ftplockd/ftplockd/config"
)

// newManCommand returns the command that writes the manual pages of packages.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			hideCompletion(root)
			commands, files := filepath.Join(args[0], "man8"), filepath.Join(args[0], "man5")
			if err := errors.Join(os.MkdirAll(commands, 0o755), os.MkdirAll(files, 0o755)); err != nil {
				return err
			}
			return errors.Join(
				// The date is that of SOURCE_DATE_EPOCH, or today.
				doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "ftplockd", Manual: "ftplockd"}, commands),
				os.WriteFile(filepath.Join(files, "ftplockd.toml.5"), configurationPage(), 0o644),
			)
		},
	}
}

// hideCompletion leaves out the pages of the completion command: packages install the files that it writes.
func hideCompletion(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.Hidden = cmd.Hidden || cmd.Name() == "completion"
	}
}

// configurationPage returns the manual page ftplockd.toml(5): the example configuration.
func configurationPage() []byte {
	text := strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(string(config.Example()))
	text = regexp.MustCompile(`(?m)^[.']`).ReplaceAllString(text, `\&$0`)
	return []byte(".TH FTPLOCKD.TOML 5 \"\" ftplockd ftplockd\n.SH NAME\nftplockd.toml \\- configuration of ftplockd\n.SH DESCRIPTION\n.nf\n" +
		text + ".fi\n.SH FILES\n/etc/ftplockd/ftplockd.toml\n.SH SEE ALSO\n.BR ftplockd (8)\n")
}
