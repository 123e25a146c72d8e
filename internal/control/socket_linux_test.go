package control

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSocketOptions(t *testing.T) {
	c := serve(t, func(o *setup) { o.UserTimeout = 20 * time.Second }).dial()
	want := map[[2]int]int{
		{syscall.SOL_SOCKET, syscall.SO_OOBINLINE}:   1,
		{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}:   1,
		{syscall.IPPROTO_TCP, syscall.TCP_NODELAY}:   1,
		{syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}: 20000,
		{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE}:  5,
	}
	_ = c.lib.conn.raw.Control(func(fd uintptr) {
		for option, value := range want {
			if got, err := syscall.GetsockoptInt(int(fd), option[0], option[1]); err != nil || got != value {
				t.Errorf("option %v is %d, %v; want %d", option, got, err, value)
			}
		}
	})
}
