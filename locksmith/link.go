package locksmith

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patience is how long a server has for what is not waited for as long as Timeout: the end of a data connection, QUIT.
	patience = 2 * time.Second
	// glimpse is how long a look at a held lock may take. Then the connection is made again: a network that loses everything looks
	// like a server that is slow, and the lock's lease goes on.
	glimpse = 5 * time.Second
	// longest bounds the memory that one reply takes.
	longest = 4 << 20
)

var (
	errCut     = errors.New("the connection was cut")
	errEndless = errors.New("a reply without an end")
)

// link is a TCP connection on which each read and write has a time limit, and which can be cut for a reason. Package ftp and
// crypto/tls set no limits of their own that would do. A link is a control connection, or a data connection.
type link struct {
	net.Conn
	data     bool
	received atomic.Int64 // on a control connection: bytes since the last command

	mu     sync.Mutex
	limit  time.Duration // of each read and write
	broken error         // why the connection is of no use any more
}

// begin sets the time limit of the next read or write, or returns why the link is of no use.
func (l *link) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		_ = l.SetDeadline(time.Now().Add(l.limit))
	}
	return l.broken
}

// Read implements net.Conn.
func (l *link) Read(p []byte) (int, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	n, err := l.Conn.Read(p)
	if l.received.Add(int64(n)) > longest && !l.data {
		l.cut(errEndless)
	}
	return n, l.reason(err)
}

// Write implements net.Conn.
func (l *link) Write(p []byte) (int, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	l.received.Store(0)
	n, err := l.Conn.Write(p)
	return n, l.reason(err)
}

// reason returns why the link was cut, if it was, and the error otherwise.
func (l *link) reason(err error) error {
	if why := l.err(); err != nil && why != nil {
		return why
	}
	return err
}

// err returns why the link is of no use; nil: it is.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// cut ends the link for a reason; the first one counts. Reads and writes under way fail at once. The end of a data connection is the only sign of
// the end of a file (RFC 959 section 3.4.1), so one that was cut is reset when it is closed, also by the end of the program.
func (l *link) cut(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return
	}
	l.broken = why
	if l.Conn == nil {
		return
	}
	_ = l.SetDeadline(time.Unix(1, 0))
	if c, ok := l.Conn.(interface{ SetLinger(int) error }); ok && l.data {
		_ = c.SetLinger(0)
	}
}

// setLimit sets the time limit of each read and write that follows.
func (l *link) setLimit(limit time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
}

// Close ends the connection. A data connection that was not cut is read to its end: under TLS servers send session tickets, and a
// connection that is closed with something unread is reset, which vsftpd takes for a failure.
func (l *link) Close() error {
	if c, ok := l.Conn.(interface{ CloseWrite() error }); ok && l.data && l.err() == nil {
		_ = l.SetDeadline(time.Now().Add(patience))
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, l.Conn)
	}
	return l.Conn.Close()
}

// lingering returns a context that ends so long after ctx.
func lingering(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-late.Done():
		}
	})
	return late, func() {
		stop()
		cancel(nil)
	}
}
