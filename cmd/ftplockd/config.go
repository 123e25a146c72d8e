package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

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
			return server.UsageError{Err: errors.New("the subcommand is missing: config check FILE, or config example")}
		},
	}
	cmd.AddCommand(newConfigCheckCommand(), newConfigExampleCommand())
	return cmd
}

func newConfigCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Print all errors of a configuration file",
		Long: `Check reads a configuration file as the server does, and prints each error with file, line, key and a hint.
A syntax error ends the check. It also prints the default rules that the [[lock]] rules of the file replace. Check does not open the directories and addresses. It ignores certificates that it cannot read.

The exit status is 0 if the server accepts the file (there may be warnings), and 2 if it does not, or if a certificate has expired.`,
		Example: "  ftplockd config check /etc/ftplockd/ftplockd.toml",
		Args:    oneArgument("FILE", "ftplockd config check /etc/ftplockd/ftplockd.toml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := server.Options{ConfigFile: args[0]}.Load()
			if err != nil {
				return err
			}
			if len(c.Warnings) > 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), c.Warnings)
			}
			if err := checkExpiry(cmd.ErrOrStderr(), c, args[0]); err != nil {
				return err
			}
			if replaced := replacedDefaults(c); len(replaced) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: the [[lock]] rules replace the default rules; not in the file: %s\n", args[0], strings.Join(replaced, ", "))
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", args[0])
			return err
		},
	}
}

func newConfigExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "Print a configuration file that explains every key",
		Long:    `Example prints a configuration file that explains every key. Each key has its default value.`,
		Example: "  ftplockd config example > ftplockd.toml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Example())
			return err
		},
	}
}

// replacedDefaults returns the globs of the default rules that are not among the rules of a configuration.
func replacedDefaults(c *config.Config) (globs []string) {
	for _, d := range config.Default().Rules {
		if !slices.ContainsFunc(c.Rules, func(r config.Rule) bool { return r.Match == d.Match }) {
			globs = append(globs, strconv.Quote(d.Match))
		}
	}
	return globs
}

// checkExpiry prints a warning for each certificate that expires soon. It returns an error for those that are not valid.
func checkExpiry(warn io.Writer, c *config.Config, file string) error {
	var wrong config.Errors
	for _, e := range server.Expiries(c) {
		switch problem, invalid := e.Problem(time.Now()); {
		case invalid:
			wrong = append(wrong, config.Error{File: file, Key: e.Key, Message: problem})
		case problem != "":
			fmt.Fprintln(warn, config.Error{File: file, Key: e.Key, Message: "warning: " + problem})
		}
	}
	if wrong == nil {
		return nil
	}
	return wrong
}
