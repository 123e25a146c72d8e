package files

import (
	"io/fs"
	"time"
)

// info describes a file. Its Sys is a *details.
type info struct {
	name     string
	size     int64
	mode     fs.FileMode
	modified time.Time
	details  details

	//lint:ignore U1000 directory_other.go uses it
	host fs.FileInfo // the description of package os
}

var _ fs.FileInfo = (*info)(nil)

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return i.modified }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return &i.details }

// unchanged reports whether both describe one file whose content, mode and links did not change in between. It compares the
// times of the last changes, which have the resolution of the file system's clock (often 4 ms).
func (i *info) unchanged(o *info) bool {
	return i.same(o) && i.size == o.size && i.modified.Equal(o.modified) && i.details.changed == o.details.changed
}

func (i *info) isLink() bool { return i.mode&fs.ModeSymlink != 0 }

// details are further properties of a file. Other packages declare interfaces with the methods that they need.
type details struct {
	device, inode, links uint64
	birth, changed       int64 // nanoseconds since 1970; 0: unknown
	user, group          int
	sticky               bool
}

// Identity distinguishes a file or directory from a later one of the same name: the inode number, and the time of birth in
// nanoseconds since 1970. A value that the file system does not record is 0. Two files can have both in common if the second was made
// within one tick of the system's clock (often 4 ms) after the first, since ext4 uses an inode number again at once.
func (d *details) Identity() (inode uint64, birth int64) { return d.inode, d.birth }

// Device identifies the file system of the inode number.
func (d *details) Device() uint64 { return d.device }

// Mark returns the sticky bit, which Mode hides, and the owner.
func (d *details) Mark() (sticky bool, owner int) { return d.sticky, d.user }

// Links returns how many names the file has.
func (d *details) Links() uint64 { return d.links }
