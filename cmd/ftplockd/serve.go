package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/internal/server"
)

// serveOptions are the flags of the commands.
type serveOptions struct {
	server.Options
	warned bool // stateDirectory has warned of the configuration file
}

// newServeCommand returns the command that runs the server.
func newServeCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server, as ftplockd does without a subcommand",
		Long: `Serve runs the server until it gets SIGINT or SIGTERM.

Flags take precedence over the configuration file. "ftplockd config example" prints the defaults of all keys. Without an [[account]]
there is one account: its name is FTPLOCKD_USER from the environment, or "ftp"; its password is FTPLOCKD_PASSWORD, or a generated one
in the file "password" of the state directory.`,
		Example: `  ftplockd serve --config /etc/ftplockd/ftplockd.toml
  FTPLOCKD_PASSWORD=secret ftplockd serve --listen 127.0.0.1:2121 --listen '[::1]:2121'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getpid() == 1 {
				return supervise()
			}
			return server.Run(cmd.Context(), options.Options, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.ConfigFile, "config", "", "configuration `FILE` (TOML)")
	flags.StringArrayVar(&options.Listen, "listen", nil, "listen on `HOST:PORT` instead of the configured addresses; may be repeated")
	flags.StringVar(&options.Root, "root", "", "the `DIR` that clients see as /, instead of the configured one")
	flags.StringVar(&options.State, "state", "", "`DIR` for the server's own files, instead of the configured one")
	flags.TextVar((*level)(&options.LogLevel), "log-level", level(slog.LevelInfo), "log messages of this `LEVEL` and above: debug, info, warn, error")
	options.LogFormat = server.LogText
	flags.TextVar(&options.LogFormat, "log-format", server.LogText, "log in this `FORMAT`: text, json")
	return cmd
}

// level is a level of the log on the command line.
type level slog.Level

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *level) UnmarshalText(text []byte) error {
	if (*slog.Level)(l).UnmarshalText(text) != nil {
		return errors.New("must be debug, info, warn or error")
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (l level) MarshalText() ([]byte, error) { return slog.Level(l).MarshalText() }
