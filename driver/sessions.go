package driver

import (
	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/lock"
)

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

// loggedIn returns who is logged in, or nil; for other goroutines than the session's own.
func (s *session) loggedIn() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}
