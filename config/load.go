package config

import (
	"fmt"
	"os"
	"strings"
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
	tree, errs := readTree(data)
	config := Default()
	d := decoder{lines: make(map[string]int), config: config}
	d.root(tree)
	errs = append(errs, d.errs...)
	check := checker{Config: config}
	check.all()
	check.checkMarkers(d.lines)
	for _, more := range checks {
		check.errs = append(check.errs, more(config)...)
	}
	for _, e := range check.errs {
		if !d.failed(e.Key) {
			errs = append(errs, e)
		}
	}
	if len(errs) > 0 {
		return nil, d.place(errs, filename)
	}
	config.Warnings = d.place(check.warnings, filename)
	return config, nil
}

// failed reports whether the key, or what it is part of, could not be read: what
// stands in its place is only a default, and complaints about that help nobody.
func (d *decoder) failed(key string) bool {
	for _, e := range d.errs {
		rest, ok := strings.CutPrefix(key, e.Key)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// place gives each error the file and the line of its key, or of what the key is part of.
func (d *decoder) place(errs Errors, filename string) Errors {
	for i := range errs {
		errs[i].File = filename
		for key := errs[i].Key; errs[i].Line == 0 && key != ""; key = parent(key) {
			errs[i].Line = d.lines[key]
		}
	}
	return errs.sorted()
}

// parent returns what a key is part of: "a[1].b" is in "a[1]", that in "a".
func parent(key string) string {
	return key[:max(strings.LastIndexAny(key, ".["), 0)]
}
