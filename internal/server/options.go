package server

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// UsageError is an error of the command line or of a file that it names.
type UsageError struct{ Err error }

func (u UsageError) Error() string { return u.Err.Error() }
func (u UsageError) Unwrap() error { return u.Err }

// Options are the settings of the command line. They take precedence over the configuration file.
type Options struct {
	ConfigFile string     // "" for none
	Listen     []string   // none: as configured
	Root       string     // "": as configured
	State      string     // "": as configured
	LogLevel   slog.Level // the lowest level that is logged
	LogFormat  LogFormat
}

// LogFormat is the format of the log.
type LogFormat string

const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *LogFormat) UnmarshalText(text []byte) error {
	if *f = LogFormat(text); *f != LogText && *f != LogJSON {
		return errors.New("must be text or json")
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (f LogFormat) MarshalText() ([]byte, error) { return []byte(f), nil }

// builtinHTTP is the address of the page of a server without a configuration file.
const builtinHTTP = "127.0.0.1:2180"

// Load returns the valid configuration of the file, with the flags in place of its values. Call it again to reload.
func (o Options) Load() (*config.Config, error) {
	c := config.Default()
	c.HTTP.Listen = builtinHTTP
	if o.ConfigFile != "" {
		var err error
		if c, err = config.Load(o.ConfigFile, checkRules); err != nil {
			return nil, UsageError{err}
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

// checkRules returns the errors that package lock finds in the rules, and refuses a status file with the name of a directory of locks, because the
// file would hide the directory.
func checkRules(c *config.Config) (errs config.Errors) {
	rules, err := lock.NewRules(RulesOf(c))
	if err == nil && slices.Contains(rules.Prefixes(), lock.Name(c.FTP.StatusFile)) {
		errs = append(errs, config.Error{Key: "ftp.status_file", Message: fmt.Sprintf("%q: locks of a [[lock]] are made in that directory", c.FTP.StatusFile)})
	}
	all, _ := err.(interface{ Unwrap() []error })
	if all == nil {
		return errs
	}
	valid := c.Validate() == nil
	for _, err := range all.Unwrap() {
		if p, ok := errors.AsType[*lock.ProtectsError](err); ok {
			key, path := fmt.Sprintf("lock[%d].protects[%d]", p.Rule+1, p.Path+1), c.Rules[p.Rule].Protects[p.Path]
			errs = append(errs, config.Error{Key: key, Message: fmt.Sprintf("%q: %s", path, p.Err)})
		} else if valid { // else the error has been reported
			errs = append(errs, config.Error{Key: "lock", Message: err.Error()})
		}
	}
	return errs
}

// Version returns the version of this program.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}
