//go:build linux

// Package tlsclients drives real clients under TLS: explicit and implicit, 1.2 and 1.3, with session reuse off and required, active and passive.
package tlsclients
