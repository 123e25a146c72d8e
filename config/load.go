package config

import (
	"bytes"
	"fmt"
	"os"
)

// Check is what somebody else knows to be wrong with a configuration: each Error with the Key that
// it is about, such as lock[1].protects[2], which is counted from 1. It is asked only where the file can be read.
type Check func(*Config) Errors

// Load reads a configuration file. The error is an [Errors] if the file could be
// read, else it matches what the operating system said.
func Load(file string, checks ...Check) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c, err := Parse(data, file, checks...)
	if err == nil && inside(file, c.Root) {
		c.Warnings = append(c.Warnings, Error{File: file, Message: "warning: the file lies inside root, where clients can read the password hashes in it"})
	}
	return c, err
}

// Parse is [Load] for what has been read already; filename is for the errors.
// What a file leaves out is as in [Default], [DefaultAccount] and [DefaultRule].
func Parse(data []byte, filename string, checks ...Check) (*Config, error) {
	at := findLines(bytes.TrimPrefix(data, []byte(byteOrderMark)))
	config, given, d := decode(data)
	if config == nil {
		return nil, at.place(d.errs, filename)
	}
	check := checker{Config: config}
	if given.has("account") && len(config.Accounts) == 0 {
		check.fail("account", "no account: nobody could log in; leave account out for the built-in one")
	}
	check.all()
	check.checkMarkers(given.list("lock"))
	for _, more := range checks {
		check.errs = append(check.errs, more(config)...)
	}
	for _, e := range check.errs {
		if !d.failed(e.Key) {
			d.errs = append(d.errs, e)
		}
	}
	if len(d.errs) > 0 {
		return nil, at.place(d.errs, filename)
	}
	config.Warnings = at.place(check.warnings, filename)
	return config, nil
}
