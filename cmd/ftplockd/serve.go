package main

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
)

// serveOptions is what the command line says to a server.
type serveOptions struct {
	ConfigFile string     // "" for none
	Listen     []string   // none: as configured
	Root       string     // "": as configured
	State      string     // "": as configured
	LogLevel   slog.Level // what is less than this is not logged
	LogFormat  logFormat
}

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
			return runServe(cmd.Context(), options, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.ConfigFile, "config", "", "configuration `FILE` (TOML)")
	flags.StringArrayVar(&options.Listen, "listen", nil, "listen on `HOST:PORT` instead of what is configured; may be repeated")
	flags.StringVar(&options.Root, "root", "", "`DIR` that clients see as / instead of what is configured")
	flags.StringVar(&options.State, "state", "", "`DIR` for the server's own files instead of what is configured")
	flags.TextVar(&options.LogLevel, "log-level", slog.LevelInfo, "log what is at least of that `LEVEL`: debug, info, warn, error")
	options.LogFormat = logText
	flags.TextVar(&options.LogFormat, "log-format", logText, "log in this `FORMAT`: text, json")
	return cmd
}

// logFormat is how lines of the log are written.
type logFormat string

const (
	logText logFormat = "text"
	logJSON logFormat = "json"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *logFormat) UnmarshalText(text []byte) error {
	if *f = logFormat(text); *f != logText && *f != logJSON {
		return errors.New("must be text or json")
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (f logFormat) MarshalText() ([]byte, error) { return []byte(f), nil }

// builtinHTTP is where a server without a configuration file shows its page.
const builtinHTTP = "127.0.0.1:2180"

// load returns the configuration that the options describe, valid, with the
// flags put over the file. Call it again to reload.
func (o serveOptions) load() (*config.Config, error) {
	c := config.Default()
	c.HTTP.Listen = builtinHTTP
	if o.ConfigFile != "" {
		var err error
		if c, err = config.Load(o.ConfigFile, checkProtects, checkStatusFile); err != nil {
			return nil, usageError{err}
		}
	}
	if len(o.Listen) > 0 {
		c.Listen = o.Listen
	}
	if o.Root != "" {
		c.Root = o.Root
	}
	if o.State != "" {
		c.State = o.State
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}
