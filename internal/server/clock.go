//go:build !testclock

package server

import "github.com/ftplockd/ftplockd/internal/lock"

// NewClock returns the clock of the server.
func NewClock() (clock, error) { return lock.NewSystemClock(), nil }
