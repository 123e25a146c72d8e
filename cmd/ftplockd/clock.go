//go:build !testclock

package main

import "github.com/ftplockd/ftplockd/internal/lock"

// newClock returns the clock of the server.
func newClock() (clock, error) { return lock.NewSystemClock(), nil }
