package control

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tune sets what a control connection wants of its socket. Failures are ignored: each
// option is an improvement, none a condition.
func tune(t *net.TCPConn, userTimeout time.Duration) {
	_ = t.SetNoDelay(true)
	if userTimeout > 0 {
		_ = t.SetKeepAliveConfig(keepAlive(userTimeout))
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// Urgent data out of line would swallow its last byte, the LF of "ABOR".
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
		if userTimeout > 0 {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
		}
	})
}

// pollHangUp reports whether the socket was hung up on, whatever is still unread.
func pollHangUp(fd uintptr, what hang) bool {
	const reset = unix.POLLERR | unix.POLLHUP
	seen := pollFor(fd, unix.POLLRDHUP)
	if what == hangReset {
		return seen&reset != 0
	}
	return seen&(reset|unix.POLLRDHUP) != 0
}

func pollFor(fd uintptr, events int16) (seen int16) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(fds, 0); err != unix.EINTR {
			return fds[0].Revents
		}
	}
}

// outQueue returns how many bytes the other side has not acknowledged.
func outQueue(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// bytesReceived returns how many bytes the other side has sent that arrived.
func bytesReceived(fd uintptr) (n uint64, ok bool) {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, false
	}
	return info.Bytes_received, true
}

// drain throws away what has arrived, without waiting for more, 64 KiB at most.
func drain(raw syscall.RawConn) {
	var scratch [4096]byte
	_ = raw.Control(func(fd uintptr) { // not raw.Read, which would wait for a Read under way
		for range 16 {
			if n, err := syscall.Read(int(fd), scratch[:]); n <= 0 || err != nil {
				break
			}
		}
	})
}
