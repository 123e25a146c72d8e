//go:build !linux

package lock

import "time"

// sinceBoot is known on Linux only.
func sinceBoot() (time.Duration, bool) { return 0, false }
