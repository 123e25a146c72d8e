package files

import (
	"io/fs"
	"os"
	"time"
)

// info describes a file. Its Sys is a *details.
type info struct {
	name     string
	size     int64
	mode     fs.FileMode
	modified time.Time
	details  details
	host     fs.FileInfo // what package os said; nil: it was not asked
}

var _ fs.FileInfo = (*info)(nil)

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return i.modified }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return &i.details }

// describe describes an open file.
func describe(f *os.File, name string) (*info, error) {
	of, err := f.Stat()
	if err != nil {
		return nil, bare(err)
	}
	return infoOf(of, name), nil
}

// same reports whether two names are of one file.
func (i *info) same(o *info) bool {
	if i.host != nil && o.host != nil {
		return os.SameFile(i.host, o.host)
	}
	return i.details.device == o.details.device && i.details.inode == o.details.inode
}

// unchanged reports whether both describe one file whose content, mode and links did not change in between. It compares the
// times of the last changes, which have the resolution of the file system's clock (4 ms, often).
func (i *info) unchanged(o *info) bool {
	return i.same(o) && i.size == o.size && i.modified.Equal(o.modified) && i.details.changed == o.details.changed
}

func (i *info) isLink() bool { return i.mode&fs.ModeSymlink != 0 }

// details are what the system knows of a file besides. Users ask for its methods by interfaces of their own.
type details struct {
	device, inode, links uint64
	birth, changed       int64 // nanoseconds since 1970; 0: not known
	user, group          int
	sticky               bool
}

// Identity tells a file or directory from a later one of the same name: its inode number, and when it was made, in nanoseconds
// since 1970. What the file system does not record is 0. Two can have both in common if the second was made
// within one tick of the system's clock (4 ms, often) of the first, since ext4 uses an inode number again at once.
func (d *details) Identity() (inode uint64, birth int64) { return d.inode, d.birth }

// Device tells the file system that the inode number is of.
func (d *details) Device() uint64 { return d.device }

// Mark returns the sticky bit, which Mode hides, and the owner.
func (d *details) Mark() (sticky bool, owner int) { return d.sticky, d.user }

// Links returns how many names the file has.
func (d *details) Links() uint64 { return d.links }
