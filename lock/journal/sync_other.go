//go:build !linux

package journal

import "os"

// datasync makes the file's content last.
func datasync(f *os.File) error { return f.Sync() }
