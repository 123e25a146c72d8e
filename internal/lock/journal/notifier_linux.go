package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watchMask is narrow, so that writing files in the same directory costs nothing. See inotify(7).
const watchMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK | unix.IN_DONT_FOLLOW

// notifier is an inotify instance.
type notifier struct {
	fd     int
	file   *os.File // the same descriptor, for waiting
	buffer []byte   // used by the one reader
}

func newNotifier() (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &notifier{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), buffer: make([]byte, 64<<10)}, nil
}

func (n *notifier) watch(path string) (int32, error) {
	watch, err := unix.InotifyAddWatch(n.fd, path, watchMask)
	return int32(watch), err
}

// unwatch may fail only if the directory is gone, and the watch with it.
func (n *notifier) unwatch(watch int32) { unix.InotifyRmWatch(n.fd, uint32(watch)) }

func (n *notifier) deadline(t time.Time) { n.file.SetReadDeadline(t) }

func (n *notifier) close() error { return n.file.Close() }

// exhausted reports whether the error is the system's limit of watches.
func exhausted(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM) }

// read waits for notices.
func (n *notifier) read() ([]rawNotice, error) {
	size, err := n.file.Read(n.buffer)
	if err != nil {
		return nil, err
	}
	var notices []rawNotice
	for b := n.buffer[:size]; len(b) >= unix.SizeofInotifyEvent; {
		length := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		notices = append(notices, decode(b[:length]))
		b = b[length:]
	}
	return notices, nil
}

// decode reads one struct inotify_event: watch, mask, cookie, length, and the name, filled up with zeros.
func decode(b []byte) rawNotice {
	mask := binary.NativeEndian.Uint32(b[4:])
	return rawNotice{
		watch:     int32(binary.NativeEndian.Uint32(b)),
		base:      string(bytes.TrimRight(b[unix.SizeofInotifyEvent:], "\x00")),
		directory: mask&unix.IN_ISDIR != 0,
		made:      mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0,
		gone:      mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0,
		moved:     mask&unix.IN_MOVE_SELF != 0,
		ended:     mask&(unix.IN_DELETE_SELF|unix.IN_IGNORED) != 0,
		overflow:  mask&unix.IN_Q_OVERFLOW != 0,
	}
}
