package driver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// session follows the life of one control connection (control.Handler): what its commands and its end mean for the locks
// of who is logged in.
type session struct {
	server *Server
	conn   *control.Conn
	log    *slog.Logger

	failures int // wrong passwords, in a row

	mu     sync.Mutex
	client *client // nil: nobody is logged in
	phase  sessionPhase
}

// sessionPhase is how far a session is with its end. Its locks are given back when the connection has ended and the last
// transfer is over too, so that the next holder of a lock never meets the last one's bytes.
type sessionPhase uint8

const (
	sessionIdle sessionPhase = iota // no transfer is under way
	sessionTransferring
	sessionLeaving // the connection has ended, a transfer is under way
	sessionOver
)

var _ control.Handler = (*session)(nil)

// newSession is control.Options.NewHandler.
func (s *Server) newSession(c *control.Conn) control.Handler {
	session := &session{server: s, conn: c, log: s.log.With("connection", c.ID(), "address", address(c.RemoteAddr()))}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) == 0 {
		s.empty = make(chan struct{})
	}
	s.sessions[session] = struct{}{}
	return session
}

// sessionOf leads from the library's client to its session.
func sessionOf(cc ftpserver.ClientContext) (*session, bool) {
	c, ok := control.FromAddr(cc.RemoteAddr())
	if !ok {
		return nil, false
	}
	session, ok := c.Handler().(*session)
	return session, ok
}

// loggedIn returns who is logged in, or nil.
func (s *session) loggedIn() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// Begin implements control.Handler. A command that is under way is a sign of life, and so is a wrong one; a transfer is one
// only while its bytes move.
func (s *session) Begin(cmd *control.Command) {
	c := s.loggedIn()
	if s.server.log.Enabled(s.server.context, slog.LevelDebug) {
		log := s.log
		if c != nil {
			log = c.log
		}
		log.Debug("command", "line", redacted(cmd))
	}
	switch {
	case c == nil:
	case cmd.Transfers():
		c.locks.Touch()
		s.turn(sessionIdle, sessionTransferring)
	default:
		c.locks.Begin()
	}
}

// End implements control.Handler.
func (s *session) End(cmd *control.Command) {
	c := s.loggedIn()
	switch {
	case c == nil:
	case !cmd.Transfers():
		c.locks.End()
	case s.turn(sessionTransferring, sessionIdle):
		c.locks.Touch()
	case s.turn(sessionLeaving, sessionOver):
		s.leave()
	}
}

// turn changes the phase, if it is the one that it is to turn from.
func (s *session) turn(from, to sessionPhase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != from {
		return false
	}
	s.phase = to
	return true
}

// Ended implements control.Handler.
func (s *session) Ended(why control.Reason) {
	s.log.Debug("session ended", "why", why.String())
	if !s.turn(sessionTransferring, sessionLeaving) && s.turn(sessionIdle, sessionOver) {
		s.leave()
	}
}

// leave is called once, when all is over.
func (s *session) leave() {
	s.Reset()
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	delete(s.server.sessions, s)
	if len(s.server.sessions) == 0 {
		close(s.server.empty)
	}
}

// Reset implements control.Handler: the locks of who was logged in are treated as at a disconnect.
func (s *session) Reset() {
	s.mu.Lock()
	c := s.client
	s.client = nil
	s.mu.Unlock()
	if c == nil {
		return
	}
	// The server's own context may have ended; what the end of a session does to its locks is done all the same.
	ctx := context.WithoutCancel(s.server.context)
	if err := c.locks.Close(ctx); err != nil && !errors.Is(err, lock.ErrClosed) {
		s.log.Error("could not end the locks of a session", "err", err)
	}
}

// askAgain is how long a holder is left alone before it is looked again whether it is one.
const askAgain = time.Minute

// IdleFor implements control.Handler: a session that speaks for a lock is not cut off before that lock ends.
func (s *session) IdleFor() time.Duration {
	c := s.loggedIn()
	if c == nil {
		return 0
	}
	until, never, ok := c.locks.HoldsUntil()
	switch {
	case !ok:
		return 0
	case never:
		return askAgain
	}
	return min(until-s.server.clock.Now().Boot+time.Second, askAgain)
}

// Status implements control.Handler.
func (s *session) Status() []string {
	c := s.loggedIn()
	if c == nil {
		return []string{" not logged in"}
	}
	lines := []string{" logged in as " + c.account.Name, " in " + c.context.Path()}
	if cmd := s.conn.Command(); cmd != nil && cmd.Transfers() {
		lines = append(lines, " transferring "+cmd.Param)
	}
	return lines
}

// Kick ends the session with that id, also while it transfers something: what it uploads is discarded, and
// its locks are treated as at every disconnect. The client is told 421 and the reason. It reports
// whether there is such a session, and does not wait for its end.
func (s *Server) Kick(id lock.SessionID, reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.sessions {
		if c := session.loggedIn(); c != nil && c.locks.ID() == id {
			session.conn.Kick(control.Reply{Code: 421, Text: reason})
			return true
		}
	}
	return false
}

// redacted is the line as it may stand in a log.
func redacted(cmd *control.Command) string {
	if cmd.Verb == "PASS" || cmd.Verb == "ACCT" {
		return cmd.Verb + " ****"
	}
	if fields := strings.Fields(cmd.Line); len(fields) > 3 && strings.EqualFold(strings.Join(fields[:3], " "), "SITE LOCK AS") {
		return "SITE LOCK AS ****" // who knows it speaks for the job's locks
	}
	return cmd.Line
}

// address is the client's IP address without port and zone.
func address(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	host, _, _ = strings.Cut(host, "%")
	return host
}
