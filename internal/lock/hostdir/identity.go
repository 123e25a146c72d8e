package hostdir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// parent is an open directory with the directories of locks.
type parent struct {
	Directory
	name  lock.Name
	inode uint64 // 0: not read yet
}

// open opens a directory. If it does not exist, or a link is in its name, the error is lock.ErrNoParent: the names of holds have no
// links in them.
func (d *Disk) open(name lock.Name) (parent, error) {
	f, err := d.o.FS.OpenDirectory(string(name))
	if missing(err) || errors.Is(err, syscall.ELOOP) {
		err = fmt.Errorf("%s: %w", name, lock.ErrNoParent)
	}
	if err != nil {
		return parent{}, err
	}
	return parent{Directory: f.(Directory), name: name}, nil
}

// identity returns the inode of the directory.
func (p *parent) identity() (uint64, error) {
	if p.inode == 0 {
		s, err := newEntry(p.Stat())
		if err != nil {
			return 0, err
		}
		p.inode = s.id.Inode
	}
	return p.inode, nil
}

// isParentOf reports whether the directory of a hold was made in this directory, and not in another one of the same name, such as the file
// system that is mounted over it.
func (p *parent) isParentOf(h lock.Hold) (bool, error) {
	inode, err := p.identity()
	return inode == h.Directory.Parent, err
}

// withParent returns the identity of a directory in p, with the inode of p as its parent.
func (p *parent) withParent(s entry) (id lock.DirectoryID, err error) {
	id = s.id
	id.Parent, err = p.identity()
	return id, err
}

// entryOf returns the entry of a name in the directory.
func (p *parent) entryOf(n lock.Name) (entry, error) { return newEntry(p.Lstat(n.Base())) }

// entry is the file that has a name, or the zero entry for a free name.
type entry struct {
	found     bool // something has the name
	directory bool // not a link to one
	leaf      bool // a directory that certainly contains no directory
	id        lock.DirectoryID
	modified  time.Time
	device    uint64
	sticky    bool
	owner     int
}

// onlyMarked is the Birth of a marked directory on a file system that records no times of birth.
const onlyMarked = -1

// matches reports whether the name has the directory with the identity id. An unknown time of birth equals every other. A directory that
// was onlyMarked must still have its mark: the inode of a removed directory is soon that of a new one.
func (s entry) matches(id lock.DirectoryID) bool {
	switch {
	case !s.directory || id.Inode != s.id.Inode:
		return false
	case id.Birth == onlyMarked:
		return s.sticky
	}
	return id.Birth == 0 || s.id.Birth <= 0 || id.Birth == s.id.Birth
}

// system is implemented by the Sys of a FileInfo whose file system has inodes.
type system interface {
	Identity() (inode uint64, birth int64) // birth: nanoseconds since 1970, 0 if it is unknown
	Device() uint64
	Links() uint64
	Mark() (sticky bool, owner int)
}

// placeholderInode stands for the inode where the system reports none. No directory below the root of a
// file system has this number.
const placeholderInode = 1

// newEntry converts a FileInfo. A free name is no error.
func newEntry(info fs.FileInfo, err error) (entry, error) {
	switch {
	case missing(err):
		return entry{}, nil
	case err != nil:
		return entry{}, err
	}
	s := entry{found: true, directory: info.IsDir(), modified: info.ModTime()}
	if sys, ok := info.Sys().(system); ok {
		s.id.Inode, s.id.Birth = sys.Identity()
		s.device = sys.Device()
		s.sticky, s.owner = sys.Mark()
		s.leaf = sys.Links() == 2 // where each directory in it is one more link
	}
	if s.id.Birth == 0 && s.sticky {
		s.id.Birth = onlyMarked
	}
	if s.id.Inode == 0 {
		s.id.Inode = placeholderInode
	}
	return s, nil
}

// isMarked reports whether a directory has the mark. Some file systems report a sticky bit for every directory, or an owner of their own:
// they are compared with a new directory without the bit. If that cannot be made, the directory belongs to the host.
func (p *parent) isMarked(s entry) bool {
	if !s.sticky {
		return false
	}
	n := lock.Name(".ftplockd-leftover-probe-" + rand.Text()) // clients do not see it
	if err := p.Mkdir(n.Base(), 0o700); err != nil {
		return false
	}
	defer p.RemoveDir(n.Base())
	plain, err := p.entryOf(n)
	return err == nil && plain.directory && !plain.sticky && plain.owner == s.owner && plain.device == s.device
}

// occupied reports whether something is in the directory. If it cannot be read, the result is true.
func (d *Disk) occupied(n lock.Name) bool {
	dir, err := d.o.FS.Open(string(n))
	if err != nil {
		return !missing(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	return len(names) > 0 || err != nil && err != io.EOF && !missing(err)
}

// missing reports whether nothing has the name.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// notEmpty reports whether rmdir failed because something is in the directory. POSIX allows both errors.
func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}
