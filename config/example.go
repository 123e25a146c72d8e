package config

import _ "embed"

//go:embed example.toml
var example string // never changed

// Example returns the default configuration as a file, which explains each key. Parse returns [Default] for it. Keys in comments are shown
// with their defaults, except in the sample [[account]] and [[hook]].
func Example() []byte { return []byte(example) }
