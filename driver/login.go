package driver

import (
	"context"
	"errors"
	"path"
	"syscall"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/guessing"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// maxFailures is the number of wrong passwords that ends a connection.
const maxFailures = 5

var errNoSession = errors.New("the connection has no session")

// AuthUser implements ftpserver.MainDriver. It returns no error for a wrong password: after an error ftpserverlib v0.32.3 closes the
// connection at once, and ignores later requests to close it (client_handler.go:146). The library does not use the driver that it gets
// then, since control passes no commands on before LogIn.
func (s *Server) AuthUser(cc ftpserver.ClientContext, user, password string) (ftpserver.ClientDriver, error) {
	c, ok := clientOf(cc)
	if !ok {
		return nil, errNoSession
	}
	ctx := s.context
	if by, limited := c.conn.LoginDeadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	account, err := s.logins.Check(ctx, s.settings.Load().Accounts, config.Attempt{Name: user, Password: password, From: c.conn.IP(), Gone: c.conn.Gone})
	if err != nil {
		c.conn.Command().Reply(c.failedLogin(err))
		return s.nothing, nil
	}
	account.Home = s.resolvedHome(account.Home)
	c.libraryClient, c.account = cc, account
	c.locks = s.table.Open(lock.Owner{Account: account.Name, Address: c.conn.IP().String()})
	c.log = c.log.With("session", c.locks.ID().String()) // as in the output of "ftplockd sessions"
	c.locks.SetReader(account.Reads() && !account.Writes())
	c.locks.SetMaxLocks(account.MaxLocks)
	c.jobs = s.jobs.Open(c.locks, account.MaxLocks)
	c.locks.Begin() // its End comes at the end of PASS
	c.id.Store(uint64(c.locks.ID()))
	c.emit(event.Event{Kind: event.Login})
	cc.SetPath(c.startDirectory())
	c.conn.LogIn(account.Name)
	return c, nil
}

// PostAuthMessage implements ftpserver.MainDriverExtensionPostAuthMessage with the text of the 230.
func (s *Server) PostAuthMessage(_ ftpserver.ClientContext, user string, _ error) string {
	return "logged in as " + user + "; MKD acquires a lock, RMD releases it"
}

// Logins checks passwords, for FTP and for the web page. Events may be nil.
type Logins struct {
	Guessing *guessing.Limiter // delays the reply to a wrong password
	Events   *event.Bus
}

// Check returns the account, after a wrong password config.ErrLogin. Any other error is a reason why no login is possible now. t.Gone must not
// be nil.
func (l Logins) Check(ctx context.Context, accounts Accounts, t config.Attempt) (account config.Account, err error) {
	err = l.Guessing.Try(ctx, t.Name, control.NetworkOf(t.From), t.Gone, func() (err error) {
		account, err = accounts.Authenticate(ctx, t)
		if errors.Is(err, config.ErrLogin) {
			// Programs that block addresses read the log line of this event; docs/operations.md has the pattern.
			l.Events.Publish(event.Event{Kind: event.LoginFailed, Remote: t.From.String(), Account: t.Name})
		}
		return err
	})
	return account, err
}

// failedLogin returns the reply to a login that failed with err. After maxFailures wrong passwords the connection ends.
func (c *client) failedLogin(err error) control.Reply {
	switch {
	case errors.Is(err, config.ErrLogin):
		c.failures++
		if c.failures >= maxFailures {
			return control.Reply{Code: 421, Text: "too many wrong passwords"}
		}
		return control.Reply{Code: 530, Text: "login incorrect"}
	case errors.Is(err, guessing.ErrRefused):
		return control.Reply{Code: 421, Text: err.Error() + ", try again in a few minutes"}
	case errors.Is(err, context.DeadlineExceeded):
		return control.Reply{Code: 421, Text: "the login took too long"}
	case errors.Is(err, config.ErrGone): // if a script is piped into nc, nc closes its side of the connection and reads on
		return control.Reply{Code: 421, Text: "your side of the connection is closed: the server did not check the password"}
	case errors.Is(err, context.Canceled):
		return control.Reply{Code: 421, Text: "the server is shutting down"}
	}
	c.log.Error("login failed for another reason than the password", "err", err)
	return control.Reply{Code: 421, Text: "the server failed to check the password: see its log"}
}

// resolvedHome returns a home with its links resolved, so that names of locks can be compared with it. A
// home that leads out of the tree is returned unchanged, and each command in it is refused.
func (s *Server) resolvedHome(home string) string {
	inside, err := s.tree.Resolve(path.Join("/", home, "x"))
	if err != nil {
		return path.Join("/", home)
	}
	return path.Dir(inside)
}

// startDirectory returns the account's directory after login; "/" if Start is not a directory. If the disk cannot tell, it returns Start: relative
// paths then fail, and lead to no other directory.
func (c *client) startDirectory() string {
	start := path.Join("/", c.account.Start)
	var fault syscall.Errno
	if _, err := c.checkCwd(start); err == nil || errors.As(err, &fault) && !isNotThere(err) && fault != syscall.ENOTDIR {
		return start
	}
	return "/"
}
