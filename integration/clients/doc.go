//go:build linux

// Package clients drives real clients: plain, over IPv4 and IPv6, in ASCII and binary; and under explicit and implicit TLS, 1.2 and 1.3, with session
// reuse off and required; active and passive.
package clients
