package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/server"
)

// newConfigCommand returns the commands about configuration files.
func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file, or print an example",
		Args:  onlyCommands,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("say what to do: config check FILE, or config example")}
		},
	}
	cmd.AddCommand(newConfigCheckCommand(), newConfigExampleCommand())
	return cmd
}

func newConfigCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say all that is wrong with a configuration file",
		Long: `Check reads a configuration file as the server would and says all that is wrong with
it at once, a line for each: file, line, key, and what would be right. A syntax error ends
the reading. It does not look whether directories, certificates and addresses are there.

The exit status is 0 if the server would take the file (there may be warnings), else 2.`,
		Example: "  ftplockd config check /etc/ftplockd.toml",
		Args:    oneArgument("FILE", "ftplockd config check /etc/ftplockd.toml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(args[0], server.CheckProtects, server.CheckStatusFile)
			if err != nil {
				return usageError{err}
			}
			if len(c.Warnings) > 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), c.Warnings)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", args[0])
			return err
		},
	}
}

func newConfigExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a configuration file with every key, its default and what it does",
		Long: `Example prints a configuration file that names and explains every key. Each has its
default there, so the file as it is changes nothing.`,
		Example: "  ftplockd config example > ftplockd.toml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Example())
			return err
		},
	}
}
