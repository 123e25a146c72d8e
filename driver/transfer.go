package driver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
)

// Why a transfer did not end well.
var (
	errAborted   = &refusal{code: 426, text: "aborted by ABOR"}
	errQuit      = &refusal{code: 426, text: "QUIT came before the upload was complete; ALLO announces its length"}
	errHungUp    = &refusal{code: 426, text: "the client hung up before the transfer was confirmed"}
	errStopping  = &refusal{code: 426, text: "the server ended the session"}
	errBroke     = errors.New("the data connection broke")
	errNotOpened = &refusal{code: noDataConnection.Code, text: noDataConnection.Text}
)

// transfer is one use of a data connection. upload and download are its two kinds: the handles that the library moves bytes
// with. The library hands ReadFrom and WriteTo the data connection itself, active mode and TLS included, so that is where
// bytes are moved, converted and timed.
//
// The fields above mu belong to the goroutine that transfers.
type transfer struct {
	client    *client
	cmd       *control.Command
	ascii     bool
	announced int64  // by ALLO; 0: nothing
	works     func() // is told that bytes move: a sign of life

	mu    sync.Mutex
	view  string // the path that the client named
	stage stage
	cause error    // what aborted it
	doubt error    // why an upload that nothing proves to be complete will be discarded
	conn  net.Conn // once it is open: the socket, also below TLS
}

// stage is how far a transfer has come.
type stage uint8

const (
	begun      stage = iota // the data connection is awaited
	opened                  // bytes move
	publishing              // too late to abort it
	aborted
	over
)

// newTransfer takes over what ALLO and TYPE said.
func (c *client) newTransfer(cmd *control.Command, view string) *transfer {
	t := &transfer{client: c, cmd: cmd, view: view, ascii: c.conn.ASCII(), works: c.locks.Work}
	if !t.ascii {
		t.announced = c.announced
	}
	c.announced = 0
	return t
}

// interrupt is told what happens on the control connection meanwhile.
func (t *transfer) interrupt(i control.Interruption) {
	switch i {
	case control.Aborted:
		t.abort(errAborted)
	case control.Quitting:
		t.mu.Lock()
		t.doubt = errQuit
		t.mu.Unlock()
	case control.Ended:
		t.abort(errHungUp)
	case control.Stopped:
		t.abort(errStopping)
	}
}

// abort ends the transfer before it is published, and closes its data connection. It does nothing if it is too late for
// that.
func (t *transfer) abort(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.stage {
	case begun:
		t.cmd.Say(replyFor(t.view, cause)) // control closes the port
	case opened:
		t.conn.Close() // whatever it says, the connection is of no more use
	default:
		return
	}
	t.stage, t.cause = aborted, cause
}

// open takes the data connection, or says what has aborted the transfer.
func (t *transfer) open(stream any) (net.Conn, error) {
	conn, ok := stream.(net.Conn)
	if !ok {
		return nil, errBroke
	}
	socket := conn
	if secure, ok := conn.(*tls.Conn); ok {
		socket = secure.NetConn()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == aborted {
		return nil, t.cause
	}
	t.stage, t.conn = opened, socket
	return conn, nil
}

// cut closes the data connection below TLS, which would wait five seconds to say goodbye to a client that does not read.
func (t *transfer) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		t.conn.Close()
	}
}

// abortedBy returns what aborted the transfer, or nil.
func (t *transfer) abortedBy() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

// end says how the transfer has ended, and returns err for the library.
func (t *transfer) end(done string, err error) error {
	t.mu.Lock()
	t.stage = over
	cause := t.cause
	t.mu.Unlock()
	if err == nil {
		t.cmd.Say(control.Reply{Code: 226, Text: done})
		return nil
	}
	t.cmd.Say(t.reply(cmp.Or(cause, err)))
	return err
}

