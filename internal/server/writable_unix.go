//go:build unix

package server

import "golang.org/x/sys/unix"

// checkWritable returns an error if this process may not write to a directory, such as EROFS for a file system that is read-only. It writes nothing.
func checkWritable(dir string) error { return unix.Access(dir, unix.W_OK) }
