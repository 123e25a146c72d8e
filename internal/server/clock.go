//go:build !testclock

package server

import "github.com/ftplockd/ftplockd/internal/lock"

// newClock returns the clock of the server.
func NewClock() (clock, error) { return lock.NewSystemClock(), nil }
