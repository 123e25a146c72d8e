package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync makes the file's content and length survive a loss of power, but not its times.
func datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
