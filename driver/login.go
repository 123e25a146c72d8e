package driver

import (
	"net/netip"
	"path"
	"strings"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/lock"
)

// maxFailures is how many wrong passwords one connection may send.
const maxFailures = 5

// userCommand is USER. After login the name cannot be changed without REIN: ftpserverlib
// v0.32.3 would take another name without a password.
func (s *session) userCommand(cmd control.Command) control.Decision {
	switch {
	case s.client != nil && cmd.Param == s.client.account.Name:
		return reply(331, "any password will do: you are logged in")
	case s.client != nil:
		return reply(530, "you are logged in as "+s.client.account.Name+": say REIN first")
	case s.server.settings.Load().TLSRequired && s.conn.TLS() == nil:
		return reply(530, "this server wants TLS: say AUTH TLS first")
	}
	s.user = cmd.Param
	return reply(331, "now the password")
}

// passCommand is PASS. The library hears of it only when the password was right: it hangs up on a wrong one.
func (s *session) passCommand(cmd control.Command) control.Decision {
	switch {
	case s.client != nil:
		return reply(230, "you are logged in already")
	case s.user == "":
		return reply(503, "say USER first")
	}
	account, ok := s.server.settings.Load().Accounts.Authenticate(s.context(), s.user, cmd.Param)
	remote, err := netip.ParseAddr(address(s.conn.RemoteAddr()))
	if !ok || err != nil || !account.from(remote) {
		return s.rejected()
	}
	s.log.Debug("logged in", "account", account.Name)
	account.Home = s.server.resolvedHome(account.Home)
	c := &client{
		server:  s.server,
		session: s,
		account: account,
		locks:   s.server.table.Open(lock.Owner{Account: account.Name, Address: remote.Unmap().String()}),
	}
	c.locks.SetReader(account.Read && !account.Write)
	s.mu.Lock()
	s.client = c
	s.mu.Unlock()
	s.cwd = s.startDirectory(c)
	return control.Pass("PASS")
}

// resolvedHome is a home with its links resolved, so that names of locks can be compared with it. A
// home that leads out of the tree stays as it is, and each use of it says so.
func (s *Server) resolvedHome(home string) string {
	inside, err := s.tree.Resolve(path.Join("/", home, "x"))
	if err != nil {
		return path.Join("/", home)
	}
	return path.Dir(inside)
}

// startDirectory is where the account begins; the root if that is no directory.
func (s *session) startDirectory(c *client) string {
	start, err := s.abs(c.account.Start)
	if err != nil || c.enter(start) != nil {
		return "/"
	}
	return start
}

func (s *session) rejected() control.Decision {
	s.failures++
	s.log.Warn("login refused", "user", s.user)
	s.user = ""
	select {
	case <-time.After(s.server.delays.wrongPassword * time.Duration(s.failures)):
	case <-s.context().Done():
	}
	if s.failures >= maxFailures {
		return control.Close(control.Reply{Code: 421, Text: "too many wrong passwords"})
	}
	return reply(530, "login incorrect")
}

// reinCommand is REIN (RFC 959 section 4.1.1): back to where USER was not said. The locks of the session that
// it ends are treated as at a disconnect.
func (s *session) reinCommand(control.Command) control.Decision {
	if s.conn.TLS() != nil {
		return reply(502, "not under TLS: hang up instead") // RFC 4217 section 11
	}
	s.mu.Lock()
	c := s.client
	s.client = nil
	s.mu.Unlock()
	s.closeLocks(c)
	s.reset()
	return reply(220, "ready for a new user")
}

// reset puts what a session has said back to how it begins.
func (s *session) reset() {
	s.user, s.cwd, s.ascii, s.facts, s.digest = "", "/", true, allFacts, digestSHA256
	s.rest, s.restSet, s.allocated, s.renameFrom, s.epsvAll = 0, false, 0, "", false
}

// welcome is the text of the 230.
func (s *session) welcome() string {
	return "logged in as " + s.client.account.Name + "; MKD takes a lock, RMD gives it back"
}

// AuthUser implements ftpserver.MainDriver. The session has checked the password already.
func (s *Server) AuthUser(cc ftpserver.ClientContext, _, _ string) (ftpserver.ClientDriver, error) {
	session, ok := sessionOf(cc)
	if !ok || session.client == nil {
		return nil, errNotLoggedIn
	}
	return session.client, nil
}

// authCommand is AUTH (RFC 4217 section 4). Control does the handshake, not the library, so that lines are seen
// in the clear here.
func (s *session) authCommand(cmd control.Command) control.Decision {
	config := s.server.tls
	switch mechanism := strings.ToUpper(strings.TrimSpace(cmd.Param)); {
	case mechanism != "TLS" && mechanism != "TLS-C" && mechanism != "SSL":
		return reply(504, "AUTH TLS is what this server knows")
	case config == nil:
		return reply(534, "TLS is not configured on this server")
	case s.conn.TLS() != nil:
		return reply(503, "the connection is encrypted already")
	case s.client != nil:
		return reply(503, "AUTH comes before USER")
	}
	s.user = ""
	return control.StartTLS(control.Reply{Code: 234, Text: "begin TLS now"}, config)
}

// pbszCommand is PBSZ (RFC 2228); with TLS the size is always 0 (RFC 4217 section 8).
func (s *session) pbszCommand(control.Command) control.Decision {
	if s.conn.TLS() == nil {
		return reply(503, "PBSZ comes after AUTH TLS")
	}
	s.pbsz = true
	return reply(200, "PBSZ=0")
}

// protCommand is PROT (RFC 4217 section 9).
func (s *session) protCommand(cmd control.Command) control.Decision {
	level := strings.ToUpper(strings.TrimSpace(cmd.Param))
	switch {
	case s.conn.TLS() == nil || !s.pbsz:
		return reply(503, "PROT comes after AUTH TLS and PBSZ 0")
	case level == "S" || level == "E":
		return reply(536, "PROT P or PROT C")
	case level == "C" && s.server.settings.Load().TLSRequired:
		return reply(534, "this server wants PROT P")
	case level != "P" && level != "C":
		return reply(504, "PROT P or PROT C")
	}
	s.private = level == "P"
	s.unprepare() // what PASV prepared is of the other kind
	return reply(200, "data connections are "+map[string]string{"P": "encrypted", "C": "in the clear"}[level])
}
