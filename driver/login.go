package driver

import (
	"errors"
	"net/netip"
	"path"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// maxFailures is how many wrong passwords one connection may send.
const maxFailures = 5

var errNoSession = errors.New("the connection has no session")

// AuthUser implements ftpserver.MainDriver. A wrong password is no error: after one ftpserverlib v0.32.3 closes the
// connection, and never closes it again (client_handler.go:160). The driver that is returned then is never used, since
// control lets nothing through before LogIn.
func (s *Server) AuthUser(cc ftpserver.ClientContext, user, password string) (ftpserver.ClientDriver, error) {
	session, ok := sessionOf(cc)
	if !ok {
		return nil, errNoSession
	}
	account, ok := s.settings.Load().Accounts.Authenticate(s.context, user, password)
	remote, err := netip.ParseAddr(address(cc.RemoteAddr()))
	if !ok || err != nil || !account.from(remote) {
		session.refuse(user)
		return afero.NewReadOnlyFs(afero.NewMemMapFs()), nil
	}
	session.failures = 0
	session.log.Debug("logged in", "account", account.Name)
	account.Home = s.resolvedHome(account.Home)
	c := &client{
		server: s, conn: session.conn, log: session.log, context: cc, account: account,
		locks: s.table.Open(lock.Owner{Account: account.Name, Address: remote.Unmap().String()}),
	}
	c.locks.SetReader(account.Read && !account.Write)
	c.locks.Begin() // PASS ends as every command does
	session.mu.Lock()
	session.client = c
	session.mu.Unlock()
	cc.SetPath(c.startDirectory())
	session.conn.LogIn()
	return c, nil
}

// PostAuthMessage implements ftpserver.MainDriverExtensionPostAuthMessage with the text of the 230.
func (s *Server) PostAuthMessage(cc ftpserver.ClientContext, user string, _ error) string {
	return "logged in as " + user + "; MKD takes a lock, RMD gives it back"
}

// refuse says that the password is wrong, after a while.
func (s *session) refuse(user string) {
	s.failures++
	s.log.Warn("login refused", "user", user)
	select {
	case <-time.After(s.server.wrongDelay * time.Duration(s.failures)):
	case <-s.server.context.Done():
	}
	r := control.Reply{Code: 530, Text: "login incorrect"}
	if s.failures >= maxFailures {
		r = control.Reply{Code: 421, Text: "too many wrong passwords"}
	}
	s.conn.Command().Say(r)
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
func (c *client) startDirectory() string {
	start := path.Join("/", c.account.Start)
	if _, err := c.enter(start); err != nil {
		return "/"
	}
	return start
}
