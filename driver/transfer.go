package driver

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
)

// Why a transfer did not end well.
var (
	errBroke      = &refusal{code: 426, cause: "broken", text: "the data connection broke"}
	errStalled    = &refusal{code: 426, cause: "stalled", text: "the data connection stood still for too long"}
	errContested  = &refusal{code: 426, cause: "contested", text: "two data connections came from your address, and one of them is somebody else's"}
	errNotResumed = &refusal{code: 522, cause: "not-resumed", text: "the data connection must resume the TLS session; under TLS 1.2 curl, PHP and Ruby cannot"}
	errNotOpened  = &refusal{code: 425, cause: "not-opened", text: "cannot open the data connection"}
	errPanic      = &refusal{code: 451, text: "internal error"}
)

// transfer is one use of a data connection: the handle that the library moves bytes with. It is an upload if it has a file,
// a download otherwise. The library hands ReadFrom and WriteTo the data connection itself, active mode and TLS included, so
// that is where bytes are moved, converted and timed.
//
// How far it has come, and what has aborted it, is the state of cmd. The fields above mu belong to the goroutine that transfers.
type transfer struct {
	client    *client
	cmd       *control.Command
	ascii     bool
	announced int64  // by ALLO; 0: nothing
	works     func() // is called when bytes move: a sign of life
	account   Account
	since     time.Time
	conn      net.Conn  // the socket of its data connection, also below TLS; nil: there is none yet
	openedAt  time.Time // when that was there, behind the 150
	upload
	download

	mu   sync.Mutex
	view string // the path that the client named
}

// newTransfer takes over what ALLO and TYPE said.
func (c *client) newTransfer(cmd *control.Command, view string) *transfer {
	t := &transfer{client: c, cmd: cmd, view: view, ascii: c.conn.ASCII(), works: c.locks.Work,
		account: c.account, since: time.Now()}
	if !t.ascii {
		t.announced = c.announced
	}
	c.announced = 0
	return t
}

var (
	_ ftpserver.FileTransfer      = (*transfer)(nil)
	_ ftpserver.FileTransferError = (*transfer)(nil)
)

// move takes the data connection and has f move all bytes, while it is watched.
func (t *transfer) move(stream any, f func(net.Conn) error) error {
	conn, ok := stream.(net.Conn)
	if !ok {
		return errBroke
	}
	t.conn, t.openedAt = conn, time.Now()
	if secure, ok := conn.(*tls.Conn); ok {
		t.conn = secure.NetConn()
	}
	if err := t.cmd.Connected(t.conn); err != nil {
		return err
	}
	t.client.server.transfers.add(t)
	stop := t.watch()
	defer stop()
	return t.named(t.guarded(func() error { return f(conn) }))
}

// TransferError implements ftpserver.FileTransferError: there is no data connection, or not all bytes came or went. What ended the transfer
// before counts. It is called before the client hears of it, and hangs up.
func (t *transfer) TransferError(err error) {
	if t.conn == nil {
		err = errNotOpened
	}
	t.cmd.Abort(err)
}

// contested returns an error if a second data connection has come.
func (t *transfer) contested() error {
	if t.client.conn.Contested() {
		t.client.log.Warn("two data connections came from one address; the transfer is refused", "path", t.path())
		return errContested
	}
	return nil
}

