package files

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// The errors that this package adds to those of the system, which are wrapped as they are
// (ENOSPC, EDQUOT, EFBIG, EISDIR, ENOTDIR, ENOTEMPTY, EXDEV, ...) and match fs.ErrNotExist,
// fs.ErrExist, fs.ErrPermission where that fits.
var (
	// ErrName is matched if the file system cannot hold such a name: too long, bytes that it
	// does not allow. The errno (ENAMETOOLONG, EILSEQ, EINVAL) is wrapped too.
	ErrName = errors.New("not a possible file name")
	// ErrEscapes is matched if a symbolic link leads out of the tree, as every absolute one does, also if it comes
	// back into it. It matches fs.ErrPermission.
	ErrEscapes = fmt.Errorf("leads out of the tree: %w", fs.ErrPermission)
	// ErrReserved is matched by the name of a temporary of an upload. It matches fs.ErrPermission.
	ErrReserved = fmt.Errorf("reserved name: %w", fs.ErrPermission)
	// ErrNotRegular is matched if the name is a pipe, a device, a socket. It matches fs.ErrPermission.
	ErrNotRegular = fmt.Errorf("not a regular file: %w", fs.ErrPermission)
	// ErrOffset is matched if a transfer is to start beyond the end of the file (REST, RFC 3659 section 5).
	ErrOffset = errors.New("restart beyond the end of the file")
	// ErrNotDurable is matched if a file was published and can be seen, but may not survive a loss of
	// power. The reason is wrapped.
	ErrNotDurable = errors.New("published, but not made durable")
	// ErrShrunk is matched if somebody cut a file off while it was open for reading.
	ErrShrunk = errors.New("the file has become shorter meanwhile")
	// ErrDone is matched by what is asked of an upload that was published or discarded already.
	ErrDone = errors.New("the upload is over")
	// ErrMoved is matched if a directory above a file has been moved meanwhile, or a link put in its place.
	ErrMoved = errors.New("a directory above it was moved")
	// ErrChanged is matched if an upload began with a copy of the old content (APPE, REST), and the file was replaced, changed,
	// renamed or removed since then.
	ErrChanged = errors.New("the file changed during the upload")
	// ErrSwept is matched if the temporary file of an upload is gone: another server has taken over the tree, or somebody removed it.
	ErrSwept       = errors.New("its temporary file is gone")
	errNoRenameNew = errors.New("the file system cannot rename without replacing")
)

// marked is a cause that matches one of the errors above, too.
func marked(as, cause error) error { return fmt.Errorf("%w: %w", as, cause) }

// fail makes the error that a caller of this package sees: op and FTP path, and the cause
// without any path of the host.
func fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: bare(err)}
}

// bare strips the wrappers that carry paths and addresses, and marks what ErrName stands for.
func bare(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return bare(e.Err)
	case *os.SyscallError:
		return bare(e.Err)
	case *os.LinkError:
		return bare(e.Err)
	case *net.OpError: // it has the client's address in it
		return bare(e.Err)
	case syscall.Errno:
		if e == syscall.ENAMETOOLONG || e == syscall.EILSEQ {
			return marked(ErrName, e)
		}
	}
	return err
}
