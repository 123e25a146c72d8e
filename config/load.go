package config

import (
	"bytes"
	"fmt"
	"os"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Check returns more errors of a configuration. Each has a Key, such as lock[1].protects[2], counted from 1.
type Check func(*Config) Errors

// Load reads a configuration file. The error is an [Errors] if the file could be read, else it wraps the error of package os.
func Load(file string, checks ...Check) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c, err := Parse(data, file, checks...)
	if err == nil && inside(file, c.Root) {
		c.Warnings = append(c.Warnings, Error{File: file, Message: "warning: the file is inside root: clients can read its password hashes"})
	}
	return c, err
}

// StateIn returns the key "state" of a configuration file that [Load] may refuse, so that a typo in another key or line does not hide a running
// server. It returns "" if the file cannot be read, or has no such key before its first [section] and its first syntax error.
func StateIn(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	var p unstable.Parser
	p.Reset(bytes.TrimPrefix(data, byteOrderMark))
	for p.NextExpression() && p.Expression().Kind == unstable.KeyValue {
		key, value := p.Expression().Key(), p.Expression().Value()
		if key.Next() && string(key.Node().Data) == "state" && key.IsLast() && value.Kind == unstable.String {
			return string(value.Data)
		}
	}
	return ""
}

// byteOrderMark begins the files of editors on Windows.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Parse is like [Load] for the content of a file; filename is for the errors. Keys that are left out have the values of [Default], [DefaultAccount]
// and [DefaultRule].
func Parse(data []byte, filename string, checks ...Check) (*Config, error) {
	data = bytes.TrimPrefix(data, byteOrderMark)
	at := findLines(data)
	config, given, d := decode(data)
	if config == nil {
		return nil, at.locate(d.errs, filename)
	}
	check := checker{Config: config}
	if given.has("account") && len(config.Accounts) == 0 {
		check.fail("account", "no account: no client could log in; leave account out for the built-in one")
	}
	if tls := given.section("tls"); tls.has("certificate") && !tls.has("mode") && config.TLS.Certificate != "" {
		check.fail("tls.certificate", `is not used without tls.mode: write mode = "required" or "optional"`)
	}
	check.checkAll()
	check.checkIdleDefault(given.list("lock"))
	for _, more := range checks {
		check.errs = append(check.errs, more(config)...)
	}
	for _, e := range check.errs {
		if !d.failed(e.Key) {
			d.errs = append(d.errs, e)
		}
	}
	if len(d.errs) > 0 {
		return nil, at.locate(d.errs, filename)
	}
	config.Warnings = at.locate(check.warnings, filename)
	return config, nil
}
