//go:build !testclock

package main

import "github.com/ftplockd/ftplockd/internal/lock"

// newClock returns the clock that the server takes its time from.
func newClock() (lock.Clock, error) { return lock.NewSystemClock(), nil }
