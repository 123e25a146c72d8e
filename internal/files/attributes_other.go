//go:build !linux

package files

// keepXattrs does nothing.
func (u *Upload) keepXattrs() error { return nil }
