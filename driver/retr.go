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
	"github.com/ftplockd/ftplockd/internal/lock"
)

// download is the sending side of a transfer: of a file or a listing.
type download struct {
	content  content
	doneText string   // the text of the 226
	sentOn   net.Conn // the data connection, with TLS if there is any; nil: nothing was sent yet
	bytes    int64    // the number of bytes that were sent
}

// content is a file, a listing or the status file. WriteTo sends all of it.
type content interface {
	io.WriterTo
	io.Closer
}

// openDownload begins RETR, LIST, NLST and MLSD.
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
	t.doneText = "transfer complete"
	// Reply only sets the text: control sends it when the library sends its own 150, after GetHandle. If GetHandle fails, no 150 is sent.
	t.cmd.Reply(control.Reply{Code: 150, Text: "opening data connection for " + t.view})
	if c.isStatus(t.view) && c.account.Reads() {
		if err := c.table().Valid(); err != nil { // as for SITE LOCK INFO
			return err
		}
		if offset > 0 {
			return errNoResume
		}
		t.content = &statusFile{c.server, c.account.Home}
		return nil
	}
	c.look(t.cmd, t.view)
	if t.ascii && offset > 0 {
		return errASCIIOffset
	}
	n, file, err := c.openFile(t.view)
	if err != nil {
		return err
	}
	f := &fileContent{file: file}
	t.content = f
	if c.liesInLock(n) {
		t.signOfLife = c.locks.Touch // clients that want the lock read the files in it, too
	}
	return f.begin(offset, t.ascii)
}

func (t *transfer) list(f format) error {
	l, err := t.client.listing(f, t.cmd.Param)
	t.content, t.view, t.doneText = l, l.view, "listing sent"
	t.signOfLife = t.client.locks.Touch // clients that want a lock send LIST, too
	t.cmd.Reply(control.Reply{Code: 150, Text: "here comes the listing"})
	return err
}

// WriteTo implements io.WriterTo: it sends all bytes. In binary type the kernel moves a file to a plain connection (sendfile). Under TLS
// it returns at least 1: after 0 the library would write to its own tls.Conn, and so begin a second handshake (v0.32.3,
// handle_files.go:156).
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
		t.sentOn, t.bytes = conn, n
		if conn != w {
			n = max(n, 1)
		}
		return err
	})
	return n, err
}

// afterOpening is the least time from the 150 to the 226 of a download, unless the client closes the data connection earlier. aria2 1.36
// hangs for a minute if it reads both replies at once: without this time in a third of all downloads, with 5 ms in a hundredth (on a
// machine with fifteen busy programs), with 40 ms in fewer. A client that reads the 226 before it closes the data connection waits all
// of it.
const afterOpening = 5 * time.Millisecond

// closeDownload takes a download from its last byte to its final reply.
func (t *transfer) closeDownload() error {
	err := t.guarded(t.content.Close)
	if err = cmp.Or(t.cmd.Cause(), err); err == nil {
		t.endStream()
		err = cmp.Or(t.contested(), t.cmd.SealComplete())
	}
	return t.end(t.doneText, err)
}

// endStream sends the end of the data. It waits until the client ends the connection, too, but no longer than afterOpening.
func (t *transfer) endStream() {
	if secure, ok := t.sentOn.(*tls.Conn); ok {
		_ = secure.CloseWrite() // all bytes were sent; an error of the end changes nothing
	}
	if half, ok := t.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = t.conn.SetReadDeadline(t.openedAt.Add(afterOpening))
		_, _ = t.conn.Read(make([]byte, 1))
	}
}

// openFile opens a file for reading, and returns it with its name.
func (c *client) openFile(view string) (n lock.Name, file afero.File, err error) {
	switch {
	case !c.account.Reads():
		return "", nil, errWriteOnly
	case c.isStatus(view):
		return "", nil, errChanging
	}
	if n, err = c.resolve(view); err != nil {
		return "", nil, err
	}
	if c.table().Held(n) {
		return "", nil, errIsDir
	}
	file, err = c.server.tree.Open(string(n))
	return n, file, err
}

// fileContent is a file from an offset on. If an upload replaces the file, the content stays that of the old one.
type fileContent struct {
	file  afero.File
	ascii *toCRLF // nil: binary
}

// begin seeks to the offset.
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
	if offset > 0 {
		_, err = f.file.Seek(offset, io.SeekStart)
	}
	return err
}

// WriteTo implements io.WriterTo.
func (f *fileContent) WriteTo(w io.Writer) (int64, error) {
	if f.ascii != nil {
		return f.writeLines(w)
	}
	return io.Copy(w, f.file) // its WriteTo is sendfile
}

// writeLines converts the line ends.
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
