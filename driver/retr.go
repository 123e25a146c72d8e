package driver

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"io"
	"net"
	"os"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
)

// download is the handle of RETR and of the listings.
type download struct {
	*transfer
	content content
	done    string   // the text of the 226
	sent    net.Conn // nil: not all was sent
}

var _ ftpserver.FileTransfer = (*download)(nil)

// content is what a download sends: a file, a listing, the status file. WriteTo sends all of it.
type content interface {
	io.WriterTo
	io.Closer
}

// download opens what the command asks for.
func (t *transfer) download(offset int64) (_ ftpserver.FileTransfer, err error) {
	d := &download{transfer: t, done: "transfer complete"}
	handedOn := false
	defer func() { // after a panic, too
		if !handedOn && d.content != nil {
			_ = d.content.Close() // nothing was read from it
		}
	}()
	switch {
	case t.cmd.Is("LIST"):
		err = d.list(formatLong)
	case t.cmd.Is("NLST"):
		err = d.list(formatNames)
	case t.cmd.Is("MLSD"):
		err = d.list(formatFacts)
	default:
		d.content, err = t.client.content(t.view, offset, t.ascii)
		if t.client.liesInLock(t.view) {
			d.works = t.client.locks.Touch // those that want the lock look whose it is
		}
		t.cmd.Say(control.Reply{Code: 150, Text: "opening data connection for " + t.view})
	}
	if err != nil {
		return nil, err
	}
	handedOn = true
	return d, nil
}

func (d *download) list(f format) error {
	l, err := d.client.listing(f, d.cmd.Param)
	d.content, d.view, d.done = l, l.view, "listing sent"
	d.works = d.client.locks.Touch // those that only look say LIST, too
	d.cmd.Say(control.Reply{Code: 150, Text: "here comes the listing"})
	return err
}

// WriteTo implements io.WriterTo: it sends everything. In binary to a plain connection a file goes there within the
// kernel (sendfile). Under TLS it says that at least one byte was sent: when none was, the library writes nothing to its own
// tls.Conn, which was put aside, and that would begin a handshake (v0.32.3, handle_files.go:156).
func (d *download) WriteTo(w io.Writer) (n int64, err error) {
	err = d.move(w, func(conn net.Conn) error {
		if secure, ok := conn.(*tls.Conn); ok {
			if conn, err = d.encrypted(secure.NetConn()); err != nil {
				return err
			}
		}
		n, err = d.content.WriteTo(conn)
		d.sent = conn
		if conn != w {
			n = max(n, 1)
		}
		return err
	})
	return n, err
}

// lastWord is how long a client may take to end a data connection that has ended for it, and has the 226 then: as long as
// Linux may take to acknowledge that end.
const lastWord = 40 * time.Millisecond

// Close implements io.Closer: the library calls it when all was sent, before it writes the reply. It hands the data connection over:
// it sends the end and waits until the client ends it, too, which is when the client has read all of it. A client that reads
// one reply at a time would never see a 226 that comes together with the 150: aria2 1.36 stands still for a minute then.
// It waits for lastWord at most: some clients want the 226 first.
func (d *download) Close() error {
	defer d.cmd.Release()
	err := d.guarded(d.content.Close)
	if err = cmp.Or(d.broken, err); err == nil {
		d.works()
		d.handOver()
		err = d.contested()
	}
	return d.end(d.done, err)
}

func (d *download) handOver() {
	if secure, ok := d.sent.(*tls.Conn); ok {
		_ = secure.CloseWrite() // how a connection ends is of no interest: all was sent
	}
	if half, ok := d.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = d.conn.SetReadDeadline(time.Now().Add(lastWord))
		_, _ = d.conn.Read(make([]byte, 1))
	}
}

// Read is refused: the library uses WriteTo.
func (d *download) Read([]byte) (int, error) { return 0, os.ErrInvalid }

// Write is refused.
func (d *download) Write([]byte) (int, error) { return 0, os.ErrInvalid }

// Seek does nothing: the offset was known when the content was opened.
func (d *download) Seek(offset int64, _ int) (int64, error) { return offset, nil }

// content opens what RETR sends: a file, the status file.
func (c *client) content(view string, offset int64, ascii bool) (content, error) {
	if c.isStatus(view) && c.account.Read {
		return newText(c.server.statusText(c.account), offset)
	}
	file, err := c.openFile(view)
	if err != nil {
		return nil, err
	}
	return newFileContent(file, offset, ascii)
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
	return c.server.tree.Open(c.server.disk(n))
}

// digested is a file that the library reads for HASH and its like.
type digested struct {
	afero.File
	conn *control.Conn
}

func (c *client) toDigest(view string) (ftpserver.FileTransfer, error) {
	file, err := c.openFile(view)
	return digested{file, c.conn}, err
}

// Read ends when nobody waits for the digest any more.
func (d digested) Read(p []byte) (int, error) {
	if d.conn.Gone() {
		return 0, errHungUp
	}
	return d.File.Read(p)
}

// text is content that is made rather than read from disk: the status file.
type text struct{ *bytes.Reader }

func newText(b []byte, offset int64) (content, error) {
	if offset > int64(len(b)) {
		return nil, files.ErrOffset
	}
	return text{bytes.NewReader(b[offset:])}, nil
}

func (text) Close() error { return nil }

// fileContent is a file from an offset on, as it was when it was opened: whatever is published under its name meanwhile.
type fileContent struct {
	file  afero.File
	left  int64
	ascii *toCRLF // nil: binary
}

// newFileContent owns the file. The offset counts bytes on disk, in ASCII too.
func newFileContent(file afero.File, offset int64, ascii bool) (content, error) {
	opened := false
	defer func() { // after a panic, too
		if !opened {
			file.Close()
		}
	}()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errIsDir
	case offset < 0 || offset > info.Size():
		return nil, files.ErrOffset
	}
	f := &fileContent{file: file, left: info.Size() - offset}
	if ascii {
		f.ascii = &toCRLF{}
	}
	if ascii && offset > 0 { // a CR just before makes an LF here the rest of a CRLF
		var last [1]byte
		if _, err := file.ReadAt(last[:], offset-1); err != nil && err != io.EOF {
			return nil, err
		}
		f.ascii.cr = last[0] == '\r'
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	opened = true
	return f, nil
}

// WriteTo implements io.WriterTo. Fewer bytes than the file had when it was opened are files.ErrShrunk.
func (f *fileContent) WriteTo(w io.Writer) (int64, error) {
	if f.ascii != nil {
		return f.writeLines(w)
	}
	n, err := io.Copy(w, f.file) // its WriteTo is sendfile
	return n, f.shrunk(n, err)
}

// writeLines converts as it writes.
func (f *fileContent) writeLines(w io.Writer) (sent int64, err error) {
	in, out := getBuffer(), getBuffer()
	defer putBuffer(in)
	defer putBuffer(out)
	piece := (*in)[:len(*out)/2]
	read := int64(0)
	for {
		n, rerr := f.file.Read(piece)
		read += int64(n)
		m, err := w.Write(f.ascii.convert((*out)[:0], piece[:n]))
		sent += int64(m)
		switch {
		case err != nil:
			return sent, err
		case rerr == io.EOF:
			return sent, f.shrunk(read, nil)
		case rerr != nil:
			return sent, rerr
		}
	}
}

func (f *fileContent) shrunk(read int64, err error) error {
	if err == nil && read < f.left {
		return files.ErrShrunk
	}
	return err
}

// Close implements io.Closer.
func (f *fileContent) Close() error { return f.file.Close() }
