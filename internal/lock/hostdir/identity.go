package hostdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// parent is the open directory that the directories of locks lie in.
type parent struct {
	Directory
	name  lock.Name
	inode uint64 // 0: not read yet
}

// open opens a directory. The error is lock.ErrNoParent if there is none of that name, or if a link leads to it: the names of holds
// have none in them.
func (d *Disk) open(name lock.Name) (*parent, error) {
	f, err := d.o.FS.OpenDirectory(string(name))
	if missing(err) || errors.Is(err, syscall.ELOOP) {
		err = fmt.Errorf("%s: %w", name, lock.ErrNoParent)
	}
	if err != nil {
		return nil, err
	}
	return &parent{Directory: f.(Directory), name: name}, nil
}

// identity returns the inode of the directory.
func (p *parent) identity() (uint64, error) {
	if p.inode == 0 {
		info, err := p.Stat()
		if err != nil {
			return 0, err
		}
		p.inode = identify(info).Inode
	}
	return p.inode, nil
}

// had reports whether this is the directory in which that of a hold was made, and not another one of the same name, such as the mount point
// below it.
func (p *parent) had(h lock.Hold) (bool, error) {
	inode, err := p.identity()
	return inode == h.Directory.Parent, err
}

// made returns the identity of a directory in this one, with that of this one.
func (p *parent) made(s sight) (id lock.DirectoryID, err error) {
	id = s.id
	id.Parent, err = p.identity()
	return id, err
}

// sight is what has a name.
type sight struct {
	found     bool // something does
	directory bool // a directory, not a link to one
	id        lock.DirectoryID
	modified  time.Time
	device    uint64
	mark      mark
}

// is reports whether this is that directory. A birth that the file system does not record equals every other.
func (s sight) is(id lock.DirectoryID) bool {
	return s.directory && id.Inode == s.id.Inode && (id.Birth == 0 || s.id.Birth == 0 || id.Birth == s.id.Birth)
}

// see returns what was looked at. A name that nothing has is no error.
func see(info fs.FileInfo, err error) (sight, error) {
	switch {
	case missing(err):
		return sight{}, nil
	case err != nil:
		return sight{}, err
	}
	return sight{true, info.IsDir(), identify(info), info.ModTime(), deviceOf(info), markOf(info)}, nil
}

// look returns what has a name in the directory.
func (p *parent) look(n lock.Name) (sight, error) { return see(p.Lstat(n.Base())) }

// someInode stands for the inode number of a directory where the file system does not tell it. No directory below the root of a
// file system has this number.
const someInode = 1

// identify returns the identity of a directory. Some file systems have no inodes or no births.
func identify(info fs.FileInfo) (id lock.DirectoryID) {
	if sys, ok := info.Sys().(interface {
		Identity() (inode uint64, birth int64)
	}); ok {
		id.Inode, id.Birth = sys.Identity()
	}
	if id.Inode == 0 {
		id.Inode = someInode
	}
	return id
}

func deviceOf(info fs.FileInfo) uint64 {
	if sys, ok := info.Sys().(interface{ Device() uint64 }); ok {
		return sys.Device()
	}
	return 0
}

// isLeaf reports whether surely no directory lies in a directory: where each of those is one more link, the directory itself has two. Nearly
// all locks are leaves, and need not be opened.
func isLeaf(info fs.FileInfo) bool {
	links, ok := info.Sys().(interface{ Links() uint64 })
	return ok && links.Links() == 2
}

// occupied reports whether something lies in the directory. One that is gone is not occupied; one that cannot be read is.
func (d *Disk) occupied(n lock.Name) bool {
	dir, err := d.o.FS.Open(string(n))
	if err != nil {
		return !missing(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	return len(names) > 0 || err != nil && err != io.EOF && !missing(err)
}

// missing reports whether an error means that nothing has the name.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// notEmpty reports whether rmdir failed because something is in the directory. POSIX allows both errors.
func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}
