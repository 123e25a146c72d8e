//go:build !linux

package journal

import "os"

// datasync makes the file's content last, as far as the system's fsync does.
func datasync(f *os.File) error { return f.Sync() }
