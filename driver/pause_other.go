//go:build !linux

package driver

import "time"

func pause(d time.Duration) { time.Sleep(d) }
