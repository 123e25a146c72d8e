//go:build !unix

package server

import "io/fs"

// device returns 0: the number of the file system is not known.
func device(fs.FileInfo) uint64 { return 0 }
