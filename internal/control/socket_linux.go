package control

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tune sets the options of a control connection's socket. It ignores failures: the server works without each option.
func tune(t *net.TCPConn, userTimeout time.Duration) {
	keepAlive(t, userTimeout)
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

// hungUp reports whether a FIN or RST has arrived, perhaps after unread data, or the socket is closed.
func (w *wire) hungUp() bool {
	if w.raw == nil {
		return false
	}
	hungUp := true // if the socket is closed
	_ = w.raw.Control(func(fd uintptr) { hungUp = isReady(fd, unix.POLLRDHUP) })
	return hungUp
}

// isReady reports whether one of the events of poll(2) has happened, or an error. It does not wait.
func isReady(fd uintptr, events int16) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(fds[:], 0); err != unix.EINTR {
			return fds[0].Revents != 0 // POLLERR and POLLHUP are always reported
		}
	}
}

// bytesArrived returns how many bytes have arrived, read or not (TCP_INFO). A FIN counts as one.
func (w *wire) bytesArrived() (n uint64) {
	if info := tcpInfo(w.raw); info != nil {
		n = info.Bytes_received
	}
	return n
}

// BytesMoved returns how many bytes have arrived on a data connection, plus those that the client has acknowledged.
func BytesMoved(conn net.Conn) (n uint64, ok bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, _ := socket.SyscallConn() // nil after an error
	info := tcpInfo(raw)
	if info == nil {
		return 0, false
	}
	return info.Bytes_received + info.Bytes_acked, true
}

// tcpInfo returns TCP_INFO, or nil if the kernel has none, such as for a closed socket.
func tcpInfo(raw syscall.RawConn) (info *unix.TCPInfo) {
	if raw != nil {
		_ = raw.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				info = got
			}
		})
	}
	return info
}

// peer returns the state of the client's TCP. A reset does not change the counters.
func (w *wire) peer() (p peer) {
	if w.raw == nil {
		return p
	}
	_ = w.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		unacked, oerr := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		unread, ierr := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		if errors.Join(err, oerr, ierr) != nil {
			return
		}
		p = peer{
			unacked:  uint64(unacked),
			unsent:   uint64(info.Notsent_bytes),
			finished: info.Bytes_received > w.bytesRead.Load()+uint64(unread), // a FIN counts as one byte
			broken:   info.State == unix.BPF_TCP_CLOSE,
		}
	})
	return p
}

// dismissNext closes a connection that waits to be accepted, and returns its address. It does not wait for one.
func dismissNext(l *net.TCPListener) (from netip.Addr, ok bool) {
	raw, err := l.SyscallConn()
	if err != nil {
		return from, false
	}
	_ = raw.Control(func(fd uintptr) { // the socket does not block
		if !isReady(fd, unix.POLLIN) { // an accept4 for nothing costs ten times as much
			return
		}
		next, address, err := unix.Accept4(int(fd), unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		_ = unix.Close(next)
		switch a := address.(type) {
		case *unix.SockaddrInet4:
			from = netip.AddrFrom4(a.Addr)
		case *unix.SockaddrInet6:
			from = netip.AddrFrom16(a.Addr).Unmap()
		}
		ok = true
	})
	return from, ok
}

// drain discards input that has arrived, 64 KiB at most. It does not wait for more.
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
