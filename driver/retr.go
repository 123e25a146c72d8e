package driver

import (
	"cmp"
	"crypto/tls"
	"io"
	"net"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
)

// download is what a transfer knows of what it sends.
type download struct {
	content content
	done    string   // the text of the 226
	sent    net.Conn // nil: not all was sent
	bytes   int64    // that were sent
}

// content is what a download sends: a file, a listing, the status file. WriteTo sends all of it.
type content interface {
	io.WriterTo
	io.Closer
}

// openDownload opens what the command asks for.
func (t *transfer) openDownload(offset int64) error {
	switch {
	case t.cmd.Is("LIST"):
		return t.list(formatLong)
	case t.cmd.Is("NLST"):
		return t.list(formatNames)
	case t.cmd.Is("MLSD"):
		return t.list(formatFacts)
	}
	c := t.client
	t.done = "transfer complete"
	t.cmd.Say(control.Reply{Code: 150, Text: "opening data connection for " + t.view})
	if c.isStatus(t.view) && c.account.Read {
		if err := c.table().Valid(); err != nil { // as for SITE LOCK INFO
			return err
		}
		if offset > 0 && offset > c.server.statusSize(c.account) {
			return files.ErrOffset
		}
		t.content = &statusFile{server: c.server, account: c.account, skip: offset}
		return nil
	}
	c.look(t.cmd, t.view)
	file, err := c.openFile(t.view)
	if err != nil {
		return err
	}
	f := &fileContent{file: file}
	t.content = f
	if c.liesInLock(t.view) {
		t.works = c.locks.Touch // those that want the lock look whose it is
	}
	return f.begin(offset, t.ascii)
}

func (t *transfer) list(f format) error {
	l, err := t.client.listing(f, t.cmd.Param)
	t.content, t.view, t.done = l, l.view, "listing sent"
	t.works = t.client.locks.Touch // those that only look say LIST, too
	t.cmd.Say(control.Reply{Code: 150, Text: "here comes the listing"})
	return err
}

// WriteTo implements io.WriterTo: it sends everything. In binary to a plain connection a file goes there within the
// kernel (sendfile). Under TLS it says that at least one byte was sent: when none was, the library writes nothing to its own
// tls.Conn, which was put aside, and that would begin a handshake (v0.32.3, handle_files.go:156).
func (t *transfer) WriteTo(w io.Writer) (n int64, err error) {
	err = t.move(w, func(conn net.Conn) error {
		if err := t.contested(); err != nil {
			return err
		}
		if secure, ok := conn.(*tls.Conn); ok {
			if conn, err = t.encrypted(secure.NetConn()); err != nil {
				return err
			}
		}
		n, err = t.content.WriteTo(conn)
		t.sent, t.bytes = conn, n
		if conn != w {
			n = max(n, 1)
		}
		return err
	})
	return n, err
}

// afterOpening is how long behind its 150 a download may have its 226, unless the client has ended the data connection before.
// aria2 1.36 stands still for a minute if it reads both at once. With nothing in between it does so in a third of all
// downloads, with 5 ms in a hundredth on a machine with fifteen busy programs, with 40 ms in fewer; and each client that reads the 226
// before it ends the data connection waits as long.
const afterOpening = 5 * time.Millisecond

// closeDownload hands the data connection over: it sends the end and waits until the client ends it, too, which is when the
// client has read all of it, or until afterOpening.
func (t *transfer) closeDownload() error {
	err := t.guarded(t.content.Close)
	if err = cmp.Or(t.cmd.Cause(), err); err == nil {
		t.handOver()
		err = cmp.Or(t.contested(), t.cmd.Seal(true))
	}
	return t.end(t.done, err)
}

func (t *transfer) handOver() {
	if secure, ok := t.sent.(*tls.Conn); ok {
		_ = secure.CloseWrite() // how a connection ends is of no interest: all was sent
	}
	if half, ok := t.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = t.conn.SetReadDeadline(t.openedAt.Add(afterOpening))
		_, _ = t.conn.Read(make([]byte, 1))
	}
}

// openFile opens a file to read it.
func (c *client) openFile(view string) (afero.File, error) {
	switch {
	case !c.account.Read:
		return nil, errWriteOnly
	case c.isStatus(view):
		return nil, errChanging
	}
	n, err := c.resolve(view)
	if err != nil {
		return nil, err
	}
	if c.table().Held(n) {
		return nil, errIsDir
	}
	return c.server.tree.Open(string(n))
}

// fileContent is a file from an offset on, as it was when it was opened: whatever is published under its name meanwhile.
type fileContent struct {
	file  afero.File
	ascii *toCRLF // nil: binary
}

// begin goes to the offset, which counts bytes on disk, in ASCII too.
func (f *fileContent) begin(offset int64, ascii bool) error {
	info, err := f.file.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errIsDir
	case offset > info.Size():
		return files.ErrOffset
	}
	if ascii {
		f.ascii = &toCRLF{}
	}
	if ascii && offset > 0 { // a CR just before makes an LF here the rest of a CRLF
		var last [1]byte
		if _, err := f.file.ReadAt(last[:], offset-1); err != nil && err != io.EOF {
			return err
		}
		f.ascii.cr = last[0] == '\r'
	}
	_, err = f.file.Seek(offset, io.SeekStart)
	return err
}

// WriteTo implements io.WriterTo.
func (f *fileContent) WriteTo(w io.Writer) (int64, error) {
	if f.ascii != nil {
		return f.writeLines(w)
	}
	return io.Copy(w, f.file) // its WriteTo is sendfile
}

// writeLines converts as it writes.
func (f *fileContent) writeLines(w io.Writer) (sent int64, err error) {
	in, out := getBuffer(), getBuffer()
	defer putBuffer(in)
	defer putBuffer(out)
	piece := (*in)[:len(*out)/2]
	for {
		n, rerr := f.file.Read(piece)
		m, err := w.Write(f.ascii.convert((*out)[:0], piece[:n]))
		sent += int64(m)
		switch {
		case err != nil:
			return sent, err
		case rerr == io.EOF:
			return sent, nil
		case rerr != nil:
			return sent, rerr
		}
	}
}

// Close implements io.Closer.
func (f *fileContent) Close() error { return f.file.Close() }
