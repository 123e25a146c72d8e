//go:build !linux

package integration

import "testing"

// others is none: they run on Linux only.
func others() map[string]func(t *testing.T, secure bool) host { return nil }
