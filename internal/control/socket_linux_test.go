package control_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/internal/control"
)

// shownListener shows the sockets that it hands out.
type shownListener struct {
	net.Listener
	shown chan *net.TCPConn
}

func (l shownListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err == nil {
		l.shown <- nc.(*net.TCPConn)
	}
	return nc, err
}

func TestSocketOptions(t *testing.T) {
	s := newServer(t)
	s.taps = nil
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	shown := make(chan *net.TCPConn, 1)
	s.run(control.Options{UserTimeout: 20 * time.Second}, shownListener{l, shown}, nil)
	s.dial()
	raw, err := (<-shown).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	want := map[[2]int]int{
		{syscall.SOL_SOCKET, syscall.SO_OOBINLINE}:   1,
		{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}:   1,
		{syscall.IPPROTO_TCP, syscall.TCP_NODELAY}:   1,
		{syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}: 20000,
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE}:  5,
	}
	_ = raw.Control(func(fd uintptr) {
		for option, value := range want {
			if got, err := syscall.GetsockoptInt(int(fd), option[0], option[1]); err != nil || got != value {
				t.Errorf("option %v is %d, %v; want %d", option, got, err, value)
			}
		}
	})
}
