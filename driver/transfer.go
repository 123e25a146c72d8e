package driver

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
)

// The errors of a data connection that end a transfer.
var (
	errStalled    = &refusal{code: 426, cause: "stalled", text: "the data connection stood still for too long"}
	errSlow       = &refusal{code: 426, text: "the data connection was too slow for too long"}
	errContested  = &refusal{code: 426, cause: "contested", text: "two data connections came from your address; the server cannot tell which is yours"}
	errNotResumed = &refusal{code: 522, cause: "not-resumed", text: "the data connection must resume the TLS session; under TLS 1.2 curl, PHP and Ruby cannot"}
	errNotOpened  = &refusal{code: 425, cause: "not-opened", text: "cannot open the data connection"}
	errPanic      = &refusal{code: 451, text: "internal error"}
)

// transfer is one use of a data connection, and the handle that GetHandle returns. It is an upload if it has a file, otherwise a
// download. The library calls ReadFrom or WriteTo with the data connection, then Close. ReadFrom and WriteTo move and convert the bytes.
//
// cmd has the stage of the transfer and the cause of an abort; other goroutines may abort it. All fields belong to the goroutine that
// executes the transfer. While the transfer is in Server.transfers, the fields from client to conn, file and permitAtStart
// do not change, because other goroutines read them.
type transfer struct {
	client     *client
	cmd        *control.Command
	view       string // the path as the client sees it
	ascii      bool
	announced  int64     // by ALLO, in bytes; 0: nothing
	signOfLife func()    // records a sign of life of the session; called while bytes move
	since      time.Time // the beginning of the command

	conn     net.Conn  // the data connection, below TLS; nil: there is none yet
	openedAt time.Time // when the library passed conn on, after the 150
	upload
	download
}

var (
	_ ftpserver.FileTransfer      = (*transfer)(nil)
	_ ftpserver.FileTransferError = (*transfer)(nil)
)

// newTransfer returns a transfer with the setting of TYPE.
func (c *client) newTransfer(cmd *control.Command, view string) *transfer {
	return &transfer{client: c, cmd: cmd, view: view, ascii: c.conn.ASCII(), signOfLife: c.locks.Work, since: time.Now()}
}

// takeAnnounced takes the length that ALLO announced for this upload. The next upload has none.
func (t *transfer) takeAnnounced() {
	if !t.ascii { // in ASCII type the client counts its own line ends
		t.announced = t.client.announced
	}
	t.client.announced = 0
}

// move calls f, which moves all bytes over the data connection. Until end, Server.watch observes the connection.
func (t *transfer) move(stream any, f func(net.Conn) error) error {
	conn, ok := stream.(net.Conn)
	if !ok {
		return os.ErrInvalid
	}
	t.conn, t.openedAt = conn, time.Now()
	if secure, ok := conn.(*tls.Conn); ok {
		t.conn = secure.NetConn()
	}
	if err := t.cmd.Connected(t.conn); err != nil {
		return err
	}
	t.client.server.transfers.Store(t, &progress{changed: t.openedAt, rate: pace{since: t.openedAt}})
	return t.dataError(t.guarded(func() error { return f(conn) }))
}

// TransferError implements ftpserver.FileTransferError. The library calls it before Close, if no data connection came, or if ReadFrom
// or WriteTo failed. It aborts the transfer, unless that has a cause already.
func (t *transfer) TransferError(err error) {
	if t.conn == nil {
		err = errNotOpened
	}
	t.cmd.Abort(err)
}

// contested returns errContested if a second data connection has come.
func (t *transfer) contested() error {
	if t.client.conn.Contested() {
		t.client.log.Warn("two data connections came from one address; the transfer is refused", "path", t.view)
		return errContested
	}
	return nil
}

