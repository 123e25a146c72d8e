//go:build !linux

package hostdir

import "io/fs"

// identified is a FileInfo as it is where births cannot be told.
type identified struct {
	fs.FileInfo
	path string
}