// guarded makes an error of a bug, so that it ends nobody else's session.
func (t *transfer) guarded(f func() error) (err error) {
	defer func() {
		if found := recover(); found != nil {
			t.client.log.Error("a transfer failed in an unforeseen way", "path", t.path(), "panic", found, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return f()
}

// named gives an error of the data connection a name. Others are the disk's, or the driver's.
func (t *transfer) named(err error) error {
	var (
		disk  *fs.PathError
		errno syscall.Errno
		op    *net.OpError
	)
	_, known := t.client.explain(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded): // the watch has ended it
		return errStalled
	case known, errors.As(err, &disk) && errors.As(err, &errno) && !errors.As(err, &op):
		return err
	}
	t.client.log.Debug("data connection failed", "path", t.path(), "err", err)
	return errBroke
}

// end reports how the transfer has ended, and returns err for the library.
func (t *transfer) end(done string, err error) error {
	t.client.server.transfers.remove(t)
	t.tell(err)
	if err == nil {
		t.works()
		t.cmd.Say(control.Reply{Code: 226, Text: done})
		return nil
	}
	t.cmd.Say(t.client.replyFor(t.path(), err))
	return err
}

// Close implements io.Closer: the library calls it when the data connection has ended, before it writes the reply.
func (t *transfer) Close() error {
	defer t.cmd.Closed()
	if t.file != nil {
		return t.closeUpload()
	}
	return t.closeDownload()
}

// discard gives back what was opened.
func (t *transfer) discard() {
	if t.content != nil {
		_ = t.content.Close() // it was only read
	}
	if t.file == nil {
		return
	}
	if err := t.guarded(t.file.Discard); err != nil {
		t.client.log.Error("could not remove an unfinished upload", "path", t.path(), "err", err)
	}
}

// Read is refused: the library uses WriteTo.
func (t *transfer) Read([]byte) (int, error) { return 0, os.ErrInvalid }

// Write takes the nothing that the library writes for an empty file. It uses ReadFrom for all others.
func (t *transfer) Write(p []byte) (int, error) {
	if len(p) > 0 {
		return 0, os.ErrInvalid
	}
	return 0, nil
}

// Seek does nothing: the offset was known when the transfer began.
func (t *transfer) Seek(offset int64, _ int) (int64, error) { return offset, nil }

// path is what is transferred, as the client knows it.
func (t *transfer) path() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view
}

// encrypted puts TLS over the socket of a data connection and does the handshake. The library's tls.Conn, which has not done its
// own yet, is put aside. A client that says nothing is ended by the watch.
func (t *transfer) encrypted(socket net.Conn) (*tls.Conn, error) {
	secure := t.client.conn.DataTLS(socket)
	err := secure.HandshakeContext(t.client.server.context)
	if errors.Is(err, control.ErrNotResumed) {
		err = errNotResumed
	}
	return secure, err
}

// signOfLife is how often moving bytes count as one: well below the shortest max_idle that anybody will want.
const signOfLife = 200 * time.Millisecond

// watch ends a transfer that stands still for Settings.DataTimeout, in either direction, by a deadline in the past; bytes that
// move are signs of life for the locks of the session, and of its job's ended sessions. It looks at what the kernel has
// received of the client or the client has acknowledged (TCP_INFO): a deadline that rolls ahead would say nothing of what the
// client takes in of some megabytes that wait in the kernel, and a write under TLS that times out cannot go on. Where the
// system does not tell, nothing stands still. It also aborts a download that moves less than Settings.DataMinRate,
// over a minute: an upload is as slow as what its client measures or prints.
func (t *transfer) watch() (stop func()) {
	timeout := t.client.server.settings.Load().DataTimeout
	step := signOfLife
	if timeout > 0 {
		step = max(min(step, timeout/4), time.Millisecond)
	}
	var (
		mu      sync.Mutex
		stopped bool
		seen    uint64
		timer   *time.Timer
	)
	changed := time.Now()
	moves := pace{since: changed}
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		moved, ok := bytesMoved(t.conn)
		if !ok || moved != seen {
			seen, changed = moved, time.Now()
			t.works()
		}
		if ok && t.file == nil && moves.tooSlow(t.client.server, moved, time.Now()) {
			t.cmd.Abort(errSlow)
			return
		}
		if timeout > 0 && time.Since(changed) >= timeout {
			_ = t.conn.SetDeadline(time.Unix(1, 0)) // an error says that it is closed
			return
		}
		timer.Reset(step)
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(step, look)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// pace is how fast bytes move.
type pace struct {
	since  time.Time // when the minute began over which it is taken
	before uint64    // what was moved by then
}

// tooSlow reports whether a minute is over in which too little was moved, and begins another one.
func (p *pace) tooSlow(s *Server, moved uint64, now time.Time) bool {
	took := now.Sub(p.since)
	if took < s.rateOver {
		return false
	}
	slow := float64(moved-p.before) < float64(s.settings.Load().DataMinRate)*took.Seconds()
	p.since, p.before = now, moved
	return slow
}

var errSlow = &refusal{code: 426, text: "the data connection was too slow for too long"}

// buffers are lent to transfers that cannot be left to the kernel. At half the size ASCII is a tenth slower.
var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

func getBuffer() *[]byte  { return buffers.Get().(*[]byte) }
func putBuffer(b *[]byte) { buffers.Put(b) }
