//go:build !linux

package journal

import (
	"errors"
	"os"
)

// datasync makes the file's content last.
func datasync(f *os.File) error { return f.Sync() }

// allocate, share and unshare are for Linux.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

func share(*os.File, int64, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

func unshare([]byte) {}
