package driver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dataPort is what PASV, EPSV, PORT or EPRT prepared for the next transfer.
type dataPort interface {
	// open waits for the client's connection, or makes it, in no more than that time.
	open(within time.Duration) (*dataConn, error)
	// close stops that, and may come from any goroutine. What was opened lives on.
	close()
}

// activePort connects to the client.
type activePort struct {
	context context.Context
	cancel  context.CancelFunc
	from    netip.Addr // what the client knows the server by
	to      netip.AddrPort
}

func (s *Server) activePort(from netip.Addr, to netip.AddrPort) *activePort {
	ctx, cancel := context.WithCancel(s.context)
	return &activePort{ctx, cancel, from, to}
}

func (p *activePort) close() { p.cancel() }

func (p *activePort) open(within time.Duration) (*dataConn, error) {
	dialer := net.Dialer{Timeout: within, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.from, 0))}
	c, err := dialer.DialContext(p.context, "tcp", p.to.String())
	if err != nil {
		return nil, err
	}
	return &dataConn{local: c.LocalAddr(), remote: c.RemoteAddr(), fd: -1, polled: c.(*net.TCPConn)}, nil
}

// passivePort is a port on which a client is to connect. Like a dataConn it is not polled before it has to be.
type passivePort struct {
	number uint16
	client netip.Addr // who may connect
	server *Server

	mu     sync.Mutex
	fd     int      // -1: closed, or file has it
	file   *os.File // once the client had to be waited for
	closed bool
}

// backlog is how many strangers may come before the client without keeping it out: they are sent away when the transfer begins. The
// system has a limit of its own, usually this one.
const backlog = 4096

// passivePort listens on the address that the client's control connection came to.
func (s *Server) passivePort(local, client netip.Addr) (*passivePort, error) {
	var err error
	for range attempts {
		number, others := s.portToTry()
		var p *passivePort
		if p, err = s.listen(netip.AddrPortFrom(local, number), client); err == nil {
			return p, nil
		}
		if !others || !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, err
}

func (s *Server) listen(on netip.AddrPort, client netip.Addr) (*passivePort, error) {
	family, at, err := socketAddress(on)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	p := &passivePort{number: on.Port(), client: client, server: s, fd: fd}
	if err := p.bind(at); err != nil {
		unix.Close(fd)
		return nil, err
	}
	s.listening.Add(1)
	return p, nil
}

func (p *passivePort) bind(at syscall.Sockaddr) error {
	if p.number != 0 { // a port of the range may have been used a moment ago
		if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if err := syscall.Bind(p.fd, at); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := syscall.Listen(p.fd, backlog); err != nil {
		return os.NewSyscallError("listen", err)
	}
	if p.number != 0 {
		return nil
	}
	bound, err := syscall.Getsockname(p.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	p.number = fromSocket(bound).Port()
	return nil
}

// socketAddress is one for package syscall: x/sys/unix asks each socket for its protocol, too, before it returns an address.
func socketAddress(a netip.AddrPort) (family int, at syscall.Sockaddr, err error) {
	ip := a.Addr()
	if ip.Is4() {
		return unix.AF_INET, &syscall.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}, nil
	}
	at6 := &syscall.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16()}
	if ip.Zone() != "" {
		link, err := net.InterfaceByName(ip.Zone())
		if err != nil {
			return 0, nil, err
		}
		at6.ZoneId = uint32(link.Index)
	}
	return unix.AF_INET6, at6, nil
}

// fromSocket leaves out the zone.
func fromSocket(at syscall.Sockaddr) netip.AddrPort {
	switch at := at.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr).Unmap(), uint16(at.Port))
	}
	return netip.AddrPort{}
}

// open implements dataPort. Connections from other addresses are closed, and the transfer is none the worse for them.
func (p *passivePort) open(within time.Duration) (*dataConn, error) {
	c, err := p.openNow()
	if c != nil || err != nil {
		return c, err
	}
	file, err := p.polled()
	if err == nil {
		err = file.SetReadDeadline(time.Now().Add(within))
	}
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	if err := raw.Read(func(fd uintptr) bool {
		c, failed = p.accept(int(fd))
		return c != nil || failed != nil
	}); err != nil {
		return nil, err
	}
	return c, failed
}

// openNow returns neither a connection nor an error if the client has not come yet.
func (p *passivePort) openNow() (*dataConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, net.ErrClosed
	case p.file != nil:
		return nil, nil
	}
	return p.accept(p.fd)
}

func (p *passivePort) polled() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	if p.file == nil {
		p.file, p.fd = os.NewFile(uintptr(p.fd), "passive port"), -1
	}
	return p.file, nil
}

// accept takes the client's connection, if it has come.
func (p *passivePort) accept(fd int) (*dataConn, error) {
	for {
		accepted, from, err := syscall.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
		case unix.EAGAIN:
			return nil, nil
		case unix.EINTR, unix.ECONNABORTED:
			continue
		default:
			return nil, os.NewSyscallError("accept", err)
		}
		remote := fromSocket(from)
		if remote.Addr() != p.client {
			unix.Close(accepted)
			continue
		}
		return &dataConn{
			local: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.Addr{}, p.number)), remote: net.TCPAddrFromAddrPort(remote), fd: accepted,
		}, nil
	}
}

// close implements dataPort.
func (p *passivePort) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.server.listening.Add(-1)
	if p.file != nil {
		p.file.Close() // there is nothing to be done about what it says
		return
	}
	unix.Close(p.fd)
}

// prepare keeps a port for the next transfer, instead of one that no transfer has used.
func (s *session) prepare(p dataPort) {
	s.mu.Lock()
	old, over := s.data, s.over
	s.data = p
	if over { // nobody else closes it any more
		s.data = nil
	}
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	if over {
		p.close()
	}
}

// unprepare forgets a port that no transfer has used.
func (s *session) unprepare() {
	s.mu.Lock()
	old := s.data
	s.data = nil
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
}
