package locksmith

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jlaffaye/ftp"
)

// This file has the workarounds for package ftp:
//
//   - It has no deadlines: timedConn.
//   - It has no SITE and ALLO, and does not return the text of the replies to USER and MKD: a second textproto.Conn on the control connection sends
//     these commands between its calls. Each of the two reads exactly the replies to its own commands, so both buffers are empty in between. The
//     session has logged in before; tap answers for the server meanwhile.
//   - It requires an IP address of the control connection: tap and dataHost.
//   - It opens data connections without a context: openData.
//   - An error of the reader in Stor looks like the end of the file: source.

const (
	// afterEnd is the time that a call goes on after the end of its context, for a server that answers at once.
	afterEnd = 100 * time.Millisecond
	// closeTimeout is the time limit of QUIT, and of the end of a data connection.
	closeTimeout = 2 * time.Second
	// checkTimeout is the time limit of a check of a held lock. Then the client connects again, because a network that loses all packets looks like
	// a slow server, and the lease continues to run.
	checkTimeout = 5 * time.Second
	// maxReply limits the bytes of one reply.
	maxReply = 4 << 20
)

var (
	errClosed  = errors.New("the connection was cut")
	errEndless = errors.New("a reply without an end")
)

// timedConn is a TCP connection, for control or for data. Each read and write has a time limit: package ftp has none. cut ends it with a reason.
type timedConn struct {
	net.Conn
	data     bool
	used     atomic.Bool  // a byte was read or written
	received atomic.Int64 // on a control connection: bytes since the last command

	mu     sync.Mutex
	limit  time.Duration // of each read and write
	broken error         // the reason of the end; nil: it has not ended
	last   bool          // only the last commands may follow
}

// extendDeadline sets the time limit of the next read or write, or returns the reason of the end.
func (c *timedConn) extendDeadline() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.last:
		return nil
	case c.broken == nil:
		_ = c.SetDeadline(time.Now().Add(c.limit))
	}
	return c.broken
}

// reopen permits the last commands on a connection, also after a cut. The next call is Write, and nothing else ends it before the time limit.
func (c *timedConn) reopen(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = errClosed
	}
	c.last = true
	_ = c.SetDeadline(time.Now().Add(limit))
}

// Read implements net.Conn.
func (c *timedConn) Read(p []byte) (int, error) {
	if err := c.extendDeadline(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.used.Store(true)
	}
	if c.received.Add(int64(n)) > maxReply && !c.data {
		err = errEndless
	}
	return n, c.reason(err)
}

// Write implements net.Conn.
func (c *timedConn) Write(p []byte) (int, error) {
	if err := c.extendDeadline(); err != nil {
		return 0, err
	}
	c.used.Store(true)
	c.received.Store(0)
	n, err := c.Conn.Write(p)
	return n, c.reason(err)
}

// reason returns the reason of the end in place of an error, if the connection was cut.
func (c *timedConn) reason(err error) error {
	if why := c.err(); err != nil && why != nil {
		return why
	}
	return err
}

// err returns the reason of the end; nil if the connection has not ended.
func (c *timedConn) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// cut ends the connection with a reason; the first one counts. Reads and writes under way fail at once. The end of a data connection is the only mark of
// the end of a file (RFC 959 section 3.4.1), so closing a data connection that was cut resets it, even if the end of the program closes it.
func (c *timedConn) cut(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return
	}
	c.broken = why
	_ = c.SetDeadline(time.Unix(1, 0))
	if tcp, ok := c.Conn.(interface{ SetLinger(int) error }); ok && c.data {
		_ = tcp.SetLinger(0)
	}
}

// setLimit sets the time limit of each read and write from now on, also of those under way.
func (c *timedConn) setLimit(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = limit
	if c.broken == nil {
		_ = c.SetDeadline(time.Now().Add(limit))
	}
}

// Close ends the connection. It reads a data connection that was used and not cut to its end: TLS servers send session tickets, and closing a
// connection with unread bytes resets it, which is a failure for vsftpd. After a refused transfer a server may leave the data connection open.
func (c *timedConn) Close() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.data && c.used.Load() && c.err() == nil {
		_ = c.SetDeadline(time.Now().Add(closeTimeout))
		_ = tcp.CloseWrite()
		_, _ = io.Copy(io.Discard, c.Conn)
	}
	return c.Conn.Close()
}

// startLibrary gives the connection to package ftp, which sets the type, UTF-8 and the protection of data connections.
func (s *session) startLibrary() error {
	tap := &tap{Conn: s.conn, s: s, answer: "220 ready\r\n"}
	options := []ftp.DialOption{ftp.DialWithDialFunc(func(_, address string) (net.Conn, error) {
		if s.ftp == nil {
			return tap, nil
		}
		return s.openData(address)
	})}
	if s.tls != nil {
		options = append(options, ftp.DialWithTLS(s.tls))
	}
	library, err := ftp.Dial(s.Address, options...)
	if err != nil {
		return err
	}
	s.ftp = library
	return library.Login(s.User, s.Password)
}

