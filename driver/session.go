package driver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/lock"
)

// session is one control connection: what it has said so far, and who it logged in as. It decides
// what becomes of each command (control.Handler). Nearly everything is answered here, with full
// command of code and text; ftpserverlib is handed a PASS that was right, and QUIT.
//
// The fields above mu belong to the goroutine that reads commands.
type session struct {
	server *Server
	conn   *control.Conn
	log    *slog.Logger

	user       string // what USER said, until PASS
	failures   int    // wrong passwords
	cwd        string // as the account sees it, cleaned
	ascii      bool   // TYPE A (RFC 959 section 3.1.1); the default
	rest       int64  // of REST, for the next transfer
	restSet    bool
	allocated  int64 // of ALLO, for the next upload; 0: not said
	renameFrom string
	facts      factSet
	digest     digest // of HASH
	epsvAll    bool   // RFC 2428 section 4
	pbsz       bool   // RFC 4217 section 8
	private    bool   // PROT P

	mu       sync.Mutex
	client   *client   // nil until login
	transfer *transfer // the one that is under way; nil: none is
	data     dataPort  // what PASV or PORT prepared; nil: nothing
	over     bool      // the control connection has ended
	left     bool      // the lock session is closed, or there was none
}

// context is for work that a command does; it ends when the server stops.
func (s *session) context() context.Context { return s.server.context }

// Command implements control.Handler. A bug that one client has found ends nobody else's session.
func (s *session) Command(_ *control.Conn, cmd control.Command) (d control.Decision) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("a command failed in an unforeseen way", "line", redacted(cmd), "panic", r, "stack", string(debug.Stack()))
			d = reply(451, "internal error")
		}
	}()
	s.server.came()
	c, known := s.server.commands[cmd.Verb]
	client := s.client
	if client != nil { // any command is a sign of life, a wrong one too
		client.locks.Begin()
		defer client.locks.End()
	}
	switch {
	case !known:
		return reply(500, quoted(cmd.Verb)+" is no command that this server knows")
	case client == nil && !c.open:
		return reply(530, "please log in with USER and PASS")
	case c.param && strings.Trim(cmd.Param, " ") == "":
		return reply(501, cmd.Verb+" needs an argument: "+c.usage)
	}
	if s.server.debug() {
		s.log.Debug("command", "line", redacted(cmd))
	}
	return c.run(s, cmd)
}

// redacted is the line as it may stand in a log.
func redacted(cmd control.Command) string {
	if cmd.Verb == "PASS" || cmd.Verb == "ACCT" {
		return cmd.Verb + " ****"
	}
	return cmd.Line
}

// quoted shortens what a client sent, for an error text.
func quoted(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "..."
	}
	return "'" + s + "'"
}

func reply(code int, text string) control.Decision {
	return control.Answer(control.Reply{Code: code, Text: text})
}

// refuse answers with what replyFor makes of the error, and logs what nobody foresaw.
func (s *session) refuse(view string, err error) control.Decision {
	return control.Answer(s.replyFor(view, err))
}

func (s *session) replyFor(view string, err error) control.Reply {
	err = s.seen(err)
	r := replyFor(view, err)
	if r.Code == 451 && !foreseen(err) {
		s.log.Error("command failed", "path", view, "err", err)
	}
	return r
}

// abs is the path that a parameter means, as the account sees it.
func (s *session) abs(param string) (string, error) {
	if strings.ContainsAny(param, "\r\n\x00") {
		return "", errUnsafeName
	}
	if path.IsAbs(param) {
		return path.Clean(param), nil
	}
	return path.Join(s.cwd, param), nil
}

// withPath runs an operation on the path that the parameter means, and answers with done or the error.
func (s *session) withPath(param string, code int, done string, operate func(view string) error) control.Decision {
	view, err := s.abs(param)
	if err == nil {
		err = operate(view)
	}
	if err != nil {
		return s.refuse(view, err)
	}
	return reply(code, view+" "+done)
}

// askAgain is how long a holder is left alone before it is looked again whether it is one.
const askAgain = time.Minute

// IdleFor implements control.Idler: a session that speaks for a lock is not cut off before that lock ends.
func (s *session) IdleFor(*control.Conn) time.Duration {
	if s.client == nil {
		return 0
	}
	until, never, ok := s.client.locks.HoldsUntil()
	switch {
	case !ok:
		return 0
	case never:
		return askAgain
	}
	return min(until-s.server.clock.Now().Boot+time.Second, askAgain)
}

// Urgent implements control.Urgenter: STAT without a parameter is answered while a transfer runs.
func (s *session) Urgent(_ *control.Conn, cmd control.Command) bool {
	return cmd.Verb == "STAT" && strings.TrimSpace(cmd.Param) == ""
}

// Reply implements control.Handler: the words for what the library says.
func (s *session) Reply(_ *control.Conn, code int, line []byte) ([]byte, bool) {
	switch {
	case code == 230:
		return []byte("230 " + s.welcome()), false
	case code == 221:
		return []byte("221 goodbye"), false
	case code >= 500 && strings.Contains(string(line), "internal error"):
		s.log.Error("ftpserverlib failed", "line", string(line))
		return []byte("451 internal error"), false
	}
	return nil, false
}

// Ended implements control.Handler. Unless the client said QUIT, which control lets wait for
// transfers, a transfer under way is aborted: nobody is left to say that it was meant.
func (s *session) Ended(_ *control.Conn, why control.Reason) {
	s.log.Debug("session ended", "why", why.String())
	s.mu.Lock()
	s.over = true
	t := s.transfer
	s.mu.Unlock()
	if t != nil {
		cause := errHungUp
		if why == control.ReasonShutdown || why == control.ReasonKicked {
			cause = errStopping
		}
		t.abort(cause)
	}
	s.unprepare()
	s.leave()
}

// leave closes the lock session when the connection has ended and the last transfer is over too, so
// that the next holder of a lock never meets the last one's bytes.
func (s *session) leave() {
	s.mu.Lock()
	now := s.over && s.transfer == nil && !s.left
	s.left = s.left || now
	client := s.client
	s.mu.Unlock()
	if !now {
		return
	}
	s.closeLocks(client)
	s.server.forget(s)
}

func (s *session) closeLocks(c *client) {
	if c == nil {
		return
	}
	// The server's own context may have ended; what the end of a session does to its locks is done all the same.
	ctx := context.WithoutCancel(s.context())
	if err := c.locks.Close(ctx); err != nil && !errors.Is(err, lock.ErrClosed) {
		s.log.Error("could not end the locks of a session", "err", err)
	}
	if s.server.stages.count.Load() == 0 {
		return
	}
	if err := s.server.sweepStages(); err != nil { // what its end has ended may have prepared changes
		s.log.Warn("could not drop what was prepared", "err", err)
	}
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

var _ interface {
	control.Handler
	control.Idler
	control.Urgenter
} = (*session)(nil)

var _ ftpserver.ClientDriver = (*client)(nil)
