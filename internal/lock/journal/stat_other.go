//go:build !unix

package journal

import "io/fs"

// inode returns 0: this system does not say.
func inode(fs.FileInfo) uint64 { return 0 }
