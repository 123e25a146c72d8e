package control

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSocketOptions(t *testing.T) {
	s := serve(t)
	s.SetLimits(Limits{UserTimeout: 20 * time.Second})
	c := s.dial()
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

// Unread input of the client does not reset the connection, so the last reply arrives.
func TestTheLastReplyIsNotLostInAReset(t *testing.T) {
	s := serve(t)
	for range 20 {
		c := s.login()
		c.lib.mkd = func(cmd *Command) { cmd.Reply(Reply{Code: 421, Text: "as you wish"}) }
		c.play(">> MKD a\r\n" + strings.Repeat("NOOP\r\n", 800) + "; < 421 as you wish")
		c.expectEOF()
		c.h.endedWith(t, ReasonClosed)
		c.until("the connection is closed", func() bool { return s.connected() == 0 })
		raw, err := c.TCP.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			if errno, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR); errno != 0 || err != nil {
				t.Errorf("the client's socket got %v, %v", syscall.Errno(errno), err)
			}
		})
		if got := c.h.executed(); strings.Contains(got, "NOOP") {
			t.Errorf("executed: %s", got)
		}
	}
}
