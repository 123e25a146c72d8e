//go:build !unix

package journal

import "os"

// openLockFile opens the lock file of a state directory. It locks nothing, since this system has no flock: the operator must not start
// two servers on one state directory.
func openLockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// InUse returns nil, since this system has no flock.
func InUse(string) error { return nil }
