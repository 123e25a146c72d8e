package driver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/files"
)

// Why a transfer did not end well.
var (
	errAborted  = &refusal{code: 426, text: "aborted by ABOR"}
	errHungUp   = &refusal{code: 426, text: "the client hung up before the transfer was confirmed"}
	errStopping = &refusal{code: 426, text: "the server ended the session"}
	errBehind   = errors.New("there are commands behind it that nobody has looked at")
	errNoData   = &refusal{code: 425, text: "cannot open the data connection"}
	errBroke    = errors.New("the data connection broke")
)

// transfer is one use of a data connection: what is sent or received, and how it ended. It runs on a goroutine of
// its own, but for what atOnce does before.
//
// The fields above mu belong to the goroutine that runs it.
type transfer struct {
	session   *session
	open      func(*transfer) (cargo, error)
	port      dataPort
	secure    bool // PROT P
	quick     bool // it may be tried without a goroutine of its own
	cargo     cargo
	stream    net.Conn // conn, or TLS over it
	announced bool     // the 150 was said
	carried   bool     // all bytes were moved
	sole      bool     // whoever executes commands ends it, so no ABOR can come meanwhile

	mu      sync.Mutex
	view    string    // the path that the client named
	opening string    // the text of the 150
	conn    *dataConn // once it stands
	cause   error     // what aborted it
	sealed  bool      // it cannot be aborted any more: publishing has begun
}

// cargo is what a transfer moves.
type cargo interface {
	// small reports whether carry may be tried in a hurry: it can be asked again after files.ErrWouldWait.
	small() bool
	// carry moves all bytes over the data connection.
	carry(conn net.Conn) error
	// prompt reports whether end waits for no disk.
	prompt() bool
	// end closes what was opened, once: an upload is published if err, of the connection or of carry, is nil, and its client still
	// there. It returns the text of the 226, or why it did not end well. After errBehind it is not over, and to be called again.
	end(err error) (done string, failed error)
}

// begin runs a transfer.
func (s *session) begin(t *transfer) control.Decision {
	// REST and ALLO are for the command right behind them, whatever becomes of that (RFC 3659 section 5.4).
	s.rest, s.restSet, s.allocated = 0, false, 0
	t.session, t.secure = s, s.private
	if d, refused := s.take(t); refused {
		return d
	}
	if r, over := t.atOnce(); over {
		return control.Answer(r)
	}
	return control.Run(t.run)
}

// take gives the transfer what PASV or PORT prepared, or says why there is none.
func (s *session) take(t *transfer) (control.Decision, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.data == nil:
		return reply(425, "use PASV, EPSV, PORT or EPRT first"), true
	case s.server.settings.Load().TLSRequired && !s.private:
		return reply(522, "data connections must be encrypted: PBSZ 0 and PROT P first"), true // RFC 4217 section 9
	case s.over:
		t.cause = errHungUp
	}
	t.port, s.data = s.data, nil
	s.transfer = t
	return control.Decision{}, false
}

// hurry is how long a transfer may take that is done by those who execute commands: so long they are away from the control connection.
const hurry = time.Millisecond

// atOnce begins the transfer without a goroutine of its own, if its client has connected already, as most do before they say RETR or
// STOR; that of a small file is over then. What takes longer goes on in run.
func (t *transfer) atOnce() (r control.Reply, over bool) {
	port, passive := t.port.(*passivePort)
	if !t.quick || t.secure || !passive {
		return r, false
	}
	conn, err := port.openNow()
	if conn == nil || err != nil {
		return r, false
	}
	defer t.recovered(&r, &over)
	t.connected(conn)
	if err := t.load(); err != nil {
		return t.over("", err), true
	}
	if !t.cargo.small() {
		return r, false
	}
	conn.hurry = &haste{until: time.Now().Add(hurry), waits: t.session.server.hurries}
	err = t.carry()
	conn.hurry = nil
	t.carried = err == nil
	if errors.Is(err, files.ErrWouldWait) || t.carried && !t.cargo.prompt() {
		return r, false
	}
	t.sole = true
	r, over = t.close(err)
	t.sole = false
	return r, over
}

// run does what is left of a transfer, and returns the final reply.
func (t *transfer) run() (r control.Reply) {
	defer t.recovered(&r, nil)
	if t.cargo == nil {
		if err := t.load(); err != nil {
			return t.over("", err)
		}
	}
	if t.stream == nil {
		conn, err := t.port.open(t.session.server.connectWithin())
		if err != nil {
			t.session.log.Debug("no data connection", "path", t.path(), "err", err)
			r, _ = t.close(errNoData)
			return r
		}
		t.connected(conn)
	}
	var err error
	if !t.carried {
		err = t.carry()
	}
	r, _ = t.close(err)
	return r
}

