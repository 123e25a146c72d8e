package files

import (
	"io/fs"
	"time"
)

// SetOptions changes what a reload may change, see [Options]. Uploads under way keep what they began with.
func (t *Tree) SetOptions(mode fs.FileMode, durable bool, maxAge time.Duration) {}
