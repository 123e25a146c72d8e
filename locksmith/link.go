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
	net.Conn
	data bool
	come atomic.Int64 // of a control connection: bytes since the last command

	mu     sync.Mutex
	limit  time.Duration // of each read and write
	atMost time.Duration // bounds it, if it is not 0
	broken error         // why the connection is of no use any more
}

var errCut = errors.New("the connection was cut")

// begin sets the time limit of what is done next, or returns why the link is of no use.
func (l *link) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.arm()
	}
	return l.broken
}

func (l *link) arm() {
	d := l.limit
	if l.atMost > 0 {
		d = min(d, l.atMost)
	}
	_ = l.SetDeadline(time.Now().Add(d))
}

// Read implements net.Conn.
func (l *link) Read(p []byte) (int, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	n, err := l.Conn.Read(p)
	if l.come.Add(int64(n)) > longest && !l.data {
		l.cut(errEndless)
	}
	return n, l.reason(err)
}

// Write implements net.Conn.
func (l *link) Write(p []byte) (int, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	l.come.Store(0)
	n, err := l.Conn.Write(p)
	return n, l.reason(err)
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
		l.arm()
	}
}

// Close ends the connection. The end of a data connection is the only sign of the end of a file (RFC 959 section 3.4.1), so one that
// was cut is reset and does not end like a file. One that was not is read to its end: under TLS servers send session tickets, and a
// connection that is closed with something unread is reset, which vsftpd takes for a failure.
func (l *link) Close() error {
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