// guarded returns a panic of f as an error, so that a bug does not end other sessions.
func (t *transfer) guarded(f func() error) (err error) {
	defer func() {
		if found := recover(); found != nil {
			t.client.log.Error("a transfer panicked", "path", t.view, "panic", found, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return f()
}

// networkErrnos are the errors of a connection that has failed, besides those in answers.
var networkErrnos = []syscall.Errno{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ECONNABORTED}

// dataError returns errStalled or net.ErrClosed for an error of the data connection. It returns other errors unchanged: those of the disk,
// and refusals.
func (t *transfer) dataError(err error) error {
	if err == nil {
		return nil
	}
	var (
		disk  *fs.PathError
		errno syscall.Errno
		op    *net.OpError
	)
	_, known := t.client.explain(err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // watch has set the deadline
		return errStalled
	case known:
		return err
	case errors.As(err, &errno) && slices.Contains(networkErrnos, errno): // splice and sendfile return the errno of the socket
	case errors.As(err, &disk) && errors.As(err, &errno) && !errors.As(err, &op):
		return err
	}
	t.client.log.Debug("data connection failed", "path", t.view, "err", err)
	return net.ErrClosed
}

// end ends the transfer with an event and with the final reply: 226 with the text done, or the reply to err. It returns err for the library.
func (t *transfer) end(done string, err error) error {
	t.client.server.transfers.Delete(t)
	t.emitEnd(err)
	if err == nil {
		t.signOfLife()
		t.cmd.Reply(control.Reply{Code: 226, Text: done})
		return nil
	}
	t.cmd.Reply(t.client.replyFor(t.view, err))
	return err
}

// Close implements io.Closer. The library calls it when the data connection has ended, before the final reply.
func (t *transfer) Close() error {
	defer t.cmd.Closed()
	if t.file != nil {
		return t.closeUpload()
	}
	return t.closeDownload()
}

// discard closes the file that the transfer reads, or removes the temporary file of an upload.
func (t *transfer) discard() {
	if t.content != nil {
		_ = t.content.Close() // it was only read
	}
	if t.file == nil {
		return
	}
	if err := t.guarded(t.file.Discard); err != nil {
		t.client.log.Error("could not remove an unfinished upload", "path", t.view, "err", err)
	}
}

// Read fails: the library calls WriteTo.
func (t *transfer) Read([]byte) (int, error) { return 0, os.ErrInvalid }

// Write accepts no bytes. The library calls it with none after an empty upload, and ReadFrom otherwise.
func (t *transfer) Write(p []byte) (int, error) {
	if len(p) > 0 {
		return 0, os.ErrInvalid
	}
	return 0, nil
}

// Seek does nothing: GetHandle has applied the offset.
func (t *transfer) Seek(offset int64, _ int) (int64, error) { return offset, nil }

// encrypted does the TLS handshake on the data connection, with its own tls.Conn in place of the library's, which has not begun its
// handshake. If the client sends nothing, watch ends the transfer.
func (t *transfer) encrypted(socket net.Conn) (*tls.Conn, error) {
	secure := t.client.conn.DataTLS(socket)
	err := secure.HandshakeContext(t.client.server.context)
	if errors.Is(err, control.ErrNotResumed) {
		err = errNotResumed
	}
	return secure, err
}

// watchEvery is how often moving bytes count as a sign of life. It is well below any useful max_idle.
const watchEvery = 200 * time.Millisecond

// progress has the measurements of a transfer by watch.
type progress struct {
	moved   uint64    // bytes
	changed time.Time // when moved last changed
	rate    pace
}

// watch observes the bytes of all transfers until Close. Each step with new bytes is a sign of life for the locks of the session. If no byte
// moves for FTP.DataTimeout, watch ends the transfer by a deadline in the past. It aborts a download below FTP.DataMinRate; an
// upload may be as slow as the program that makes the data.
//
// It counts the bytes that the kernel has received from the client, or that the client has acknowledged (TCP_INFO). A deadline for each
// read and write would not do: megabytes wait in the kernel, and a TLS write that timed out cannot be continued. On systems without
// TCP_INFO no transfer is detected as stalled.
func (s *Server) watch() {
	step := time.NewTicker(watchEvery)
	defer step.Stop()
	for {
		select {
		case <-step.C:
		case <-s.context.Done():
			return
		}
		for t, p := range s.transfers.Range {
			p.(*progress).check(t.(*transfer), time.Now())
		}
	}
}

func (p *progress) check(t *transfer, now time.Time) {
	server := t.client.server
	moved, ok := control.BytesMoved(t.conn)
	if !ok || moved != p.moved {
		p.moved, p.changed = moved, now
		t.signOfLife()
	}
	timeout := server.settings.Load().FTP.DataTimeout.Duration
	switch {
	case ok && t.file == nil && p.rate.tooSlow(server, moved, now):
		t.cmd.Abort(errSlow)
	case timeout > 0 && now.Sub(p.changed) >= timeout:
		_ = t.conn.SetDeadline(time.Unix(1, 0)) // fails if the connection is closed
	}
}

// pace measures the rate of a download over periods of Server.rateOver.
type pace struct {
	since  time.Time // the beginning of the period
	before uint64    // the bytes that had moved by then
}

// tooSlow reports whether a period has ended in which too few bytes moved. At the end of each period it begins the next one.
func (p *pace) tooSlow(s *Server, moved uint64, now time.Time) bool {
	took := now.Sub(p.since)
	if took < s.rateOver {
		return false
	}
	slow := float64(moved-p.before) < float64(s.settings.Load().FTP.DataMinRate)*took.Seconds()
	p.since, p.before = now, moved
	return slow
}

// buffers are for transfers whose bytes pass through this process. With half the size ASCII transfers are a tenth slower.
var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

func getBuffer() *[]byte  { return buffers.Get().(*[]byte) }
func putBuffer(b *[]byte) { buffers.Put(b) }
