package driver

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/files"
)

// Why a transfer did not end well.
var (
	errAborted  = &refusal{code: 426, text: "aborted by ABOR"}
	errHungUp   = &refusal{code: 426, text: "the client hung up before the transfer was confirmed"}
	errStopping = &refusal{code: 426, text: "the server ended the session"}
)

// transfer is one use of a data connection: what the library is to send or to receive, and
// how it ended. The library is told nothing but "STOR" or "RETR"; open knows the rest.
type transfer struct {
	session *session
	open    func(*transfer) (ftpserver.FileTransfer, error) // called by the library's goroutine

	mu       sync.Mutex
	view     string         // the path that the client named
	opening  string         // the text of the 150
	done     string         // the text of the 226; "" is made from the count
	conn     net.Conn       // the data connection once it stands, below TLS
	cause    error          // what aborted it
	sealed   bool           // it cannot be aborted any more: publishing has begun, or all is over
	failure  *control.Reply // what the final reply is to say instead of the library's
	answered chan struct{}  // closed when the final reply is on its way
	isOver   bool
}

// begin hands a transfer to the library.
func (s *session) begin(t *transfer, store bool) control.Decision {
	// REST and ALLO are for the command right behind them, whatever becomes of that (RFC 3659 section 5.4).
	s.rest, s.restSet, s.allocated = 0, false, 0
	if d, refused := s.dataRefused(); refused {
		return d
	}
	t.session = s
	t.answered = make(chan struct{})
	s.mu.Lock()
	s.transfer = t
	s.mu.Unlock()
	if store {
		return control.Pass("STOR data")
	}
	return control.Pass("RETR data")
}

// dataRefused says why no data connection can be used now.
func (s *session) dataRefused() (control.Decision, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.data.ready():
		return reply(425, "use PASV, EPSV, PORT or EPRT first"), true
	case s.server.settings.Load().TLSRequired && !s.private:
		return reply(522, "data connections must be encrypted: PBSZ 0 and PROT P first"), true // RFC 4217 section 9
	}
	s.data.use()
	return control.Decision{}, false
}

// GetHandle implements ftpserver.ClientDriverExtentionFileTransfer. The name is none: what is to be
// transferred was settled when the command came.
func (c *client) GetHandle(string, int, int64) (ftpserver.FileTransfer, error) {
	s := c.session
	s.mu.Lock()
	t := s.transfer
	if s.over || t == nil {
		s.mu.Unlock()
		return nil, errHungUp
	}
	s.working++
	s.mu.Unlock()
	h, err := t.open(t)
	if err != nil {
		t.fail(err)
		s.worked()
		return nil, err
	}
	return h, nil
}

// worked notes that a transfer's handle is closed.
func (s *session) worked() {
	s.mu.Lock()
	s.working--
	s.mu.Unlock()
	s.leave()
}

// abort ends the transfer before it is published, and cuts its data connection. It reports false if
// it is too late for that.
func (t *transfer) abort(cause error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed {
		return false
	}
	if t.cause == nil {
		t.cause = cause
	}
	t.cutLocked()
	return true
}

// carriedBy notes the data connection, so that abort can cut it.
func (t *transfer) carriedBy(conn any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	t.conn, _ = conn.(net.Conn)
	if t.cause != nil {
		t.cutLocked()
	}
}

// cut closes the data connection below TLS, which would wait five seconds to say goodbye to a client that does not read.
func (t *transfer) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cutLocked()
}

func (t *transfer) cutLocked() {
	if t.conn != nil {
		t.conn.Close() // whatever it says, the connection is of no more use
	}
}

// aborted returns what aborted the transfer, if anything did.
func (t *transfer) aborted() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

// seal makes it too late to abort, unless that has happened: then it returns the cause.
func (t *transfer) seal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.sealed = true
	}
	return t.cause
}

// path is what is transferred, as the client knows it.
func (t *transfer) path() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view
}

// found settles which path it is, and what the 150 says of it.
func (t *transfer) found(view, opening string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.view, t.opening = view, opening
}

// fail settles what the client is told. The first failure stays.
func (t *transfer) fail(err error) {
	r := t.session.transferReply(t.path(), err)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil {
		t.failure = &r
	}
}

// transferReply is replyFor for what went wrong with a transfer: what neither the disk nor the driver
// said was said by the data connection.
func (s *session) transferReply(view string, err error) control.Reply {
	if !foreseen(err) && !fromDisk(err) {
		s.log.Debug("data connection failed", "path", view, "err", err)
		return control.Reply{Code: 426, Text: view + ": " + errBroke.Error()}
	}
	return s.replyFor(view, err)
}

var errBroke = errors.New("the data connection broke")

// why is the reason of a transfer that did not end well, as the client is told it.
func why(err error) string {
	if !foreseen(err) && !fromDisk(err) {
		return errBroke.Error()
	}
	_, text := describe(err)
	return text
}

// fromDisk reports whether the file system said so: package files wraps what it and what the connection say alike.
func fromDisk(err error) bool {
	var (
		disk  *fs.PathError
		errno syscall.Errno
		op    *net.OpError
	)
	return errors.As(err, &disk) && errors.As(err, &errno) && !errors.As(err, &op)
}

func (t *transfer) finished(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = text
}

func (t *transfer) isAnswered() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOver
}

// rewrite puts the reply to a transfer into words, and says whether it is the final one.
func (t *transfer) rewrite(code int, line []byte) (text []byte, final bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if code < 200 {
		return fmt.Appendf(nil, "150 %s", clean(t.opening)), false
	}
	if !t.isOver {
		t.isOver = true
		close(t.answered)
	}
	t.sealed = true
	return t.finalLocked(code, line), true
}

func (t *transfer) finalLocked(code int, line []byte) []byte {
	switch {
	case code == 425 && t.cause == nil:
		return []byte("425 cannot open the data connection")
	case t.cause != nil && code >= 400:
		return fmt.Appendf(nil, "426 %s: %s", clean(t.view), t.cause)
	case t.failure != nil:
		return bytes.TrimSuffix(t.failure.AppendTo(nil), []byte("\r\n"))
	case code == 226 && t.done != "":
		return fmt.Appendf(nil, "226 %s", clean(t.done))
	case code >= 500:
		return []byte("426 the data connection broke")
	}
	return line
}

// clean keeps a file's name from forging a reply line.
func clean(s string) string {
	return strings.NewReplacer("\r", "?", "\n", "?", "\x00", "?").Replace(s)
}

// abor is ABOR: it ends the transfer at once, wherever it stands. If it is being published at this
// moment the transfer ends well first, and its reply says so.
func (s *session) abor(control.Command) control.Decision {
	s.mu.Lock()
	t := s.transfer
	data := s.data
	s.mu.Unlock()
	if t != nil && !t.isAnswered() {
		if t.abort(errAborted) {
			data.stopWaiting()
		} else {
			<-t.answered
		}
	}
	s.unprepare() // the library forgets it
	return control.Pass("ABOR")
}

// signOfLife is how often moving bytes count as one: well below the shortest max_idle that anybody will want.
const signOfLife = 200 * time.Millisecond

// pace is how long a transfer may stand still; its bytes are signs of life for the session's locks.
func (s *session) pace() files.Pace {
	return files.Pace{
		Timeout:  s.server.settings.Load().DataTimeout,
		Step:     signOfLife,
		Progress: func(int64) { s.touch() },
	}
}

func (s *session) touch() {
	s.mu.Lock()
	c := s.client
	s.mu.Unlock()
	if c != nil {
		c.locks.Touch()
	}
}
