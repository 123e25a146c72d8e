package integration

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestPageLeavesFileDescriptorsToFTP opens connections to the page that send requests and read no answer.
func TestPageLeavesFileDescriptorsToFTP(t *testing.T) {
	t.Parallel()
	s := newServer(t, withPage)
	s.through = []string{"sh", "-c", `ulimit -n 256 && exec "$0" "$@"`}
	s.start()
	c := s.session(account)
	page := strings.TrimSuffix(strings.TrimPrefix(s.page, "http://"), "/")
	requests := strings.Repeat("GET /assets/uPlot.iife.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n", 200)
	var last net.Conn
	for i := range 300 {
		from := netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i%10)})
		dialer := net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		conn, err := dialer.Dial("tcp4", page)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		if last = conn; i < 299 {
			_, _ = io.WriteString(conn, requests) // it may be closed
		}
	}
	_ = last.SetReadDeadline(time.Now().Add(patience)) // connections are accepted in order
	if n, err := last.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the last of 300 connections: %d bytes, %v; it should be closed", n, err)
	}
	for i := range 20 {
		c.Want(257, fmt.Sprintf("MKD /locks/before%d", i))
		d := s.session("other")
		d.Want(257, fmt.Sprintf("MKD /locks/after%d", i))
		d.stores(fmt.Sprintf("/f%d", i), "12345")
	}
	s.stop()
}

// TestAttackSessionsUseUpFileDescriptors opens sessions until the server refuses one. Each of them opens a passive port. The server must
// still acquire, release and end locks.
func TestAttackSessionsUseUpFileDescriptors(t *testing.T) {
	t.Parallel()
	s := newServer(t, "[[lock]]\nmatch = '/short/*'\nmax_age = '1s'\n[[lock]]\nmatch = '/locks/*'\nmax_age = '1m'\n")
	s.through = []string{"sh", "-c", `ulimit -n 128 && exec "$0" "$@"`}
	s.start()
	c := s.session(account)
	c.Want(257, "MKD /short/a")
	c.Want(257, "MKD /locks/a")
	sessions := 0
	for ; sessions < 128; sessions++ {
		other, err := login(s.v4, account)
		if err != nil {
			break
		}
		defer other.Conn.Close()
		if _, err := other.EPSV(); err != nil {
			t.Errorf("session %d: %v", sessions, err)
		}
	}
	if sessions < 5 || sessions > 20 {
		t.Errorf("%d sessions had 128 descriptors", sessions)
	}
	c.Want(250, "RMD /locks/a")
	c.Want(257, "MKD /locks/b")
	c.stores("/f", "12345")
	harness.Await(t, "the lock ends at its age", func() bool {
		return strings.Contains(c.wantEither("SITE LOCK INFO /short/a").Text, "type=free;")
	})
	s.stop()
}