func (t *transfer) reply(err error) control.Reply {
	switch {
	case err == errNotOpened:
		return noDataConnection
	case isBroken(err):
		t.client.log.Debug("data connection failed", "path", t.path(), "err", err)
		return control.Reply{Code: 426, Text: t.path() + ": " + errBroke.Error()}
	}
	return t.client.replyFor(t.path(), err)
}

// recovered discards what a bug has interrupted, so that it ends nobody else's session.
func (t *transfer) recovered(err *error) {
	if found := recover(); found != nil {
		t.client.log.Error("a transfer failed in an unforeseen way", "path", t.path(), "panic", found)
		t.cut()
		*err = errPanic
	}
}

var errPanic = &refusal{code: 451, text: "internal error"}

// path is what is transferred, as the client knows it.
func (t *transfer) path() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view
}

// isBroken reports whether the data connection said so: neither the disk nor the driver did.
func isBroken(err error) bool { return !foreseen(err) && !fromDisk(err) }

// fromDisk reports whether the file system said so.
func fromDisk(err error) bool {
	var (
		disk  *fs.PathError
		errno syscall.Errno
		op    *net.OpError
	)
	return errors.As(err, &disk) && errors.As(err, &errno) && !errors.As(err, &op)
}

// handshake does that of TLS, if the data connection has one. A client that says nothing is ended by the watch.
func handshake(ctx context.Context, conn net.Conn) error {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.HandshakeContext(ctx)
	}
	return nil
}

// signOfLife is how often moving bytes count as one: well below the shortest max_idle that anybody will want.
const signOfLife = 200 * time.Millisecond

// watch ends a transfer that stands still for Settings.DataTimeout, in either direction, by a deadline in the past; bytes that
// move are signs of life for the locks of the session, and of its job's ended sessions. It looks at what the kernel has received of the client or the client
// has acknowledged (TCP_INFO): a deadline that rolls ahead would say nothing of what the client takes in of some
// megabytes that wait in the kernel, and a write under TLS that times out cannot go on. Where the system does not tell, nothing
// stands still.
type watch struct {
	transfer *transfer
	timeout  time.Duration
	step     time.Duration

	mu      sync.Mutex
	timer   *time.Timer // nil: stopped
	seen    uint64
	changed time.Time
}

// watch begins to watch the open data connection, until the function that it returns is called.
func (t *transfer) watch() (stop func()) {
	timeout := t.client.server.settings.Load().DataTimeout
	w := &watch{transfer: t, timeout: timeout, step: signOfLife, changed: time.Now()}
	if timeout > 0 {
		w.step = max(min(w.step, timeout/4), time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.step, w.look)
	return w.stop
}

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return
	}
	conn := w.transfer.conn // it does not change while it is watched
	now := time.Now()
	if moved, ok := bytesMoved(conn); !ok || moved != w.seen {
		w.seen, w.changed = moved, now
		w.transfer.works()
	}
	if w.timeout > 0 && now.Sub(w.changed) >= w.timeout {
		_ = conn.SetDeadline(time.Unix(1, 0)) // an error says that it is closed
		return
	}
	w.timer.Reset(w.step)
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.timer = nil
}

// stalled makes the error of a connection that the watch has ended recognisable, whatever wraps it.
func stalled(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errStalled
	}
	return err
}

var errStalled = &refusal{code: 426, text: "the data connection stood still for too long"}

// buffers are lent to transfers that cannot be left to the kernel. At half the size ASCII is a tenth slower.
var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

func getBuffer() *[]byte  { return buffers.Get().(*[]byte) }
func putBuffer(b *[]byte) { buffers.Put(b) }

// content is what a download sends: a file, a listing, the status file. WriteTo sends all of it.
type content interface {
	io.WriterTo
	io.Closer
}

var _ content = (*listing)(nil)

// uploadOptions of the transfer.
func (t *transfer) uploadOptions(appending bool, offset int64) files.UploadOptions {
	unique := t.cmd != nil && t.cmd.Verb == "STOU"
	return files.UploadOptions{Append: appending, HasOffset: !appending && offset > 0, Offset: offset, Unique: unique}
}
