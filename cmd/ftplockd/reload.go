package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/server"
)

// newReloadCommand returns the command that makes a running server read its configuration again.
func newReloadCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make the running server read its configuration file again",
		Long: `Reload makes the server read its configuration file again, as SIGHUP does, and waits for the result. The exit status is 0 if the
server uses the new file. Reload prints the warnings of "config check". It ends no session, and a file with an error changes
nothing. New ages, idle times and on_disconnect apply to held locks at once, so a shorter age can end some.

Keys that need a restart (listen, root, state, locks.directories and a few more) keep their old values; reload prints the ones that
changed. Sessions keep the rights of their login until "ftplockd kick" ends them.

` + howServerIsFound,
		Example: "  ftplockd reload\n  ftplockd reload --config ftplockd.toml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.State == "" {
				if err := options.withServer(func() error { _, err := options.Load(); return err }); err != nil {
					return err
				}
			}
			done, err := request[server.Reloaded](&options, cmd, http.MethodPost, "/reload")
			if err != nil {
				return err
			}
			for _, warning := range done.Warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), warning)
			}
			for _, key := range done.NeedRestart {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s has changed, but needs a restart: the server uses the old value until then\n", key)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "reloaded")
			return err
		},
	}
	options.addStateFlags(cmd)
	return cmd
}

// addStateFlags adds the flags of the commands that send requests to a running server.
func (o *serveOptions) addStateFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.ConfigFile, "config", "", "configuration `FILE` (TOML) of the server (see ftplockd --help)")
	cmd.Flags().StringVar(&o.State, "state", "", "state `DIR` of the server instead of that of the configuration")
}

// ask sends a request to the running server and returns the answer.
func (o *serveOptions) ask(cmd *cobra.Command, method, path string) (body []byte, err error) {
	err = o.withServer(func() error {
		state, err := o.stateDirectory(cmd)
		if err == nil {
			body, err = server.Request(cmd.Context(), state, method, path)
		}
		return err
	})
	return body, err
}

// stateDirectory returns the state directory of --state or of the configuration file. It warns of a file with errors, because the server may
// run on with an older version of the file.
func (o *serveOptions) stateDirectory(cmd *cobra.Command) (string, error) {
	if o.State != "" {
		return o.State, nil
	}
	c, err := o.Load()
	if err == nil {
		return c.State, nil
	}
	state := config.StateIn(o.ConfigFile)
	if state == "" {
		return "", withoutFile(err)
	}
	if !o.warned {
		o.warned = true
		fmt.Fprintf(cmd.ErrOrStderr(), "ftplockd: warning: %s has errors (see \"ftplockd config check\"); its state directory is %s\n", o.ConfigFile, state)
	}
	return state, nil
}

// withoutFile adds to an error of the configuration file that the command does not need the file.
func withoutFile(err error) error {
	return fmt.Errorf("%w\nwith --state DIR this command does not read the configuration file", err)
}
