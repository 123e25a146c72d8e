package driver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
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

// abort ends the transfer before it is published. It reports false if it is too late for that.
func (t *transfer) abort(cause error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil && !t.sealed {
		t.cause = cause
	}
	return !t.sealed
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
	var disk *fs.PathError
	if !foreseen(err) && !errors.As(err, &disk) {
		s.log.Debug("data connection failed", "path", view, "err", err)
		return control.Reply{Code: 426, Text: view + ": the data connection broke"}
	}
	return s.replyFor(view, err)
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
	return control.Pass("ABOR")
}

// pace is how long a transfer may stand still; its bytes are signs of life for the session's locks.
func (s *session) pace() files.Pace {
	return files.Pace{
		Timeout:  s.server.settings.Load().DataTimeout,
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

// download is the handle of RETR and of the listings.
type download struct {
	source
	t    *transfer
	pace files.Pace
}

// WriteTo sends everything to the data connection.
func (d *download) WriteTo(w io.Writer) (int64, error) {
	if err := handshake(d.t.session.context(), w, d.pace.Timeout); err != nil {
		return 0, err
	}
	return d.source.WriteTo(w)
}

// handshake does that of TLS, if the data connection is one, in no more than timeout. The first read or write would do it
// too, but a download has no deadline for reads, and a client that says nothing would hold it up for ever.
func handshake(ctx context.Context, conn any, timeout time.Duration) error {
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

// Write is there for the interface: nothing writes into a download.
func (d *download) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return 0, fs.ErrPermission
}

// Seek is there for the interface: REST was heeded when the file was opened.
func (d *download) Seek(int64, int) (int64, error) { return 0, fs.ErrInvalid }

// TransferError implements ftpserver.FileTransferError.
func (d *download) TransferError(err error) { d.t.fail(broken(d.t, err)) }

func (d *download) Close() error {
	err := d.source.Close()
	d.t.session.worked()
	return err
}

// broken is the reason of a transfer that did not end well: what aborted it, or what the connection or the disk said.
func broken(t *transfer, err error) error {
	if cause := t.aborted(); cause != nil {
		return cause
	}
	return err
}

// receiver is what an upload writes to: a staged file, or a note.
type receiver interface {
	io.Writer
	io.ReaderFrom
	Received() int64 // bytes that came over the wire
	Sync() error     // the slow part of making it lasting
	Publish() error  // the quick part
	Discard() error
}

// upload is the handle of STOR, APPE and STOU.
type upload struct {
	receiver
	t         *transfer
	pace      files.Pace
	announced int64 // by ALLO, in binary type; 0: nothing
	broken    error
}

// ReadFrom receives everything from the data connection.
func (u *upload) ReadFrom(r io.Reader) (int64, error) {
	if err := handshake(u.t.session.context(), r, u.pace.Timeout); err != nil {
		return 0, err
	}
	n, err := u.receiver.ReadFrom(r)
	if err == nil && cutShort(r) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Read is there for the interface: nothing reads from an upload.
func (u *upload) Read([]byte) (int, error) { return 0, fs.ErrPermission }

// Seek is there for the interface: REST was heeded when the upload began.
func (u *upload) Seek(int64, int) (int64, error) { return 0, fs.ErrInvalid }

// TransferError implements ftpserver.FileTransferError.
func (u *upload) TransferError(err error) {
	if u.broken == nil {
		u.broken = err
	}
}

// Close publishes the upload if all of it came and its client is still there, and discards it otherwise.
func (u *upload) Close() error {
	defer u.t.session.worked()
	err := u.publish()
	if err == nil {
		u.t.finished(fmt.Sprintf("transfer complete, %d bytes received", u.Received()))
		return nil
	}
	if errors.Is(err, files.ErrNotDurable) {
		u.t.fail(err)
		return err
	}
	if derr := u.Discard(); derr != nil {
		u.t.session.log.Error("could not remove an unfinished upload", "path", u.t.path(), "err", derr)
	}
	u.t.fail(err)
	u.t.session.log.Warn("upload discarded", "path", u.t.path(), "bytes", u.Received(), "why", err.Error())
	return err
}

// publish looks at the client before the slow part and, for as long as it takes, after it.
func (u *upload) publish() error {
	if err := u.complete(u.t.session.conn.Gone()); err != nil {
		return err
	}
	if err := u.Sync(); err != nil {
		return err
	}
	if err := u.complete(u.t.session.conn.GoneWithin(u.t.session.server.delays.hangUp)); err != nil {
		return err
	}
	if err := u.t.seal(); err != nil {
		return err
	}
	return u.Publish()
}

// complete says what is wrong with the upload so far: ABOR, an error of the data connection, a
// client that is gone, fewer bytes than it announced.
func (u *upload) complete(gone bool) error {
	switch err := u.t.aborted(); {
	case err != nil:
		return err
	case u.broken != nil:
		return u.broken
	case gone:
		return errHungUp
	case u.Received() < u.announced:
		return &refusal{code: 426, text: fmt.Sprintf("fewer bytes than ALLO announced: %d of %d", u.Received(), u.announced)}
	}
	return nil
}

// note is what an upload into a lock is received in.
type note struct {
	text    bytes.Buffer
	client  *client
	lock    lock.Name
	token   lock.Token
	name    string
	timeout time.Duration
}

func (n *note) Received() int64 { return int64(n.text.Len()) }
func (n *note) Sync() error     { return nil }
func (n *note) Discard() error  { return nil }

// Publish writes the note if the hold that it is for still stands, and that waits for it.
func (n *note) Publish() error {
	c := n.client
	return c.table().Publish(c.session.context(), n.lock, n.token, func() error {
		return c.server.notes.put(n.token, n.name, n.text.Bytes())
	})
}

// Write refuses what no note holds, before it is all in memory.
func (n *note) Write(p []byte) (int, error) {
	if n.text.Len()+len(p) > maxNoteSize {
		return 0, errNoteTooLarge
	}
	return n.text.Write(p)
}

// ReadFrom reads the data connection, bounded by the pace like every other transfer.
func (n *note) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(writerOnly{n}, paced{r, n.timeout}.read(r))
}

// writerOnly hides ReadFrom.
type writerOnly struct{ io.Writer }
