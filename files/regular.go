package files

import (
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// regular is a regular file that is open for reading. To make an *os.File of it takes three system calls, which a small download
// would notice.
type regular struct {
	size int64 // when it was opened

	mu sync.RWMutex // read-locked while the descriptor is used
	fd int          // -1: closed
}

// newFile wraps a descriptor of a regular file; its errors show the FTP path.
func newFile(fd int, name string) *os.File { return os.NewFile(uintptr(fd), name) }

// openRegular opens what a clean name leads to for reading, if it is a regular file. It never waits for a pipe. The
// caller holds t.life.
func (t *Tree) openRegular(name string) (*regular, error) {
	fd, err := t.open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY) // O_NONBLOCK means nothing to a regular file
	if err == unix.ENXIO {                                               // a socket, or a device without a driver
		return nil, ErrNotRegular
	}
	if err != nil {
		return nil, err
	}
	return t.take(fd)
}

// take wraps a descriptor, and closes it if it is of anything else.
func (t *Tree) take(fd int) (*regular, error) {
	i, err := t.sys.fstat(fd, "")
	switch {
	case err != nil:
	case i.IsDir():
		err = unix.EISDIR
	case !i.isRegular():
		err = ErrNotRegular
	default:
		return &regular{size: i.Size(), fd: fd}, nil
	}
	unix.Close(fd)
	return nil, err
}

// use calls do, or fails with fs.ErrClosed. The file stays open meanwhile.
func (f *regular) use(do func(fd int) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.fd < 0 {
		return fs.ErrClosed
	}
	return do(f.fd)
}

// ReadAt implements io.ReaderAt.
func (f *regular) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.use(func(fd int) error {
		for n < len(p) {
			m, err := unix.Pread(fd, p[n:], off+int64(n))
			switch {
			case err == unix.EINTR:
			case err != nil:
				return err
			case m == 0:
				return io.EOF
			default:
				n += m
			}
		}
		return nil
	})
	return n, err
}

// Close closes the file; a use that is under way ends first.
func (f *regular) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd < 0 {
		return fs.ErrClosed
	}
	fd := f.fd
	f.fd = -1
	return unix.Close(fd)
}

// file makes an *os.File of it, which is closed instead.
func (f *regular) file(name string) (*os.File, error) {
	if err := unix.SetNonblock(f.fd, false); err != nil { // or the runtime would try to poll it
		f.Close()
		return nil, err
	}
	file := newFile(f.fd, name)
	f.fd = -1
	return file, nil
}
