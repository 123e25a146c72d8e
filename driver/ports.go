package driver

import (
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ftplockd/ftplockd/control"
)

// livePorts hands out the passive ports of the settings of the moment, in turn, so that a port
// just used is used again as late as can be. It is for many sessions at once.
type livePorts struct {
	settings *atomic.Pointer[Settings]
	next     *atomic.Uint32
}

// attempts is how many ports are tried for one PASV. ftpserverlib v0.32.3 draws all of them
// beforehand (transfer_pasv.go, getPassivePortCandidates), so a thousand would cost a thousand each time. A prime, or
// the first ports drawn would be the same few of a range of a thousand again and again.
const attempts = 61

// FetchNext implements ftpserver.PasvPortGetter. Port 0 is the kernel's choice.
func (p livePorts) FetchNext() (exposed, listened int, ok bool) {
	s := p.settings.Load()
	if s.FirstPort == 0 {
		return 0, 0, true
	}
	count := uint32(s.LastPort-s.FirstPort) + 1
	port := int(uint32(s.FirstPort) + p.next.Add(1)%count)
	return port, port, true
}

// NumberAttempts implements ftpserver.PasvPortGetter.
func (p livePorts) NumberAttempts() int { return attempts }

func (s *session) pasv(control.Command) control.Decision {
	local, err := netip.ParseAddr(address(s.conn.LocalAddr()))
	switch {
	case s.epsvAll:
		return reply(501, "after EPSV ALL there is EPSV only")
	case err != nil || !local.Unmap().Is4():
		// ftpserverlib v0.32.3 answers 421 and leaks a listener.
		return reply(425, "PASV knows IPv4 only: use EPSV")
	}
	return control.Pass("PASV")
}

// epsv is EPSV (RFC 2428 section 3).
func (s *session) epsv(cmd control.Command) control.Decision {
	family := "1"
	if local, err := netip.ParseAddr(address(s.conn.LocalAddr())); err == nil && !local.Unmap().Is4() {
		family = "2"
	}
	switch what := strings.ToUpper(strings.TrimSpace(cmd.Param)); what {
	case "ALL":
		s.epsvAll = true
		return reply(200, "EPSV only, from now on")
	case "", family:
		return control.Pass("EPSV")
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

// activeTo prepares an active data connection, to the client's own machine only. ftpserverlib v0.32.3 lets nobody near those
// that it makes (transfer_active.go): it is asked for a passive port, and what it accepts there is ours, see claimActive. So
// deadlines, cuts and the end of TLS are the same for both.
func (s *session) activeTo(to netip.AddrPort) control.Decision {
	remote, err := netip.ParseAddr(address(s.conn.RemoteAddr()))
	switch {
	case s.epsvAll:
		return reply(501, "after EPSV ALL there is EPSV only")
	case !s.server.settings.Load().Active:
		return reply(502, "active data connections are off: use PASV or EPSV")
	case err != nil || remote.Unmap() != to.Addr().Unmap():
		return reply(501, "data connections go to the address that the control connection comes from")
	case to.Port() < lowestPort:
		return reply(501, "ports below 1024 are not for data connections")
	}
	s.unprepare()
	s.target = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	return control.Pass("EPSV")
}
