package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
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
			c, err := config.Load(args[0], checkProtects, checkStatusFile)
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

// checkStatusFile refuses a status file with the name of a directory that locks are made in: it would hide that.
func checkStatusFile(c *config.Config) config.Errors {
	rules, err := lock.NewRules(rulesOf(c))
	if err != nil || !slices.Contains(rules.Prefixes(), lock.Name(c.FTP.StatusFile)) {
		return nil
	}
	return config.Errors{{Key: "ftp.status_file", Message: fmt.Sprintf("%q: locks of a [[lock]] are made in that directory", c.FTP.StatusFile)}}
}

// checkProtects says what package lock has against the paths that rules protect.
func checkProtects(c *config.Config) config.Errors {
	var errs config.Errors
	_, err := lock.NewRules(rulesOf(c))
	for _, p := range protectsErrors(err) {
		errs = append(errs, config.Error{
			Key:     fmt.Sprintf("lock[%d].protects[%d]", p.Rule+1, p.Path+1),
			Message: fmt.Sprintf("%q: %s", c.Rules[p.Rule].Protects[p.Path], p.Err),
		})
	}
	return errs
}

// protectsErrors finds all of them in an error of lock.NewRules.
func protectsErrors(err error) []*lock.ProtectsError {
	switch e := err.(type) {
	case *lock.ProtectsError:
		return []*lock.ProtectsError{e}
	case interface{ Unwrap() error }:
		return protectsErrors(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*lock.ProtectsError
		for _, one := range e.Unwrap() {
			all = append(all, protectsErrors(one)...)
		}
		return all
	}
	return nil
}
