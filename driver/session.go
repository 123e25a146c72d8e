package driver

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"sync/atomic"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// client is one session with its view of the tree and the locks: the library's ClientDriver (fs.go), and the control.Handler of the control
// connection (this file). The goroutine that executes commands uses it, and so do transfers.
type client struct {
	afero.Fs // has the other methods, which refuse
	server   *Server
	conn     *control.Conn
	log      *slog.Logger
	failures int           // wrong passwords, in a row
	id       atomic.Uint64 // of the lock session, for Kick and events; 0: not logged in

	// The login sets these.
	libraryClient ftpserver.ClientContext // has the working directory
	account       config.Account
	locks         *lock.Session // nil: not logged in
	jobs          *job.Session  // as locks

	announced int64  // by ALLO, for the next upload; 0: no length
	renaming  string // by RNFR, for the next RNTO
}

var _ control.Handler = (*client)(nil)

// newClient is control.Options.NewHandler.
func (s *Server) newClient(c *control.Conn) control.Handler {
	return &client{Fs: s.nothing, server: s, conn: c, log: s.log.With("connection", c.ID(), "remote", c.IP().String())}
}

// clientOf returns the session of the library's client.
func clientOf(cc ftpserver.ClientContext) (*client, bool) {
	conn, ok := control.FromAddr(cc.RemoteAddr())
	if !ok {
		return nil, false
	}
	c, ok := conn.Handler().(*client)
	return c, ok
}

// Begin implements control.Handler. The signs of life for max_idle are these:
//
//	a command, even a wrong one, until its End     locks.Begin and End   for the locks of the session
//	the begin and the end of a transfer, listings  locks.Touch           for the locks of the session
//	bytes that move, a change of a file            locks.Work            also for the locks of ended sessions of the job
//	bytes of an upload                             jobs.Wrote            for the automatic lock of the path
func (c *client) Begin(cmd *control.Command) {
	if c.server.log.Enabled(c.server.context, slog.LevelDebug) {
		c.log.Debug("command", "line", redacted(cmd))
	}
	switch {
	case c.locks == nil:
	case cmd.Transfers():
		c.locks.Touch()
	default:
		c.locks.Begin()
		c.expandTilde(cmd)
		c.quoteBeforeRange(cmd)
	}
}

// expandTilde makes CWD ~ change to the account's directory after login, as in vsftpd, unless a file has that name.
func (c *client) expandTilde(cmd *control.Command) {
	rest, ok := strings.CutPrefix(cmd.Param, "~")
	if !ok || !cmd.Is("CWD", "XCWD") || rest != "" && rest[0] != '/' {
		return
	}
	if _, err := c.stat(c.abs(cmd.Param)); isNotThere(err) {
		cmd.Replace(path.Join(c.startDirectory(), rest))
	}
}

// quoteBeforeRange quotes the path of "XCRC path start end" and the like, which control accepts in quotes only, unless a file has the whole
// argument as its name.
func (c *client) quoteBeforeRange(cmd *control.Command) {
	if !cmd.Is(control.Digests...) {
		return
	}
	name, bytes := control.CutRange(cmd.Param)
	if bytes == "" || name[0] == '"' {
		return
	}
	if _, err := c.stat(c.abs(cmd.Param)); isNotThere(err) {
		cmd.Replace(`"` + strings.ReplaceAll(name, `"`, `""`) + `" ` + bytes)
	}
}

// Replied implements control.Handler: it logs a reply without secrets.
func (c *client) Replied(lines []byte) {
	if !c.server.log.Enabled(c.server.context, slog.LevelDebug) {
		return
	}
	const most = 1000 // a listing over the control connection may be long
	text := string(lines[:min(len(lines), most)])
	switch {
	case strings.HasPrefix(text, "500 'PASS"), strings.HasPrefix(text, "500 'ACCT"):
		text = "500 ****" // the reply quotes a wrong verb, which a password may follow
	case len(lines) > most:
		text += "..."
	}
	c.log.Debug("reply", "text", strings.TrimRight(text, "\r\n"))
}

// End implements control.Handler.
func (c *client) End(cmd *control.Command) {
	switch {
	case c.locks == nil:
	case cmd.Transfers():
		c.locks.Touch()
	default:
		c.locks.End()
	}
}

// Ended implements control.Handler: it closes the session in the lock table, which releases or keeps its locks. The last transfer of the
// session has ended before, so the session changes no file when another session holds the lock.
func (c *client) Ended(why control.Reason) {
	c.log.Debug("session ended", "why", why)
	locks := c.locks
	if locks == nil {
		return
	}
	c.jobs.Close()
	c.locks = nil
	c.id.Store(0)
	locks.Close(context.WithoutCancel(c.server.context)) // also while the server stops
}

// idleStep is the longest time until IdleFor is called again for a session with a lock.
const idleStep = time.Minute

// IdleFor implements control.Handler: a session that acts for a lock does not time out before that lock ends.
func (c *client) IdleFor() time.Duration {
	if c.locks == nil {
		return 0
	}
	until, never, ok := c.locks.HoldsUntil()
	auto, endless, holds := c.jobs.HoldsUntil()
	switch {
	case !ok && !holds:
		return 0
	case never || endless:
		return idleStep
	}
	return min(max(until, auto)-c.server.clock.Now().Boot+time.Second, idleStep)
}

// Status implements control.Handler.
func (c *client) Status() []string {
	if c.locks == nil {
		return []string{" not logged in"}
	}
	lines := []string{" logged in as " + c.account.Name, " in " + c.libraryClient.Path()}
	if cmd := c.conn.Command(); cmd.Transfers() {
		lines = append(lines, " transferring "+cmd.Param)
	}
	return lines
}

// Kick ends the session with that id and discards its uploads under way. Its locks end or stay as at every disconnect. The client gets 421
// with the reason. Kick reports whether the session exists, and does not wait for its end.
func (s *Server) Kick(id lock.SessionID, reason string) bool {
	for conn := range s.conns.Conns() {
		if c, ok := conn.Handler().(*client); ok && id != 0 && c.id.Load() == uint64(id) {
			conn.Kick(control.Reply{Code: 421, Text: reason})
			return true
		}
	}
	return false
}

// redacted returns the line for the log, without secrets.
func redacted(cmd *control.Command) string {
	for _, secret := range []string{"PASS", "ACCT"} {
		if strings.HasPrefix(cmd.Verb, secret) { // the password may follow a tab, or the verb without a space
			return secret + " ****"
		}
	}
	if fields := strings.Fields(cmd.Line); len(fields) > 3 && strings.EqualFold(strings.Join(fields[:3], " "), "SITE LOCK AS") {
		return "SITE LOCK AS ****" // with the job key, every client of the account can release the job's locks
	}
	return cmd.Line
}
