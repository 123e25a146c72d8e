package files

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// The errors that this package adds to those of the system. It wraps the latter as they are (ENOSPC, EDQUOT, EFBIG, EISDIR,
// ENOTDIR, ENOTEMPTY, EXDEV, ...). They match fs.ErrNotExist, fs.ErrExist and fs.ErrPermission where that fits.
var (
	// ErrName means that the file system cannot hold such a name: it is too long, or has bytes that are not
	// allowed. The errno (ENAMETOOLONG, EILSEQ, EINVAL) is wrapped too.
	ErrName = errors.New("not a possible file name")
	// ErrEscapes means that a symbolic link leads out of the tree. Every absolute link does, even if it leads
	// back into the tree. It matches fs.ErrPermission.
	ErrEscapes = fmt.Errorf("leads out of the tree: %w", fs.ErrPermission)
	// ErrReserved is for names that are Hidden. It matches fs.ErrPermission.
	ErrReserved = fmt.Errorf("reserved name: %w", fs.ErrPermission)
	// ErrNotRegular means that the name is a pipe, a device or a socket. It matches fs.ErrPermission.
	ErrNotRegular = fmt.Errorf("not a regular file: %w", fs.ErrPermission)
	// ErrOffset means that a transfer would start beyond the end of the file (REST, RFC 3659 section 5).
	ErrOffset = errors.New("restart beyond the end of the file")
	// ErrNoRoomToCopy means that the disk or a quota has no room for the copy of the old content with which APPE and REST begin. ENOSPC or
	// EDQUOT is wrapped.
	ErrNoRoomToCopy = errors.New("no room for a copy of the old content")
	// ErrNotDurable means that a change is visible, but may not survive a loss of power. The reason is wrapped.
	ErrNotDurable = errors.New("published, but not made durable")
	// ErrShrunk means that a program truncated a file while it was open for reading.
	ErrShrunk = errors.New("the file has become shorter meanwhile")
	// ErrDone means that an upload was published or discarded before.
	ErrDone = errors.New("the upload is over")
	// ErrMoved means that a directory above a file was moved, or replaced by a link.
	ErrMoved = errors.New("a directory above it was moved")
	// ErrChanged means that an upload began with a copy of the old content (APPE, REST), and the file was replaced, changed,
	// renamed or removed since then.
	ErrChanged = errors.New("the file changed during the upload")
	// ErrSwept means that the temporary file of an upload was removed, by another server that has taken over the tree or by a program.
	ErrSwept       = errors.New("its temporary file is gone")
	errNoRenameNew = errors.New("the file system cannot rename without replacing")
)

// marked returns a cause that also matches one of the errors above.
func marked(as, cause error) error { return fmt.Errorf("%w: %w", as, cause) }

// fail returns the error for the caller of this package: op, the FTP path, and the cause without any path of the host.
func fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: stripPaths(err)}
}

// stripPaths removes the wrappers that contain paths and addresses, and adds ErrName where that fits.
func stripPaths(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return stripPaths(e.Err)
	case *os.SyscallError:
		return stripPaths(e.Err)
	case *os.LinkError:
		return stripPaths(e.Err)
	case *net.OpError: // it contains the client's address
		return stripPaths(e.Err)
	case syscall.Errno:
		if e == syscall.ENAMETOOLONG || e == syscall.EILSEQ {
			return marked(ErrName, e)
		}
	}
	return err
}
