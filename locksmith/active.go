package locksmith

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// In active mode the server makes the data connections. The library has no active mode: what it asks for with EPSV is asked of
// the server as PORT or EPRT, and where it wants to connect to the server the connection is one to be accepted.

// listen opens a port for the next data connection and tells the server of it. It returns what the library is told instead of the
// server's reply to EPSV.
func (s *session) listen() string {
	port, err := s.openPort()
	if err != nil {
		return "425 " + plain(err)
	}
	return fmt.Sprintf("229 (|||%d|)", port)
}

// openPort opens one on the address of the control connection. PORT is what every server knows; IPv6 has EPRT (RFC 2428).
func (s *session) openPort() (int, error) {
	local, ok := s.link.LocalAddr().(*net.TCPAddr)
	if _, too := s.link.RemoteAddr().(*net.TCPAddr); !ok || !too {
		return 0, errors.New("active mode needs TCP")
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: local.IP, Zone: local.Zone})
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	command := fmt.Sprintf("EPRT |2|%s|%d|", local.IP, port)
	if v4 := local.IP.To4(); v4 != nil {
		command = fmt.Sprintf("PORT %s,%d,%d", strings.ReplaceAll(v4.String(), ".", ","), port>>8, port&0xff)
	}
	if err := s.must(context.Background(), command); err != nil {
		_ = l.Close()
		return 0, err
	}
	_ = l.SetDeadline(time.Now().Add(s.Timeout))
	s.listener = l
	return port, nil
}
