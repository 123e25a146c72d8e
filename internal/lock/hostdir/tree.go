package hostdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// errExists is matched by the error of tree.make if something has the name.
var errExists = errors.New("something has that name")

// conflict is the error of a change that what the host did came before: nobody else changes the records.
func conflict(record lock.Record) error {
	return &lock.ConflictError{Record: record, Cause: lock.CauseHostGone}
}

func isConflict(err error) bool { return errors.Is(err, lock.ErrConflict) }

// tree makes, removes and recognises the directories of locks.
type tree struct{ fs Directories }

// sight is what stands at a name.
type sight struct {
	found     bool // something does
	directory bool // a directory, not a link to one
	id        lock.DirectoryID
	modified  time.Time
}

// is reports whether this is that directory. An id that nobody noted fits every directory; a birth that the file system
// does not record fits every other.
func (s sight) is(id lock.DirectoryID) bool {
	if !s.directory || id.Inode != 0 && id.Inode != s.id.Inode {
		return false
	}
	return id.Birth == 0 || s.id.Birth == 0 || id.Birth == s.id.Birth
}

// cameBack reports whether the directory that was seen is the one that a lock had, or an older one, which came back with the
// file system after a loss of power. at is when the lock had it. Where births are recorded they decide, since then all
// times are those of the file system.
func (s sight) cameBack(id lock.DirectoryID, at time.Time) bool {
	switch {
	case !s.directory:
		return false
	case id.Inode == 0, id.Inode != someInode && s.is(id): // nobody noted which one it was, or it is the same
		return true
	case id.Birth != 0 && s.id.Birth != 0:
		return s.id.Birth < id.Birth
	}
	return s.modified.Before(at)
}

// look returns what stands at the name. A name that nothing has is no error, nor is one without a parent.
func (t tree) look(name lock.Name) (sight, error) {
	info, err := t.fs.Lstat(string(name))
	switch {
	case missing(err):
		return sight{}, nil
	case err != nil:
		return sight{}, pathError("look at", name, err)
	}
	return see(info), nil
}

func see(info fs.FileInfo) sight {
	if !info.IsDir() {
		return sight{found: true}
	}
	return sight{found: true, directory: true, id: identify(info), modified: info.ModTime()}
}

// someInode stands for the inode number of a directory where the file system does not tell it. No directory below the root of a
// file system has this number.
const someInode = 1

// identify returns which directory it is, as far as the file system tells. The birth is in nanoseconds since 1970, 0 where it is not recorded.
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

// occupied reports whether something lies in the directory. One that has gone meanwhile is not occupied; what cannot be read
// is.
func (t tree) occupied(name lock.Name) bool {
	dir, err := t.fs.Open(string(name))
	if err != nil {
		return !missing(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	return len(names) > 0 || err != nil && !errors.Is(err, io.EOF) && !missing(err)
}

// make makes the directory of a lock. The error matches errExists if something has the name,
// lock.ErrNoParent if there is nowhere to make it.
func (t tree) make(name lock.Name) (lock.DirectoryID, error) {
	err := t.fs.Mkdir(string(name), 0o755)
	switch {
	case errors.Is(err, fs.ErrExist):
		return lock.DirectoryID{}, fmt.Errorf("%s: %w", name, errExists)
	case missing(err):
		return lock.DirectoryID{}, fmt.Errorf("%s: %w", name, lock.ErrNoParent)
	case err != nil:
		return lock.DirectoryID{}, pathError("mkdir", name, err)
	}
	seen, _ := t.look(name) // the zero id, unknown, if the host was faster
	return seen.id, nil
}

// remove removes the empty directory of a lock; one that has gone already is as good.
func (t tree) remove(name lock.Name) error {
	err := t.fs.RemoveDir(string(name))
	switch {
	case err == nil, missing(err):
		return nil
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EEXIST): // POSIX allows both
		return fmt.Errorf("%s: %w", name, lock.ErrNotEmpty)
	}
	return pathError("rmdir", name, err)
}

// missing reports whether an error says that nothing has the name.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// pathError is an error with the FTP path in the place of any real one.
func pathError(op string, name lock.Name, err error) error {
	return &fs.PathError{Op: op, Path: string(name), Err: bare(err)}
}

// bare strips real paths from an error: what is left may be shown to a client.
func bare(err error) error {
	var withPath *os.PathError
	if errors.As(err, &withPath) {
		return withPath.Err
	}
	var withPaths *os.LinkError
	if errors.As(err, &withPaths) {
		return withPaths.Err
	}
	return err
}
