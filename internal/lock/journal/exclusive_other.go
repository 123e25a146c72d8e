//go:build !unix

package journal

import "os"

// exclusive opens the lock file of a state directory. Nothing is locked: this system has no flock, and
// two servers on one state directory are for the operator to avoid.
func exclusive(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// InUse returns nil: nobody can tell.
func InUse(string) error { return nil }