// tap is the control connection for package ftp. It answers the greeting and USER itself, because the session is logged in already.
type tap struct {
	net.Conn
	s      *session
	answer string // the reply to read next; "": read from the server
}

// Read implements net.Conn.
func (t *tap) Read(p []byte) (int, error) {
	if t.answer != "" {
		n := copy(p, t.answer)
		t.answer = t.answer[n:]
		return n, nil
	}
	n, err := t.Conn.Read(p)
	if err != nil {
		err = t.s.lost(err)
	}
	return n, err
}

// Write implements net.Conn. The library writes one command at a time.
func (t *tap) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), "USER ") {
		t.answer = "230 in\r\n"
		return len(p), nil
	}
	n, err := t.Conn.Write(p)
	if err != nil {
		err = t.s.lost(err)
	}
	return n, err
}

// RemoteAddr implements net.Conn. The library requires a TCP address; dataHost replaces it.
func (t *tap) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// openData opens a data connection for package ftp.
func (s *session) openData(address string) (net.Conn, error) {
	l := &timedConn{data: true, limit: s.Timeout}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.transfers, s.Timeout)
	defer cancel()
	if l.Conn, err = s.DialContext(ctx, "tcp", net.JoinHostPort(s.dataHost(), port)); err != nil {
		return nil, fmt.Errorf("opening the data connection: %w", err)
	}
	s.mu.Lock()
	s.data = l
	if s.transfers.Err() != nil {
		l.cut(context.Cause(s.transfers))
	}
	s.mu.Unlock()
	if s.tls != nil {
		return tls.Client(l, s.tls), nil
	}
	return l, nil
}

// dataHost returns the host for data connections: the address of the control connection, or the name of the host if the caller dials.
func (s *session) dataHost() string {
	a, ok := s.control.RemoteAddr().(*net.TCPAddr)
	if !ok || s.proxied {
		return s.host
	}
	return a.AddrPort().Addr().Unmap().String()
}

// abort ends the running transfer and all later ones. Each later reply has closeTimeout.
func (s *session) abort(why error) {
	s.cutData(why)
	s.control.setLimit(closeTimeout)
}

// cutData ends the data connection, also while it is opened, and all later ones.
func (s *session) cutData(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endTransfers(why)
	if s.data != nil {
		s.data.cut(why)
	}
}

// source is a reader for Stor. An error other than io.EOF resets the data connection: package ftp would close it as if the file were complete.
type source struct {
	s    *session
	read func([]byte) (int, error)
	err  error // of read
}

// Read implements io.Reader.
func (r *source) Read(p []byte) (int, error) {
	n, err := r.read(p)
	if err != nil && err != io.EOF {
		r.err = err
		r.s.abort(err)
		return 0, err
	}
	return n, err
}

// store sends a file. read is as for io.Reader; its error precedes those of the server.
func (s *session) store(name string, read func([]byte) (int, error)) error {
	r := &source{s: s, read: read}
	err := s.ftp.Stor(name, r)
	if r.err != nil {
		return r.err
	}
	return err
}

// directory describes a directory on a server without facts. The mark distinguishes it from another directory of the same name.
type directory struct {
	exists  bool
	command string    // the command that shows it; "": no command does
	mark    string    // its time
	since   time.Time // zero: not exact
}

// describe requests the time of a directory by MDTM, or reads it from the listing of the parent if MDTM fails (vsftpd has no MDTM of directories).
// command selects one of the two ways.
func (s *session) describe(ctx context.Context, p, command string) (directory, error) {
	defer context.AfterFunc(ctx, func() { s.cut(context.Cause(ctx)) })()
	if command != "LIST" {
		at, err := s.ftp.GetTime(p)
		if err == nil {
			return directory{true, "MDTM", at.String(), at}, nil
		}
		if command == "MDTM" && isCode(err, 550) {
			return directory{command: command}, nil
		}
	}
	if command == "MDTM" || s.broken() != nil {
		return directory{}, s.broken()
	}
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	entries, err := s.ftp.List(dir)
	if err != nil && !isCode(err, 550) {
		return directory{}, s.broken()
	}
	for _, e := range entries {
		if e.Type == ftp.EntryTypeFolder && path.Base(e.Name) == path.Base(p) {
			return directory{exists: true, command: "LIST", mark: e.Time.String()}, nil
		}
	}
	return directory{command: "LIST"}, nil
}

// isCode reports whether an error of the library is a reply with that code.
func isCode(err error, code int) bool {
	var replied *textproto.Error
	return errors.As(err, &replied) && replied.Code == code
}
