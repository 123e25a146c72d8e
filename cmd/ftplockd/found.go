package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ftplockd/ftplockd/config"
)

// installedConfig is where a package installs the configuration. A package for another system sets its own with
// -ldflags "-X main.installedConfig=/usr/local/etc/ftplockd/ftplockd.toml".
var installedConfig = "/etc/ftplockd/ftplockd.toml"

// howFound documents find.
const howFound = `The server is that of --state or --config; else that of ftplockd-data/state in the
current directory, where a server without a configuration was started; else that of
/etc/ftplockd/ftplockd.toml.`

// find sets ConfigFile to the installed configuration, unless the command line names a server or a server without a configuration
// was started in this directory. It returns a sentence about the result.
func (o *serveOptions) find() string {
	builtin := config.Default().State
	switch {
	case o.State != "":
		return "The state directory is that of --state."
	case o.Root != "" && o.ConfigFile == "":
		return "The directory is that of --root."
	case o.ConfigFile != "":
	case exists(builtin):
		return fmt.Sprintf("No --config and no --state was given, and %s is here: the configuration is the built-in one.", builtin)
	case exists(installedConfig):
		o.ConfigFile = installedConfig
	default:
		return fmt.Sprintf("No --config and no --state was given, and neither %s nor %s is there.", builtin, installedConfig)
	}
	return fmt.Sprintf("The configuration is %s.", o.ConfigFile)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// found runs a part of a command about a server. It adds the configuration to an error.
func (o *serveOptions) found(run func() error) error {
	where := o.find()
	if err := run(); err != nil {
		return fmt.Errorf("%w\n%s", err, where)
	}
	return nil
}
