package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/server"
)

// serveOptions are the flags of the commands.
type serveOptions struct{ server.Options }

// newServeCommand returns the command that runs the server until it is told to stop.
func newServeCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server (what ftplockd does without a subcommand)",
		Long: `Serve runs the server until it gets SIGINT or SIGTERM.

What the flags do not say the configuration file does, and what that leaves out is
as "ftplockd config example" shows. Without any account, in a file or at all, there
is one: its name is FTPLOCKD_USER from the environment or "ftp", its password
FTPLOCKD_PASSWORD or a generated one in the file "password" of the state directory.`,
		Example: `  ftplockd serve --config /etc/ftplockd.toml
  FTPLOCKD_PASSWORD=secret ftplockd serve --listen 127.0.0.1:2121 --listen '[::1]:2121'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return server.Run(cmd.Context(), options.Options, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.ConfigFile, "config", "", "configuration `FILE` (TOML)")
	flags.StringArrayVar(&options.Listen, "listen", nil, "listen on `HOST:PORT` instead of what is configured; may be repeated")
	flags.StringVar(&options.Root, "root", "", "`DIR` that clients see as / instead of what is configured")
	flags.StringVar(&options.State, "state", "", "`DIR` for the server's own files instead of what is configured")
	flags.TextVar(&options.LogLevel, "log-level", slog.LevelInfo, "log what is at least of that `LEVEL`: debug, info, warn, error")
	options.LogFormat = server.LogText
	flags.TextVar(&options.LogFormat, "log-format", server.LogText, "log in this `FORMAT`: text, json")
	return cmd
}
