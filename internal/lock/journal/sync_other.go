//go:build !linux

package journal

import "os"

// datasync makes the file's content survive a loss of power, as far as the system's fsync does.
func datasync(f *os.File) error { return f.Sync() }
