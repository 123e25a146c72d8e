package locksmith

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a server has for what is not waited for as long as Timeout: the reply to a command that is given up, the
// end of a data connection, QUIT.
const patience = 2 * time.Second

// farewell is how long an MKD that is given up may take to end, and how long clearing up may take after that.
const farewell = time.Second

// link is a TCP connection on which each read and write has a time limit, and which can be cut for a reason. package ftp and
// crypto/tls set no limits of their own that would do. A link is a control connection, or a data connection.
type link struct {
	net.Conn // nil until a data connection in active mode is there
	data     bool
	accept   net.Listener // of a data connection in active mode, and the server's address
	from     net.IP
	come     atomic.Int64 // of a control connection: bytes since the last command

	mu     sync.Mutex
	limit  time.Duration // of each read and write
	atMost time.Duration // bounds it, if it is not 0
	broken error         // why the connection is of no use any more
}

var errCut = errors.New("the connection was cut")

// ready returns the connection, when there is one.
func (l *link) ready() (net.Conn, error) {
	l.mu.Lock()
	c, err := l.Conn, l.broken
	l.mu.Unlock()
	if err != nil || c != nil {
		return c, err
	}
	defer l.accept.Close()
	for {
		c, err := l.accept.Accept()
		if err != nil {
			return nil, l.reason(err)
		}
		if !c.RemoteAddr().(*net.TCPAddr).IP.Equal(l.from) {
			_ = c.Close()
			continue
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.Conn = c
		return c, l.broken
	}
}

// begin returns the connection, with the time limit of what is done on it next. That fails on a closed connection only, and then so does
// what comes next.
func (l *link) begin() (net.Conn, error) {
	c, err := l.ready()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		err = l.broken
	}
	if err == nil {
		l.arm(c)
	}
	return c, err
}

func (l *link) arm(c net.Conn) {
	d := l.limit
	if l.atMost > 0 {
		d = min(d, l.atMost)
	}
	_ = c.SetDeadline(time.Now().Add(d))
}

// Read implements net.Conn.
func (l *link) Read(p []byte) (int, error) {
	c, err := l.begin()
	if err != nil {
		return 0, err
	}
	n, err := c.Read(p)
	if l.come.Add(int64(n)) > longest && !l.data {
		l.cut(errEndless)
	}
	return n, l.reason(err)
}

// Write implements net.Conn.
func (l *link) Write(p []byte) (int, error) {
	c, err := l.begin()
	if err != nil {
		return 0, err
	}
	l.come.Store(0)
	n, err := c.Write(p)
	return n, l.reason(err)
}

// Handshake opens the connection of an upload without bytes; the library asks for that.
func (l *link) Handshake() error {
	_, err := l.ready()
	return err
}

// reason is why the link was cut, if it was, and the error otherwise.
func (l *link) reason(err error) error {
	if why := l.err(); err != nil && why != nil {
		return why
	}
	return err
}

// err is why the link is of no use; nil: it is.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// cut ends the link for a reason; the first one counts. What is under way fails at once.
func (l *link) cut(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return
	}
	l.broken = why
	if l.accept != nil {
		_ = l.accept.Close()
	}
	if l.Conn != nil {
		_ = l.SetDeadline(time.Unix(1, 0))
	}
}

// longest bounds the memory that one reply takes.
const longest = 4 << 20

var errEndless = errors.New("a reply without an end")

// wait sets the limit.
func (l *link) wait(limit time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
}

// hurry bounds the limit of what is under way and of what follows; 0 ends that.
func (l *link) hurry(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.atMost = d; d > 0 && l.broken == nil {
		l.arm(l.Conn)
	}
}

// Close ends the connection. The end of a data connection is the only sign of the end of a file (RFC 959 section 3.4.1), so one that
// was cut is reset and does not end like a file. One that was not is read to its end: under TLS servers send session tickets, and a
// connection that is closed with something unread is reset, which vsftpd takes for a failure.
func (l *link) Close() error {
	if l.accept != nil {
		_ = l.accept.Close()
	}
	if l.Conn == nil {
		return nil
	}
	if l.data && l.err() != nil {
		if c, ok := l.Conn.(interface{ SetLinger(int) error }); ok {
			_ = c.SetLinger(0)
		}
	} else if c, ok := l.Conn.(interface{ CloseWrite() error }); ok && l.data {
		_ = l.SetDeadline(time.Now().Add(min(l.limit, patience)))
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, l.Conn)
	}
	return l.Conn.Close()
}
