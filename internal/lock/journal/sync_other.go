//go:build !linux

package journal

import (
	"os"
	"runtime"
)

// datasync makes the file's content last, as far as the system's fsync does.
func datasync(f *os.File) error { return f.Sync() }

// syncDir makes the names in a directory last. Windows has no such call: there a loss of power right after a rename can bring the
// old name back.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
