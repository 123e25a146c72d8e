package config

import _ "embed"

//go:embed example.toml
var example string // a constant, as far as the language lets a file be one

// Example returns the default configuration as a file: it parses to exactly
// [Default], and names and explains every key. What is commented out there
// has the value shown; the [[account]] is a sample.
func Example() []byte { return []byte(example) }
