package driver

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// bytesMoved returns how many bytes the kernel has received on a connection and the other side has acknowledged.
func bytesMoved(conn net.Conn) (n uint64, ok bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, false
	}
	ok = false
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n, ok = info.Bytes_received+info.Bytes_acked, true
		}
	})
	return n, ok
}
