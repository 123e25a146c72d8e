package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync makes the file's content last, without its times.
func datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// allocate gives a file space, which reads as zeros, from one offset to another, and that length.
func allocate(f *os.File, from, to int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, from, to-from)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// share maps a file from one offset, a multiple of the page size, to another.
func share(f *os.File, from, to int64) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), from, int(to-from), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unshare(window []byte) { _ = unix.Munmap(window) } // it can only fail for what is no map
