package driver

import (
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// upload is the receiving side of a transfer. Its methods are in the order of their calls: openUpload checks the locks of the path and makes
// a temporary file, ReadFrom receives the bytes, and closeUpload publishes the file (publish.go).
type upload struct {
	file           *files.Upload // the temporary file; nil: the transfer is a download
	permitAtStart  lock.Permit   // to write the path when the upload began; the zero Permit: no lock protected it
	received       int64         // bytes on the wire
	dataEnded      time.Time     // the end of the data connection
	gotCloseNotify bool          // the client ended the stream with the close_notify of TLS, which a killed client does not send
	sum            string        // the SHA-256 of a protected file
	placed         bool          // the file has replaced the target
	permitAtEnd    lock.Permit   // to write the path when the file was placed
	endEvent       event.Event   // what the log gets about the end
}

// openUpload begins STOR, APPE and STOU.
func (t *transfer) openUpload(appending bool, offset int64) error {
	c, unique := t.client, t.cmd.Is("STOU")
	opening := "opening data connection for "
	if unique {
		t.view = c.uniqueName(t.view)
		opening = "FILE: " // RFC 1123 section 4.1.2.9
	}
	if t.ascii && offset > 0 && !appending {
		return errASCIIOffset
	}
	n, err := c.resolve(t.view)
	if err != nil {
		return err
	}
	if err := c.mayCreate(n, t.view); err != nil {
		return err
	}
	if t.permitAtStart, err = c.prepareChange(t.cmd, n); err != nil {
		return err
	}
	if err := c.makeLockDirectories(n); err != nil {
		return err
	}
	t.file, err = c.server.tree.Upload(string(n), files.UploadOptions{
		Append: appending, Offset: offset, New: unique, Sum: t.permitAtStart.Lock != "", Gone: t.abortedOrGone,
	})
	if err == nil {
		t.cmd.Reply(control.Reply{Code: 150, Text: opening + t.view})
	}
	return err
}

// noteReceived returns a function that records received bytes as a sign of life, for the locks of the session and of its job. Server.watch
// may call the function after the end of the session.
func (t *transfer) noteReceived() func() {
	locks, jobs := t.client.locks, t.client.jobs
	return func() {
		locks.Work()
		if t.file != nil {
			jobs.Wrote(lock.Name(t.file.Name()))
		}
	}
}

// abortedOrGone reports whether the upload was aborted, or its client has hung up.
func (t *transfer) abortedOrGone() bool { return t.cmd.Cause() != nil || t.client.conn.Gone() }

// uniqueName returns the path of the new file of STOU, with a random END: "DIRECTORY/ftp.END" if view is a directory, otherwise "VIEW.END".
func (c *client) uniqueName(view string) string {
	if n, err := c.follow(view); err == nil {
		if info, err := c.lstat(n); err == nil && info.IsDir() {
			view = path.Join(view, "ftp")
		}
	}
	return view + "." + strings.ToLower(rand.Text()[:10])
}

// ReadFrom implements io.ReaderFrom: it receives all bytes.
func (t *transfer) ReadFrom(r io.Reader) (int64, error) {
	err := t.move(r, t.receive)
	t.dataEnded = time.Now()
	return t.received, err
}

func (t *transfer) receive(conn net.Conn) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return t.copy(conn)
	}
	// A tls.Conn returns io.EOF at the end of the connection, too, although an attacker can cut the connection (RFC 8446 section 6.1).
	below := &eofConn{Conn: secure.NetConn()}
	secure, err := t.encrypted(below)
	if err != nil {
		return err
	}
	if err := t.copy(secure); err != nil {
		return err
	}
	if below.sawEOF { // tls.Conn stops at a close_notify, before the end of the connection
		return io.ErrUnexpectedEOF
	}
	t.gotCloseNotify = true
	_ = secure.CloseWrite() // some clients wait for it; all bytes have come
	return nil
}

// eofConn is a connection that records whether it was read to its end.
type eofConn struct {
	net.Conn
	sawEOF bool
}

func (e *eofConn) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	e.sawEOF = e.sawEOF || err == io.EOF
	return n, err
}

// spliceAfter is the number of bytes that pass through this process before the kernel moves the rest into the file (splice, by os.File).
// For small files splice costs more than it saves.
const spliceAfter = 256 << 10

// copy writes the bytes of the data connection to the file.
func (t *transfer) copy(conn net.Conn) error {
	buf := getBuffer()
	defer putBuffer(buf)
	_, plain := conn.(syscall.Conn) // a tls.Conn has no socket
	var lf toLF
	for {
		n, err := conn.Read((*buf)[1:])
		t.received += int64(n)
		piece := (*buf)[1 : 1+n]
		if t.ascii { // in place: the byte before piece is for a CR that was held back
			piece = lf.convert((*buf)[:0], piece)
			if err == io.EOF {
				piece = lf.end(piece)
			}
		}
		if len(piece) > 0 {
			if _, err := t.file.Write(piece); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case plain && !t.ascii && t.received >= spliceAfter:
			n, err := t.file.ReadFrom(conn)
			t.received += n
			if err != nil {
				return err
			} // splice also stops at urgent data; the next Read reports whether this is the end
		}
	}
}
