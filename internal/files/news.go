package files

import (
	"encoding/binary"
	"errors"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// news is what the system tells (inotify) of names that came, went or were moved in directories, and of mounts in this namespace.
// It is told by the time that the change is done, whoever makes it, so quiet is an answer about all that has happened. It is not
// told what another machine does to a network file system: see newsworthy. The methods need a mutex of the caller's.
type news struct {
	epoll  int // ready as soon as there is something to read
	notify int
	lost   bool // something was told that cannot be read
	mounts int  // each change is told to one who asks: so it is no os.File, about which Go's scheduler would ask
	buffer []byte
}

// newsMask is what a directory is watched for.
const newsMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR

// gossip is one notice about a watched directory.
type gossip struct {
	watch int
	deep  bool // a directory in it was made, moved or removed
}

// newsworthy reports whether the system tells of every change in the file system that an open directory is in.
func newsworthy(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.BTRFS_SUPER_MAGIC:
		return true
	}
	return false
}

func openNews() (_ *news, err error) {
	n := &news{epoll: -1, notify: -1, mounts: -1, buffer: make([]byte, 16<<10)}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.mounts, err = unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if n.notify, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC); err != nil {
		return nil, err
	}
	if n.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	// A change of the mounts is an exceptional condition of that file, see proc_pid_mounts(5).
	err = unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, n.mounts, &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: int32(n.mounts)})
	if err == nil {
		err = unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, n.notify, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(n.notify)})
	}
	return n, err
}

func (n *news) close() {
	for _, fd := range []int{n.mounts, n.notify, n.epoll} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// watch has the system tell of an open directory. One that is watched already keeps its number.
func (n *news) watch(fd int) (int, error) {
	return unix.InotifyAddWatch(n.notify, "/proc/self/fd/"+strconv.Itoa(fd), newsMask)
}

func (n *news) unwatch(watch int) { _, _ = unix.InotifyRmWatch(n.notify, uint32(watch)) } // it may have ended by itself

// quiet reports whether there is nothing to be read. It never blocks, and is asked for each lock: so Go's scheduler is not told.
func (n *news) quiet() bool {
	var events [2]unix.EpollEvent
	count, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(n.epoll), uintptr(unsafe.Pointer(&events)), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		n.lost = true
		return false
	}
	for _, e := range events[:count] {
		n.lost = n.lost || int(e.Fd) == n.mounts
	}
	return count == 0
}

// read takes in all there is. lost says that it may be anything.
func (n *news) read(each func(gossip)) (lost bool) {
	lost, n.lost = n.lost, false
	for {
		got, err := unix.Read(n.notify, n.buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || got <= 0 {
			return lost || !errors.Is(err, unix.EAGAIN)
		}
		for rest := n.buffer[:got]; len(rest) >= unix.SizeofInotifyEvent; {
			mask := binary.NativeEndian.Uint32(rest[4:])
			length := binary.NativeEndian.Uint32(rest[12:])
			lost = lost || mask&unix.IN_Q_OVERFLOW != 0
			each(gossip{
				watch: int(int32(binary.NativeEndian.Uint32(rest))),
				deep:  mask&unix.IN_ISDIR != 0,
			})
			rest = rest[unix.SizeofInotifyEvent+length:]
		}
	}
}
