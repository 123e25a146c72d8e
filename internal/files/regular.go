package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// openReadable opens what a clean name leads to for reading, if it is a regular file or a directory. The caller holds t.life.
//
// O_NONBLOCK means nothing to those two, and keeps the opening of a pipe from waiting for a writer.
func (t *Tree) openReadable(name string) (fd int, i *info, err error) {
	_, base := split(name)
	if base == "." {
		base = "/"
	}
	fd, err = t.open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err == unix.ENXIO { // a socket, or a device without a driver
		return -1, nil, ErrNotRegular
	}
	if err != nil {
		return -1, nil, err
	}
	i, err = t.sys.fstat(fd, base)
	if err == nil && !i.IsDir() && !i.isRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, i, nil
}

// openRegular is openReadable for a regular file alone, of which it returns the size, too.
func (t *Tree) openRegular(name string) (*os.File, int64, error) {
	fd, i, err := t.openReadable(name)
	if err != nil {
		return nil, 0, err
	}
	if i.IsDir() {
		unix.Close(fd)
		return nil, 0, unix.EISDIR
	}
	f, err := newFile(fd, name)
	return f, i.Size(), err
}

// newFile makes an *os.File of an open regular file, and closes it after an error. The errors of the *os.File show the FTP path.
func newFile(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, false); err != nil { // or the runtime would try to poll it
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
