package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
)

// installedConfig is the path at which a package installs the configuration. A package for another system sets its own with
// -ldflags "-X main.installedConfig=/usr/local/etc/ftplockd/ftplockd.toml".
var installedConfig = "/etc/ftplockd/ftplockd.toml"

// howServerIsFound describes findServer in the help.
const howServerIsFound = `The server is that of --state or --config; else that of ftplockd-data/state in the
current directory, which a server without a configuration uses; else that of
/etc/ftplockd/ftplockd.toml.`

// findServer sets ConfigFile to the installed configuration, unless the command line names a server or a server without a configuration
// was started in this directory. It returns a sentence about the result.
func (o *serveOptions) findServer() string {
	builtin := config.Default().State
	switch {
	case o.State != "":
		return "The state directory is that of --state."
	case o.Root != "" && o.ConfigFile == "":
		return "The directory is that of --root."
	case o.ConfigFile != "":
	case exists(builtin):
		return fmt.Sprintf("No --config and no --state was given, and %s exists here: the configuration is the built-in one.", builtin)
	case exists(installedConfig):
		o.ConfigFile = installedConfig
	default:
		return fmt.Sprintf("No --config and no --state was given, and neither %s nor %s exists.", builtin, installedConfig)
	}
	return fmt.Sprintf("The configuration is %s.", o.ConfigFile)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// offline is like withServer, for a command that needs no running server. It prints the configuration if the command line does not name it: a wrong one
// may give a result, too.
func (o *serveOptions) offline(cmd *cobra.Command, run func() error) error {
	implicit := o.ConfigFile+o.State+o.Root == ""
	where := o.findServer()
	err := o.withServer(run)
	if err == nil && implicit {
		fmt.Fprintln(cmd.ErrOrStderr(), where)
	}
	return err
}

// withServer runs a part of a command about a server. It adds the configuration to an error.
func (o *serveOptions) withServer(run func() error) error {
	where := o.findServer()
	if err := run(); err != nil {
		return fmt.Errorf("%w\n%s", err, where)
	}
	return nil
}
