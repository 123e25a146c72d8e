package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

// newReloadCommand returns the command that has a running server read its configuration again.
func newReloadCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the running server read its configuration file again",
		Long: `Reload has the server read its configuration file again, as SIGHUP does, and says how that
went. No session and no lock is dropped. A file with an error changes nothing. Ages, idle times
and what a disconnect does hold for locks that are held, at once; so a shorter age may end some.

Keys that need a restart (listen, root, state, locks.directories and a few more) keep their old
values; those that changed are named. Sessions that are logged in keep the rights that they logged in
with: "ftplockd kick" ends them.

The server is found by its state directory: that of --config or --state, else the default.`,
		Example: "  ftplockd reload --config /etc/ftplockd.toml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := options.stateDirectory()
			if err != nil {
				return err
			}
			body, err := ask(cmd.Context(), state, http.MethodPost, "/reload")
			if err != nil {
				return err
			}
			var ignored []string
			if err := json.Unmarshal(body, &ignored); err != nil {
				return err
			}
			for _, key := range ignored {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s has changed and needs a restart: until then the old value holds\n", key)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "reloaded")
			return err
		},
	}
	options.addStateFlags(cmd)
	return cmd
}

// addStateFlags are the flags of the commands that speak to a running server.
func (o *serveOptions) addStateFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.ConfigFile, "config", "", "configuration `FILE` (TOML) of the server")
	cmd.Flags().StringVar(&o.State, "state", "", "state `DIR` of the server instead of what is configured")
}

// stateDirectory finds the state directory. The configuration file is read only if it must be, so
// that a server can be spoken to while its file has an error.
func (o *serveOptions) stateDirectory() (string, error) {
	if o.State != "" {
		return o.State, nil
	}
	c, err := o.load()
	if err != nil {
		return "", err
	}
	return c.State, nil
}
