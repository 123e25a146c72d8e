package driver

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ftplockd/ftplockd/control"
)

// attempts is how many ports are tried for one PASV: of a large range that is in use nearly all, a client need not be told which
// one is free. A prime, or the first ports tried would be the same few of a range of a thousand again and again.
const attempts = 61

// portToTry returns a passive port of the settings of the moment, each in turn, so that one just used is used again as late as can
// be, and whether there are others to try; port 0 is the kernel's choice. It is for many sessions at once.
func (s *Server) portToTry() (port uint16, others bool) {
	settings := s.settings.Load()
	if settings.FirstPort == 0 {
		return 0, false
	}
	count := uint32(settings.LastPort-settings.FirstPort) + 1
	return uint16(uint32(settings.FirstPort) + s.nextPort.Add(1)%count), true
}

func (s *session) pasv(control.Command) control.Decision {
	local, err := hostOf(s.conn.LocalAddr())
	switch {
	case s.epsvAll:
		return reply(501, "after EPSV ALL there is EPSV only")
	case err != nil || !local.Is4():
		return reply(425, "PASV knows IPv4 only: use EPSV")
	}
	return s.passive(func(port uint16) control.Decision {
		ip := s.server.publicAddress(local).As4()
		return reply(227, fmt.Sprintf("Entering Passive Mode (%d,%d,%d,%d,%d,%d)", ip[0], ip[1], ip[2], ip[3], port>>8, port&0xff))
	})
}

// passive opens a port and has the client told of it.
func (s *session) passive(tell func(port uint16) control.Decision) control.Decision {
	s.unprepare() // first: it may have the only port
	local, lerr := hostOf(s.conn.LocalAddr())
	client, cerr := hostOf(s.conn.RemoteAddr())
	err := errors.Join(lerr, cerr)
	var p *passivePort
	if err == nil {
		p, err = s.server.passivePort(local, client.WithZone(""))
	}
	if err != nil {
		s.log.Error("no port for a data connection", "err", err)
		return reply(425, "no port is free for a data connection")
	}
	s.prepare(p)
	return tell(p.number)
}

// hostOf is an address without its port, in the family that it is of.
func hostOf(a net.Addr) (netip.Addr, error) {
	ap, ok := addrPort(a)
	var err error
	if !ok { // it is of no socket of ours
		ap, err = netip.ParseAddrPort(a.String())
	}
	return ap.Addr().Unmap(), err
}

// epsv is EPSV (RFC 2428 section 3).
func (s *session) epsv(cmd control.Command) control.Decision {
	family := "1"
	if local, err := hostOf(s.conn.LocalAddr()); err == nil && !local.Is4() {
		family = "2"
	}
	switch what := strings.ToUpper(strings.TrimSpace(cmd.Param)); what {
	case "ALL":
		s.epsvAll = true
		return reply(200, "EPSV only, from now on")
	case "", family:
		return s.passive(func(port uint16) control.Decision {
			return reply(229, fmt.Sprintf("Entering Extended Passive Mode (|||%d|)", port))
		})
	case "1", "2":
		return reply(522, "use the family of the control connection ("+family+")")
	}
	return reply(501, "EPSV, EPSV "+family+" or EPSV ALL")
}

// lowestPort keeps clients from having the server connect to services of theirs.
const lowestPort = 1024

func (s *session) portCommand(cmd control.Command) control.Decision {
	parts := strings.Split(strings.TrimSpace(cmd.Param), ",")
	var n [6]byte
	if len(parts) != len(n) {
		return reply(501, "PORT wants h1,h2,h3,h4,p1,p2")
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 8)
		if err != nil {
			return reply(501, "PORT wants h1,h2,h3,h4,p1,p2")
		}
		n[i] = byte(v)
	}
	ap := netip.AddrPortFrom(netip.AddrFrom4([4]byte(n[:4])), uint16(n[4])<<8|uint16(n[5]))
	return s.activeTo(ap)
}

// eprt is EPRT (RFC 2428 section 2).
func (s *session) eprt(cmd control.Command) control.Decision {
	param := strings.TrimSpace(cmd.Param)
	if param == "" {
		return reply(501, "EPRT wants |family|address|port|")
	}
	parts := strings.Split(param, param[:1])
	if len(parts) != 5 {
		return reply(501, "EPRT wants |family|address|port|")
	}
	if parts[1] != "1" && parts[1] != "2" {
		return reply(522, "use (1,2)")
	}
	addr, err := netip.ParseAddr(parts[2])
	port, perr := strconv.ParseUint(parts[3], 10, 16)
	if err != nil || perr != nil || addr.Is4() != (parts[1] == "1") {
		return reply(501, "EPRT wants |family|address|port|")
	}
	return s.activeTo(netip.AddrPortFrom(addr, uint16(port)))
}

// activeTo prepares an active data connection, to the client's own machine only. lftp says :: over IPv6, and means its own.
func (s *session) activeTo(to netip.AddrPort) control.Decision {
	remote, err := hostOf(s.conn.RemoteAddr())
	local, lerr := hostOf(s.conn.LocalAddr())
	switch {
	case s.epsvAll:
		return reply(501, "after EPSV ALL there is EPSV only")
	case !s.server.settings.Load().Active:
		return reply(502, "active data connections are off: use PASV or EPSV")
	case err != nil || lerr != nil || !to.Addr().IsUnspecified() && remote.WithZone("") != to.Addr().Unmap():
		return reply(501, "data connections go to the address that the control connection comes from")
	case to.Port() < lowestPort:
		return reply(501, "ports below 1024 are not for data connections")
	}
	s.prepare(s.server.activePort(local, netip.AddrPortFrom(remote, to.Port())))
	return reply(200, "the data connection will go to port "+strconv.Itoa(int(to.Port())))
}
