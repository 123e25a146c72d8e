//go:build !unix

package journal

import (
	"io"
	"os"
)

// LockDir returns a Closer that does nothing, since this system has no flock: the operator must not start two servers on one directory.
func LockDir(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// lockFile opens a file, and makes it if necessary. It locks nothing, see LockDir.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}
