package locksmith

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// active has the server make the data connections (PORT, EPRT). The library has no active mode: what it asks for with EPSV is asked of
// the server as EPRT, and where it wants to connect to the server the connection is one to be accepted.
type active struct {
	s        *session
	listener *net.TCPListener // of the next data connection
	from     net.IP           // the server
}

// port is what the library is told instead of the server's reply to EPSV.
func (a *active) port() string {
	port, err := a.listen()
	if err != nil {
		return "425 " + plain(err)
	}
	return fmt.Sprintf("229 (|||%d|)", port)
}

// listen opens a port on the address of the control connection and tells the server of it.
func (a *active) listen() (int, error) {
	local, ok := a.s.link.LocalAddr().(*net.TCPAddr)
	remote, ok2 := a.s.link.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return 0, errors.New("active mode needs TCP")
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: local.IP, Zone: local.Zone})
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := a.announce(local.IP, port); err != nil {
		_ = l.Close()
		return 0, err
	}
	_ = l.SetDeadline(time.Now().Add(a.s.Timeout))
	a.listener, a.from = l, remote.IP
	return port, nil
}

// announce says PORT, which every server knows, or EPRT (RFC 2428) for IPv6.
func (a *active) announce(ip net.IP, port int) error {
	command := fmt.Sprintf("EPRT |2|%s|%d|", ip, port)
	if v4 := ip.To4(); v4 != nil {
		command = fmt.Sprintf("PORT %s,%d,%d", strings.ReplaceAll(v4.String(), ".", ","), port>>8, port&0xff)
	}
	return a.s.must(context.Background(), command)
}
