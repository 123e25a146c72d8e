package integration

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Clients of the page that request and never read take no file descriptors from FTP.
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
	for i := range 50 {
		c.Want(257, fmt.Sprintf("MKD /locks/before%d", i))
		d := s.session("other")
		d.Want(257, fmt.Sprintf("MKD /locks/after%d", i))
		d.stores(fmt.Sprintf("/f%d", i), "12345")
	}
	s.stop()
}