// connectWithin is how long a data connection is waited for: no longer than it may stand still later.
func (s *Server) connectWithin() time.Duration {
	if timeout := s.settings.Load().DataTimeout; timeout > 0 {
		return min(timeout, s.delays.dataConnection)
	}
	return s.delays.dataConnection
}

func (t *transfer) load() (err error) {
	if err := t.aborted(); err != nil {
		return err
	}
	t.cargo, err = t.open(t)
	return err
}

// connected takes the data connection.
func (t *transfer) connected(conn *dataConn) {
	t.stream = conn
	if t.secure {
		t.stream = tls.Server(conn, t.session.server.dataTLS)
	}
	t.port.close()
	t.carriedBy(conn)
}

// carriedBy notes the data connection, so that abort can cut it.
func (t *transfer) carriedBy(conn *dataConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conn = conn
	if t.cause != nil {
		t.cutLocked()
	}
}

// carry moves all bytes, once the client knows that it begins.
func (t *transfer) carry() error {
	if !t.announced {
		t.announced = true
		t.mu.Lock()
		opening := t.opening
		t.mu.Unlock()
		t.session.conn.Say(control.Reply{Code: 150, Text: opening})
	}
	return t.cargo.carry(t.stream)
}

// close ends the data connection and what it was for. Unless the transfer is sole it is over then.
func (t *transfer) close(err error) (r control.Reply, over bool) {
	switch {
	case t.stream == nil:
	case err != nil: // below TLS, which would wait five seconds to say goodbye to a client that does not read
		t.cut()
	default:
		t.stream.Close() // all has gone over it
	}
	done, err := t.cargo.end(err)
	if err == errBehind {
		return r, false
	}
	return t.over(done, err), true
}

// over takes the transfer from the session and says how it ended. Nothing of it is under way any more.
func (t *transfer) over(done string, err error) control.Reply {
	t.port.close()
	t.cut() // if it was not closed already
	r := control.Reply{Code: 226, Text: done}
	if err != nil {
		r = t.reply(err)
	}
	s := t.session
	s.mu.Lock()
	s.transfer = nil
	s.mu.Unlock()
	s.leave()
	return r
}

func (t *transfer) reply(err error) control.Reply {
	view := t.path()
	switch cause := t.aborted(); {
	case cause != nil:
		return replyFor(view, cause)
	case errors.Is(err, errNoData):
		return replyFor("", errNoData)
	case isBroken(err):
		t.session.log.Debug("data connection failed", "path", view, "err", err)
		return control.Reply{Code: 426, Text: view + ": " + errBroke.Error()}
	}
	return t.session.replyFor(view, err)
}

// recovered ends a transfer in which a bug was found, so that it ends nobody else's session.
func (t *transfer) recovered(r *control.Reply, over *bool) {
	found := recover()
	if found == nil {
		return
	}
	t.session.log.Error("a transfer failed in an unforeseen way", "path", t.path(), "panic", found, "stack", string(debug.Stack()))
	*r = t.over("", errPanic)
	if over != nil {
		*over = true
	}
}

var errPanic = &refusal{code: 451, text: "internal error"}

// abort ends the transfer before it is published, and cuts its data connection. It does nothing if
// it is too late for that.
func (t *transfer) abort(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed {
		return
	}
	if t.cause == nil {
		t.cause = cause
	}
	t.port.close()
	t.cutLocked()
}

// cut closes the data connection below TLS.
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

// isBroken reports whether the data connection said so: neither the disk nor the driver did.
func isBroken(err error) bool { return !foreseen(err) && !fromDisk(err) }

// why is the reason of a transfer that did not end well, as the client is told it.
func why(err error) string {
	if isBroken(err) {
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

// handshake does that of TLS, if the data connection is one, in no more than timeout. The first read or write would do it
// too, but a download has no deadline for reads, and a client that says nothing would hold it up for ever.
func handshake(ctx context.Context, conn net.Conn, timeout time.Duration) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, os.ErrDeadlineExceeded)
		defer cancel()
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// abor is ABOR: it ends the transfer at once, wherever it stands, and forgets what was prepared for one. If it is being published at this
// moment the transfer ends well first, and its reply says so; control sends ours behind that.
func (s *session) abor(control.Command) control.Decision {
	s.mu.Lock()
	t := s.transfer
	s.mu.Unlock()
	if t != nil {
		t.abort(errAborted)
	}
	s.unprepare()
	return reply(226, "nothing is transferred")
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
